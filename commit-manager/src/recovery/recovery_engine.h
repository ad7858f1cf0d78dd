// Everything of a recoverer that lives on its worker's thread.
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

/// Fibers that work for one task at a time, besides its own: at its nodes, or at keys of indexes.
inline constexpr size_t kHelpersPerTask = 64;
/// Such fibers of all tasks.
inline constexpr size_t kMaxHelpers = 512;

struct NodeOutcome;

/// The tasks of a recoverer and where they are. A node of a task is in one place at a time:
///
///     queue_ ──▶ an attempt, in a fiber ──▶ reported
///       ▲          ├──▶ parked at the node that did not answer ──▶ queue_, when the node answers again or has changed;
///       │          │    one task at a time to try it                       │
///       │          └──▶ later_, if it was put off for another reason ──────┤
///       └──────────────────────────────────────────────────────────────────┘
///
/// The nodes of a task whose attempt has ended go on as tasks of their own, those that wait for one node together.
///
/// Owner: the recoverer. Made and used on the worker's thread, except statistics(); destroyed after the worker has
/// stopped.
class RecoveryEngine final : private rpc::RoundHook {
 public:
  RecoveryEngine(rpc::Worker& worker, RecovererOptions options);
  ~RecoveryEngine();
  RecoveryEngine(const RecoveryEngine&) = delete;
  RecoveryEngine& operator=(const RecoveryEngine&) = delete;

  void set_catalog(wire::Catalog catalog);
  void add(const std::vector<RecoveryTask>& tasks);
  void sweep(wire::FenceSet ended);
  /// In a fiber: forgets everything and waits for the ends of all fibers and connections.
  void close();
  /// Any thread.
  RecoveryStatistics statistics() const;

  // For attempts and sweeps.
  const RecovererOptions& options() const { return options_; }
  uint64_t request_deadline_ns() const { return worker_.now_ns() + options_.request_timeout_ns; }
  /// The channel to a node. kUnavailable: no such node, or it takes no requests at present.
  Result<rpc::Channel*> channel(NodeId id);
  /// The status of a request to a node for its caller, by node_failure(). Notes a failure.
  Status outcome(NodeId id, const Status& status);
  /// Pauses the node, if it did not answer.
  void note_failure(NodeId id, const Status& status);
  /// Ends all work: this recoverer is fenced.
  void fail(const Status& status);
  NodeId owner(TableId table, Key key) const { return catalog_->shards.owner(table, key); }
  /// Clients read the index, and rely on all of its nodes.
  bool index_ready(TableId index) const;
  /// For a node of a tree: a number that neither clients nor other recoverers give, nor this one again (R31).
  /// kOverloaded: it has given all that it has.
  Result<bdtree::TreeNodeId> new_tree_node();
  void sleep_for(uint64_t duration_ns) { worker_.scheduler().sleep_for(duration_ns); }
  /// In a fiber: work(0) … work(count - 1), by this fiber and as many helpers as there may be.
  void spread(size_t count, const std::function<void(size_t)>& work);
  /// Records that attempts have in memory.
  void hold(size_t records) { held_ += records; }
  void release(size_t records) { held_ -= records; }
  bool holds_enough() const { return held_ >= options_.max_held_records; }
  void count_intents(size_t count) { counted_.intents += count; }
  void count_reverted() { ++counted_.reverted; }
  void count_index_changes(size_t count) { counted_.index_changes += count; }

 private:
  uint64_t before_poll() override;
  void after_poll(uint64_t) override {}

  /// Null if the catalog has no such node, or the engine is closed.
  RecoveryNode* node(NodeId id);
  void expire_nodes();
  void wake_tasks();
  void start_tasks();
  /// In a fiber of its own: one attempt.
  void run(const QueuedTask& queued);
  void take_outcomes(const QueuedTask& queued, const std::vector<NodeOutcome>& outcomes);
  void put_off(const QueuedTask& queued, const std::vector<NodeOutcome>& outcomes);
  uint64_t next_deadline_ns() const;
  void update_levels();

  void drop_all(const Status& status);
  void note(const std::string& line) const;

  rpc::Worker& worker_;
  const RecovererOptions options_;
  std::shared_ptr<const wire::Catalog> catalog_;
  std::map<NodeId, std::unique_ptr<RecoveryNode>> nodes_;
  std::vector<std::unique_ptr<RecoveryNode>> retired_;  // until their connections have ended

  std::deque<QueuedTask> queue_;
  std::multimap<uint64_t, QueuedTask> later_;  // by the time of the next attempt

  fiber::WaitGroup attempts_;  // fibers with an attempt
  fiber::WaitGroup sweep_;     // the fiber that sweeps
  size_t helpers_ = 0;         // fibers that help them
  size_t held_ = 0;            // records in memory
  uint64_t tree_nodes_ = 0;    // numbers given
  Status failed_;
  bool closed_ = false;
  RecoveryStatistics counted_;

  mutable Mutex mutex_;
  RecoveryStatistics published_;  // guarded by mutex_
};

}  // namespace loam::commit
