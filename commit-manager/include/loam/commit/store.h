// What survives a commit manager, as its owner gives it.
#pragma once

#include <memory>

#include <loam/commit/log_device.h>

#include "common/base/bytes.h"
#include "common/base/status.h"

namespace loam::commit {

/// Role: holds one commit manager's durable state and its commit log [R11], and what the one before it left. The
/// program's is a folder on a disk (ManagerOptions::data); the simulator's is a disk that outlives simulated processes.
/// A store is one manager's alone while that runs.
///
/// Threads: found() and the first store() by CommitManager::start(), one after the other; the later calls of store() by
/// the manager's writer thread, one at a time. Implementations pass the pause points manager.durable.before and
/// manager.durable.after.
class Store {
 public:
  virtual ~Store() = default;
  /// As the last store() that took effect left it, valid until the next; empty: a new cluster.
  virtual Bytes found() const = 0;
  /// Replaces the stored state, and blocks until the new one is on the disk. After an error the manager says nothing
  /// more to anybody and ends.
  virtual Status store(Bytes state) = 0;
  /// The place of the commit log, for the manager that starts. Once; the store outlives it.
  virtual Result<std::unique_ptr<LogDevice>> log_device() = 0;
};

}  // namespace loam::commit
