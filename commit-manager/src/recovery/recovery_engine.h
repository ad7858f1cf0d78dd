// Everything of a recoverer that lives on its worker's thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "commit-manager/src/recovery/recoverer.h"
#include "commit-manager/src/recovery/recovery_node.h"
#include "commit-manager/src/recovery/recovery_run.h"
#include "commit-manager/src/recovery/recovery_scan.h"
#include "commit-manager/src/recovery/recovery_tree.h"
#include "common/base/thread.h"
#include "common/rpc/worker.h"

namespace loam::commit {

/// The tasks of a recoverer and where they are. A task is in one place at a time:
///
///     queue_ ──▶ runs_ ──▶ done
///       ▲          ├──▶ parked at the node that did not answer ──▶ queue_, when the node answers again or has changed;
///       │          │    one at a time to try it                            │
///       │          └──▶ later_, if a node refused it for another reason ───┤
///       └──────────────────────────────────────────────────────────────────┘
///
/// Owner: the recoverer. Made and used on the worker's thread, except statistics(); destroyed after the worker has
/// stopped. All work is done in before_poll(): callbacks of the transport only note what has happened.
class RecoveryEngine final : private rpc::RoundHook {
 public:
  RecoveryEngine(rpc::Worker& worker, RecovererOptions options);
  ~RecoveryEngine();
  RecoveryEngine(const RecoveryEngine&) = delete;
  RecoveryEngine& operator=(const RecoveryEngine&) = delete;

  void set_catalog(wire::Catalog catalog);
  void add(const std::vector<RecoveryTask>& tasks);
  void acknowledged(TransactionId id);
  void scan();
  void accept_unreadable(TransactionId id);
  void sweep(wire::FenceSet ended);
  /// In a fiber: forgets everything and waits for the ends of the connections.
  void close();
  /// Any thread.
  RecoveryStatistics statistics() const;

  // For runs and scans.
  const RecovererOptions& options() const { return options_; }
  uint64_t request_deadline_ns() const { return worker_.now_ns() + options_.request_timeout_ns; }
  /// Null if the catalog has no such node, or the engine is closed.
  RecoveryNode* node(NodeId id);
  /// The channel to a node. kUnavailable: no such node, or it is paused.
  Result<rpc::Channel*> channel(NodeId id);
  void run_reports(const RecoveryRun& run);
  /// The attempt will come to nothing, because of a node; answers may still be awaited.
  void run_blocked(const RecoveryRun& run);
  void run_ended(const RecoveryRun& run) { ended_.push_back(run.machine().id()); }
  /// In a fiber of its own, which tells the run.
  Status undo_indexes(const IndexUndo& undo);

  // For the fibers that work on indexes.
  NodeId owner(TableId table, Key key) const { return catalog_->shards.owner(table, key); }
  /// For a node of a tree: a number that neither clients nor other recoverers give, nor this one again (R31).
  /// kOverloaded: it has given all that it has.
  Result<bdtree::TreeNodeId> new_tree_node();
  void sleep_for(uint64_t duration_ns) { worker_.scheduler().sleep_for(duration_ns); }
  fiber::FiberScheduler& scheduler() { return worker_.scheduler(); }
  /// Fibers that help others with their undo, now.
  size_t& undo_helpers() { return undo_helpers_; }
  void count_index_changes(size_t count) { counted_.index_changes += count; }

 private:
  uint64_t before_poll() override;
  void after_poll(uint64_t) override {}

  void expire_nodes();
  void take_ended();
  void take_ended(const RecoveryRun& run);
  void continue_scan();
  void take_scanned();
  void wake_tasks();
  void start_runs();
  uint64_t next_deadline_ns() const;
  void update_levels();

  void drop_all(const Status& status);
  void fail(const Status& status);
  void note(const std::string& line) const;

  rpc::Worker& worker_;
  const RecovererOptions options_;
  std::shared_ptr<const wire::Catalog> catalog_;
  std::map<NodeId, std::unique_ptr<RecoveryNode>> nodes_;
  std::vector<std::unique_ptr<RecoveryNode>> retired_;  // until their connections have ended

  std::unordered_set<TransactionId> known_;  // every task from add() or a scan to its end, and what cannot be read
  std::map<TransactionId, RecoveryTask> unreadable_;
  std::unordered_set<TransactionId> accepted_;  // unreadable, and an operator has given them up
  std::deque<QueuedTask> queue_;
  std::multimap<uint64_t, QueuedTask> later_;  // by the time of the next attempt
  std::unordered_map<TransactionId, std::unique_ptr<RecoveryRun>> runs_;
  std::vector<TransactionId> ended_;  // runs to be taken out

  bool scan_wanted_ = false;
  bool scan_complete_ = false;          // everything that was found is in scan_left_ or over
  std::unique_ptr<RecoveryScan> scan_;  // under way
  std::vector<RecoveryTask> scanned_;   // by it
  uint64_t scan_at_ns_ = 0;
  uint32_t scan_failures_ = 0;
  std::unordered_set<TransactionId> scan_left_;
  Status scan_result_;

  fiber::WaitGroup index_work_;  // fibers that work on indexes
  uint64_t tree_nodes_ = 0;      // numbers given
  size_t undo_helpers_ = 0;
  bool sweeping_ = false;
  Status failed_;
  bool closed_ = false;
  RecoveryStatistics counted_;

  mutable Mutex mutex_;
  RecoveryStatistics published_;  // guarded by mutex_
};

}  // namespace loam::commit
