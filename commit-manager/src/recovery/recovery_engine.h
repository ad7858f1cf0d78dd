// The part of a recoverer that runs on its worker's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <loam/bdtree/store.h>

#include "commit-manager/src/recovery/recoverer.h"
#include "commit-manager/src/recovery/recovery_node.h"
#include "common/base/thread.h"
#include "common/fiber/wait.h"
#include "common/rpc/worker.h"

namespace loam::commit {

/// Upper bound on helper fibers of one task. They work at its nodes or at keys of indexes, beside its own fiber.
inline constexpr size_t kHelpersPerTask = 64;
/// Upper bound on helper fibers of all tasks.
inline constexpr size_t kMaxHelpers = 512;

struct NodeOutcome;

/// Schedules the tasks of a recoverer. A node of a task is in one place at a time:
///
///     queue_ ──▶ an attempt, in a fiber ──▶ reported
///       ▲          ├──▶ parked at the node that did not answer ─────────▶┐ when the node answers again or has changed;
///       │          │                                                     │ one task at a time to probe it
///       │          └──▶ delayed_tasks_, if it failed for another reason ▶┤ after a pause
///       └────────────────────────────────────────────────────────────────┘
///
/// * queue_: the task waits for a fiber.
/// * An attempt runs in a fiber (RecoveryAttempt). Afterwards the nodes of the task go different ways.
/// * Reported: the attempt has undone every intent of the node.
/// * Parked: a storage node did not answer. Other attempts at it would also wait for the deadline, so one task
///   probes it and the others wait. All nodes that wait for one storage node stay together as one task.
/// * delayed_tasks_: the attempt failed for another reason, and the task is repeated after a pause.
///
/// Owner: the recoverer. The worker's thread makes and uses it, except statistics(). It is destroyed after the worker
/// has stopped.
class RecoveryEngine final : private rpc::PollHook {
 public:
  RecoveryEngine(rpc::Worker& worker, RecovererOptions options);
  ~RecoveryEngine();
  RecoveryEngine(const RecoveryEngine&) = delete;
  RecoveryEngine& operator=(const RecoveryEngine&) = delete;

  void set_catalog(wire::Catalog catalog);
  void add(const std::vector<RecoveryTask>& tasks);
  void sweep(wire::FenceSet ended);
  /// Drops all tasks and waits until all fibers and connections have ended. Called in a fiber.
  void close();
  /// Any thread may call it.
  RecoveryStatistics statistics() const;

  // Called by attempts and sweeps.
  const RecovererOptions& options() const { return options_; }
  uint64_t request_deadline_ns() const { return worker_.now_ns() + options_.request_timeout_ns; }
  /// Returns the channel to a node. kUnavailable: the node does not exist or is paused.
  Result<rpc::Channel*> channel(NodeId id);
  /// Converts the status of a request by node_failure(), notes a failure of the node, and returns the result.
  Status record_status(NodeId id, const Status& status);
  /// Pauses the node, if it did not answer.
  void note_failure(NodeId id, const Status& status);
  /// Ends all work, because this recoverer is fenced.
  void fail(const Status& status);
  NodeId owner(TableId table, Key key) const { return catalog_->shards.owner(table, key); }
  /// True if clients read the index, so that all its tree nodes must exist.
  bool index_ready(TableId index) const;
  /// Returns an id for a new tree node. No client and no other recoverer gives this id, and this recoverer gives it
  /// only once (R31, structure changes of the Bd-tree). kOverloaded: all ids of this recoverer are used.
  Result<bdtree::TreeNodeId> new_tree_node();
  void sleep_for(uint64_t duration_ns) { worker_.scheduler().sleep_for(duration_ns); }
  /// Runs work(0) … work(count - 1) in this fiber and in as many helpers as the limits allow. Called in a fiber.
  void parallel_for(size_t count, const std::function<void(size_t)>& work);
  /// Count the records that attempts hold in memory.
  void reserve_records(size_t records) { buffered_records_ += records; }
  void release_records(size_t records) { buffered_records_ -= records; }
  bool record_buffer_full() const { return buffered_records_ >= options_.max_buffered_records; }
  void count_intents(size_t count) { counted_.intents += count; }
  void count_reverted() { ++counted_.reverted; }
  void count_index_changes(size_t count) { counted_.index_changes += count; }

 private:
  uint64_t before_poll() override;
  void after_poll(uint64_t) override {}

  /// Returns null if the catalog has no such node or the engine is closed.
  RecoveryNode* node(NodeId id);
  void expire_nodes();
  void wake_tasks();
  void start_tasks();
  /// Runs one attempt, in a fiber of its own.
  void run(const QueuedTask& queued);
  void process_outcomes(const QueuedTask& queued, const std::vector<NodeOutcome>& outcomes);
  void requeue_failed(const QueuedTask& queued, const std::vector<NodeOutcome>& outcomes);
  uint64_t next_deadline_ns() const;
  void update_levels();

  void cancel_all(const Status& status);
  void log_line(LogEvent event, const std::string& line, LogFields fields,
                std::source_location where = std::source_location::current()) const;

  rpc::Worker& worker_;
  const RecovererOptions options_;
  std::shared_ptr<const wire::Catalog> catalog_;
  std::map<NodeId, std::unique_ptr<RecoveryNode>> nodes_;
  std::vector<std::unique_ptr<RecoveryNode>> retired_;  // nodes of cancel_all(), until their connections have ended

  std::deque<QueuedTask> queue_;
  std::multimap<uint64_t, QueuedTask> delayed_tasks_;  // key: time of the next attempt

  fiber::WaitGroup attempts_;    // fibers with an attempt
  fiber::WaitGroup sweep_;       // the fiber that sweeps
  size_t helpers_ = 0;           // helper fibers
  size_t buffered_records_ = 0;  // records in memory
  uint64_t tree_nodes_ = 0;      // ids given for tree nodes
  Status failed_;
  bool closed_ = false;
  RecoveryStatistics counted_;

  mutable Mutex mutex_;
  RecoveryStatistics published_;  // guarded by mutex_
};

}  // namespace loam::commit
