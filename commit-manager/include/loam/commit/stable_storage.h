// The durable storage of a commit manager: an interface that its owner implements.
#pragma once

#include <memory>

#include <loam/commit/log_device.h>

#include "common/base/bytes.h"
#include "common/base/status.h"

namespace loam::commit {

/// Holds everything that outlives a commit manager: its state and its commit log (R11, commit log and restart of the
/// commit manager).
///
/// Role: the program stores both in a folder (ManagerOptions::data). The simulator stores both on a disk that
/// outlives simulated processes. At most one running commit manager uses a storage.
///
/// Threads: CommitManager::start() calls stored_state() and the first store(), one after the other. The writer thread
/// of the commit manager makes the later calls of store(), one at a time. Implementations pass the pause points
/// manager.durable.before and manager.durable.after.
class StableStorage {
 public:
  virtual ~StableStorage() = default;
  /// Returns the bytes of the last store() that took effect; valid until the next store(). Empty for a new cluster.
  virtual Bytes stored_state() const = 0;
  /// Replaces the stored state as a whole, and blocks until the new state is on the disk. After an error the commit
  /// manager sends nothing more, and its owner stops it.
  virtual Status store(Bytes state) = 0;
  /// Opens the files of the commit log for the commit manager that starts. Called once. The storage outlives the
  /// result.
  virtual Result<std::unique_ptr<LogDevice>> log_device() = 0;
};

}  // namespace loam::commit
