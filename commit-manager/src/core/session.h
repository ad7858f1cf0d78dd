// A client process's registration, while it lasts and after its end.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include <loam/commit/core.h>

#include "commit-manager/src/core/transactions.h"
#include "common/base/ids.h"
#include "common/wire/reply_window.h"

namespace loam::commit {

/// One open session (R3): the unit of idempotence, of ownership (R8), of lease and fence. It outlives its connections.
/// Owner: Core, in a map whose entries do not move. Ends when it is closed, or as an EndedSession.
struct Session {
  explicit Session(wire::ReplyBudget& answers) : window(wire::kManagerReplyWindow, &answers) {}

  SessionId id;
  PeerId peer;  ///< its newest connection; 0 while it has none
  std::string client_name;
  uint64_t open_sequence = 0;  ///< of the OpenSession, which may be repeated
  uint64_t heard_ns = 0;       ///< its lease counts from here
  SessionLoad load;
  wire::ReplyWindow window;
};

/// What the window of a session keeps of a Begun whose snapshot is large: the rest is made again from the open
/// snapshot, which is held as long as the client can ask for the answer, since only this client completes or releases
/// what it names.
struct BegunReference {
  uint64_t first_id = 0;  ///< 0: no id
  uint64_t snapshot_number = 0;
  uint64_t upgradable_number = 0;
  uint64_t seen_by_all = 0;
  uint64_t durable = 0;
  uint64_t catalog_version = 0;
};
static_assert(sizeof(BegunReference) <= wire::kManagerReplyWindow.small_bytes());
static_assert(std::is_trivially_copyable_v<BegunReference>);

/// A session that has ended, and what recovery has to undo of it [R7, R8].
///
///     fencing ── every node has acknowledged `fence`, or has no lease ──▶ recovering ── every node is done ──▶ gone
///
/// A node's part is handed to recovery as soon as that node has acknowledged the fence. Owner: Core.
struct EndedSession {
  std::string client_name;
  std::string why;
  uint64_t ended_ns = 0;
  uint64_t fence = 0;  ///< sequence of the first Fence that names it; 0: not sent yet
  bool fenced_everywhere = false;
  /// Its transactions that were not accepted as committed when it ended: they are aborted. Ascending.
  std::shared_ptr<const std::vector<TransactionId>> aborted = std::make_shared<std::vector<TransactionId>>();
  std::set<NodeId> undone;  ///< nodes where nothing of `aborted` is left
};

}  // namespace loam::commit
