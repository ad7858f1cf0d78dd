// The recoverer: undoes the transactions of ended sessions at the storage nodes [Thesis 3.2; R8, completion by the
// owner, recovery after the fence; R9, leases of storage nodes; R11, commit log and restart of the commit manager;
// R27, index entries; R31, structure changes of the Bd-tree; docs/decisions/0021-the-commit-manager-decides.md].
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

#include <loam/commit/core.h>
#include <loam/commit/statistics.h>

#include "common/base/ids.h"
#include "common/base/log_event.h"
#include "common/base/status.h"
#include "common/base/thread.h"
#include "common/net/transport/address.h"
#include "common/rpc/worker.h"
#include "common/wire/catalog.h"
#include "common/wire/fence_set.h"
#include "common/wire/identity.h"

namespace loam::commit {

/// Upper bound on the records to be reverted that a recoverer holds in memory, 24 bytes each. When it is reached, the
/// tasks revert these records before they read further intents. One page of intents for each node that is being read
/// comes on top.
inline constexpr size_t kMaxBufferedRecords = 1'048'576;

/// Settings and callbacks of a recoverer. The recoverer calls the callbacks on its own thread, one at a time, from
/// start() to the return of stop(). A callback must not wait and must not call stop(); it may call everything else.
struct RecovererOptions {
  /// Transport of the storage nodes. All nodes of a cluster use the same one.
  net::Scheme scheme = net::Scheme::kTcp;
  uint64_t manager_epoch = 0;  ///< epoch of the commit manager
  wire::ClusterId cluster{};
  /// Session of the recoverer. It attaches to the nodes with it, and a later recoverer fences it.
  SessionId session;
  /// Upper bound on attempts under way. Tasks that wait for a node that does not answer do not count.
  size_t parallel = 64;
  /// Deadline of one request. A node that misses it is paused, and is asked again later.
  uint64_t request_timeout_ns = 2'000'000'000;
  size_t max_buffered_records = kMaxBufferedRecords;  ///< see kMaxBufferedRecords

  /// Reports that the task is done at its nodes. The argument is a task that was given to the recoverer, reduced to
  /// the nodes that are done since the last report. Each node of a task is reported once.
  std::function<void(const RecoveryTask&)> on_recovered;
  /// Reports the end of the sweep. An error means that a node did not answer, and the sweep has to be repeated.
  std::function<void(Status)> on_swept;
  /// Reports that this recoverer is fenced and does nothing any more. The owner stops it and starts another one with
  /// a new session. Called at most once.
  std::function<void(Status)> on_failed;
  /// Writes a log line for operators: a node that recovery waits for, or a task that cannot be finished. May be
  /// empty. The parameters are those of log_info() in common/base/log.h.
  std::function<void(LogEvent, std::string_view line, LogFields, std::source_location where)> on_log_line;
};

class RecoveryEngine;

/// The interface of a recoverer for the recovery driver; tests have their own. Any thread may call every function.
/// Each call returns at once, and the calls of one caller take effect in their order.
class RecoveryWorker {
 public:
  /// Stops the recoverer at its next step. Blocks; no callback comes afterwards.
  virtual ~RecoveryWorker() = default;

  /// Sets nodes, incarnations and shard map. Tasks that waited for a node that has changed are tried at once.
  virtual void set_catalog(wire::Catalog catalog) = 0;
  /// Adds tasks. The caller passes each node of a session once: a task that is passed twice is undone and reported
  /// twice, which costs time and is safe.
  virtual void add(std::vector<RecoveryTask> tasks) = 0;
  /// Starts a sweep of the indexes: removes orphaned tree nodes of sessions that `ended` fences at every node (R31).
  /// The sweep runs beside the tasks. Ignored while a sweep is under way.
  virtual void sweep(wire::FenceSet ended) = 0;
  /// Returns the statistics at the end of the thread's last poll round. Never waits. RecoveryStatistics::starts stays
  /// 0: the driver counts it.
  virtual RecoveryStatistics statistics() const = 0;
};

/// Recovers many tasks at once, each by an attempt (commit-manager/src/recovery/recovery_attempt.h) in a fiber, over
/// connections of its own. It reports the nodes of a task that are done. If a storage node did not answer, the nodes of
/// the task that need it wait for it, and one task asks it again after growing pauses. After any other failure the
/// task is repeated after a pause. Other tasks continue (R9).
///
/// Owner: the recovery driver. Threads: one thread of its own does all the work.
///
/// Invariants:
/// 1. A node of a task is reported only when every intent that it named is undone: records at that node, index
///    changes at the node of their leaf.
/// 2. A task waits until it is reported; it is never dropped before stop().
/// 3. Every step may be repeated, by this recoverer or another one, at the same time or later (RecoveryAttempt has
///    the argument). So a recoverer may be stopped or killed anywhere, and the next one ends the same tasks in the
///    same way.
/// 4. A node is asked only in an incarnation that has its records, or whose loss is accepted (R10, cluster
///    identity and incarnations). The empty list of intents of a new process would prove nothing.
class Recoverer final : public RecoveryWorker {
 public:
  /// Starts the thread. kUnavailable, kInternal: there is no thread or socket. Tasks wait until set_catalog().
  static Result<std::unique_ptr<Recoverer>> start(RecovererOptions options);
  ~Recoverer() override;
  Recoverer(const Recoverer&) = delete;
  Recoverer& operator=(const Recoverer&) = delete;

  void set_catalog(wire::Catalog catalog) override;
  void add(std::vector<RecoveryTask> tasks) override;
  void sweep(wire::FenceSet ended) override;
  RecoveryStatistics statistics() const override;

  /// Does what the destructor does. Later calls of the other functions have no effect.
  void stop();

 private:
  explicit Recoverer(std::unique_ptr<rpc::Worker> worker);

  /// Runs `task` on the worker's thread, after all earlier ones. Does nothing after stop().
  template <class Task>
  void post(Task task) {
    const std::lock_guard lock(mutex_);
    if (!stopped_) worker_->scheduler().post(std::move(task));
  }

  Mutex mutex_;
  bool stopped_ = false;  // guarded by mutex_
  const std::unique_ptr<rpc::Worker> worker_;
  std::unique_ptr<RecoveryEngine> engine_;  // set before another thread can see this object
};

}  // namespace loam::commit
