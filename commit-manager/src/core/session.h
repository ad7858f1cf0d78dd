// Open sessions of clients. For ended ones see ended_sessions.h.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include <loam/commit/core.h>

#include "commit-manager/src/core/transactions.h"
#include "common/base/ids.h"
#include "common/wire/reply_window.h"

namespace loam::commit {

/// One open session of a client process. It is the unit of idempotence (R3, idempotent requests within a session), of
/// ownership of transactions (R8, completion by the owner, recovery after the fence), of lease and of fence. It
/// outlives its connections.
///
/// Owner: Core, in a map whose entries do not move. An orderly close removes it. Any other end makes an EndedSession.
struct Session {
  explicit Session(wire::ReplyBudget& answers) : window(wire::kManagerReplyWindow, &answers) {}

  SessionId id;
  PeerId peer;  ///< its newest connection; 0: not connected
  std::string client_name;
  uint64_t open_sequence = 0;  ///< sequence of its OpenSession, which the client may repeat
  uint64_t last_heard_ns = 0;  ///< time of the last message; the lease counts from here
  SessionUsage usage;
  wire::ReplyWindow window;
};

/// The entry of a reply window for a BeginReply whose snapshot is large. rebuild_begin_reply() makes the reply again
/// from the open snapshot. The snapshot stays open as long as the client may repeat the request, because only this
/// client completes or releases what the reply names.
struct BeginReplyReference {
  uint64_t first_id = 0;  ///< 0: the reply has no id
  uint64_t snapshot_number = 0;
  uint64_t upgradable_number = 0;
  uint64_t seen_by_all = 0;
  uint64_t durable = 0;
  uint64_t catalog_version = 0;
};
static_assert(sizeof(BeginReplyReference) <= wire::kManagerReplyWindow.small_bytes());
static_assert(std::is_trivially_copyable_v<BeginReplyReference>);

}  // namespace loam::commit
