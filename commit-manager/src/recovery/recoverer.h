// Undoes what the transactions of ended sessions have left at storage nodes [Thesis 3.2.2; R8, R9, R11, R27, R31;
// docs/decisions/0021-the-commit-manager-decides.md].
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <loam/commit/core.h>
#include <loam/commit/statistics.h>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/thread.h"
#include "common/net/address.h"
#include "common/rpc/worker.h"
#include "common/wire/catalog.h"
#include "common/wire/fence_set.h"
#include "common/wire/identity.h"

namespace loam::commit {

/// Bound on the records to be reverted that a recoverer holds in memory, 24 bytes each. When it is reached, the tasks
/// revert these records before they read further intents. One page of intents for each node that is being read comes on
/// top.
inline constexpr size_t kMaxHeldRecords = 1'048'576;

/// All callbacks come on the recoverer's own thread, one at a time, from start() to the return of stop(). They must not
/// wait, and must not call stop(); they may call everything else.
struct RecovererOptions {
  /// Of the nodes' addresses: those of one cluster speak one protocol.
  net::Scheme scheme = net::Scheme::kTcp;
  uint64_t manager_epoch = 0;
  wire::ClusterId cluster{};
  /// The recoverer's own session: what it attaches to the nodes with, and what a later recoverer fences.
  SessionId session;
  /// Tasks worked on at one time. Those that wait for a node that does not answer are not counted.
  size_t parallel = 64;
  /// For one request and its answer; then the node counts as unreachable for a moment, and is asked again.
  uint64_t request_timeout_ns = 2'000'000'000;
  size_t max_held_records = kMaxHeldRecords;

  /// What the task says is undone at its nodes: a part of a task that was given to the recoverer, with those of its
  /// nodes that are done since the last report. Each node of a task is reported once.
  std::function<void(const RecoveryTask&)> on_recovered;
  /// The sweep is over: ok, or it has to be repeated, because a node did not answer.
  std::function<void(Status)> on_swept;
  /// This recoverer is fenced: it does nothing any more. Stop it, and start another one with a new session. At most
  /// once.
  std::function<void(Status)> on_failed;
  /// A line for operators: a node that is waited for, or what cannot be undone. May be empty.
  std::function<void(std::string_view)> on_note;
};

class RecoveryEngine;

/// What the recovery driver needs of a recoverer. Every function may be called from any thread and returns at once;
/// what one caller calls takes effect in that order.
class RecoveryWorker {
 public:
  /// Stops at the next step. Blocks; no callback comes after it.
  virtual ~RecoveryWorker() = default;

  /// Nodes, incarnations and shard map as they are now. What waited for a node that has changed is tried at once.
  virtual void set_catalog(wire::Catalog catalog) = 0;
  /// Adds tasks. Name each node of a session once: a task that is given twice is undone and reported twice, which costs
  /// time but is safe.
  virtual void add(std::vector<RecoveryTask> tasks) = 0;
  /// Removes what sessions that are fenced by `ended`, at every node, have left half made in indexes (R31). Takes its
  /// time, beside everything else; ignored while one is under way.
  virtual void sweep(wire::FenceSet ended) = 0;
  /// As of the end of the thread's last round. Never waits. RecoveryStatistics::starts is the driver's.
  virtual RecoveryStatistics statistics() const = 0;
};

/// Runs an attempt (commit-manager/src/recovery/recovery_attempt.h) at every task that it is given, many at once, each
/// in a fiber, over connections of its own. The nodes of a task that are done are reported. The others are put off:
/// they wait for the node that did not answer, which is asked again and again with growing pauses, or for a pause of
/// their own; other tasks go on (R9).
///
/// Owner: the recovery driver. Threads: one of its own, for everything that it does.
///
/// Invariants: (1) a node of a task is reported only when every intent that it named is undone: records at that node,
/// index changes wherever their leaf was; (2) a task is put off until it is reported, and never dropped before stop();
/// (3) every step may be repeated, by this recoverer or another one, at one time or one after another (RecoveryAttempt
/// has the argument): being stopped or killed anywhere does no harm; the same tasks, given to the next recoverer, end
/// in the same way; (4) a node is asked only in an incarnation whose memory is not lost, or whose loss is accepted
/// (R10): the empty list of one that was started anew says nothing.
class Recoverer final : public RecoveryWorker {
 public:
  /// kUnavailable, kInternal: no thread or no socket. It knows no node before set_catalog().
  static Result<std::unique_ptr<Recoverer>> start(RecovererOptions options);
  ~Recoverer() override;
  Recoverer(const Recoverer&) = delete;
  Recoverer& operator=(const Recoverer&) = delete;

  void set_catalog(wire::Catalog catalog) override;
  void add(std::vector<RecoveryTask> tasks) override;
  void sweep(wire::FenceSet ended) override;
  RecoveryStatistics statistics() const override;

  /// As the destructor. Once it has returned, calls have no effect.
  void stop();

 private:
  explicit Recoverer(std::unique_ptr<rpc::Worker> worker);

  /// Runs `task` on the worker's thread, after all earlier tasks. Nothing after stop().
  template <class Task>
  void post(Task task) {
    const std::lock_guard lock(mutex_);
    if (!stopped_) worker_->scheduler().post(std::move(task));
  }

  Mutex mutex_;
  bool stopped_ = false;  // guarded by mutex_
  const std::unique_ptr<rpc::Worker> worker_;
  std::unique_ptr<RecoveryEngine> engine_;  // set before any other thread knows of it
};

}  // namespace loam::commit
