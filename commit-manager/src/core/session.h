// A client process's registration.
#pragma once

#include <cstdint>
#include <string>

#include <loam/commit/core.h>

#include "commit-manager/src/core/transactions.h"
#include "common/base/ids.h"
#include "common/wire/reply_window.h"

namespace loam::commit {

/// One open session (R3): the unit of idempotence, of ownership (R8), and later of leases and fences.
/// Owner: Core, in a map whose entries do not move. Lives until it is closed or its connection is lost; what it leaves
/// behind is Transactions' (orphans).
struct Session {
  SessionId id;
  PeerId peer;
  std::string client_name;
  uint64_t open_sequence = 0;  ///< of the OpenSession, which may be repeated
  SessionLoad load;
  wire::ReplyWindow window{wire::kManagerReplyWindow};
};

}  // namespace loam::commit
