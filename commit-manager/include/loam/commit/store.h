// What survives a commit manager, as its owner gives it.
#pragma once

#include <loam/commit/core.h>

#include "common/base/bytes.h"

namespace loam::commit {

/// Role: holds one commit manager's durable state [R11], and what the one before it left. The program's is a folder on
/// a disk (ManagerOptions::data); the simulator's is a disk that outlives simulated processes. A store is one manager's
/// alone while that runs.
///
/// Threads: found() by CommitManager::start(), before the first store(); store() by the manager's server thread.
/// Implementations pass the pause points manager.durable.before and manager.durable.after.
class Store : public Durable {
 public:
  /// As the last store() that took effect left it, valid until the next; empty: a new cluster.
  virtual Bytes found() const = 0;
};

}  // namespace loam::commit
