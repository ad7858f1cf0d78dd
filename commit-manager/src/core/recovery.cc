// The tasks of the recoverer and its reports [R8, completion by the owner, recovery after the fence], and the restart
// of the commit manager [R11, commit log and restart of the commit manager].
//
// The phases of a restart:
//
//   1. Impl::Impl()                   The core takes the stored state and the log. The next epoch, ids and sessions
//                                     are above everything that an earlier epoch may have given out. `restart_fence_`
//                                     fences all earlier sessions. `restarting_` refuses begins.
//   2. first on_timer()               stores the new epoch. No session or node is admitted before that.
//   3. check_identity()               Every node with shards has reported its history (cluster_identity.h), so this
//                                     state is the newest of the cluster. Nodes register and get the fence.
//   4. recovery_tasks()               returns one task, when every node with shards is connected and has acknowledged
//                                     the fence. From now on no write of an earlier epoch can appear.
//   5. finish_restart_if_recovered()  Every intent that the log does not name is undone, so all ids of earlier epochs
//                                     are complete. Begins are answered, and the first publication goes out.
#include <algorithm>
#include <utility>

#include "commit-manager/src/core/core_impl.h"
#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/base/thread.h"

namespace loam::commit {

namespace {

CoreOptions continued(CoreOptions options, const std::optional<DurableState>& before) {
  if (before.has_value()) {
    options.epoch = before->epoch + 1;
    options.first_transaction = TransactionId(before->transactions.value + 1);
    options.first_session = SessionId(before->sessions.value + 1);
  }
  return options;
}

/// Returns the history with the epoch of this start; `options` are those of this start.
wire::ClusterHistory continued_history(const CoreOptions& options, const std::optional<DurableState>& before) {
  wire::ClusterHistory history;
  if (before.has_value()) history = before->history;
  if (!history.cluster) history.cluster = {entropy(), entropy() | 1};
  if (history.epochs.size() >= wire::kMaxEpochs) history.epochs.erase(history.epochs.begin());
  history.epochs.push_back({options.epoch, entropy(), history.state + 1});
  return history;
}

std::optional<DurableState> read_state(const StateStore* state_store, Bytes state) {
  if (state_store == nullptr || state.empty()) return std::nullopt;
  Result<DurableState> before = decode_state(state);
  LOAM_CHECK(before.ok(), "the state has passed check_state()");
  return std::move(before).value();
}

}  // namespace

Core::Core(const CoreOptions& options, Outbox& outbox, StateStore* state_store, Bytes state, CommitLog* log,
           const CommitLogContents& log_contents)
    : impl_(std::make_unique<Impl>(options, outbox, state_store, read_state(state_store, state), log, log_contents)) {}
Core::~Core() = default;

Status Core::check_state(Bytes state) { return state.empty() ? ok_status() : decode_state(state).status(); }

Core::Impl::Impl(const CoreOptions& options, Outbox& outbox, StateStore* state_store,
                 const std::optional<DurableState>& before, CommitLog* log, const CommitLogContents& log_contents)
    : options_(continued(options, before)),
      outbox_(outbox),
      catalog_(options_),
      changes_(catalog_, *this),
      transactions_(options_),
      reply_budget_(options_.max_retained_reply_bytes),
      leases_(std::max(options_.node_lease_ns, before.has_value() ? before->node_lease_ns : 0)),
      ended_sessions_(catalog_, leases_, transactions_, outbox_, counts_),
      commits_(transactions_, log, log_contents),
      identity_(continued_history(options_, before), catalog_, outbox_),
      states_(options_, state_store, catalog_, outbox_,
              std::max(options_.node_lease_ns, before.has_value() ? before->node_lease_ns : 0)) {
  if (before.has_value()) {
    catalog_.restore(*before);
    leases_.restored(before->nodes.size());
    restarting_ = catalog_.shards_assigned();  // without shards no transaction can have written anything
    for (const NodeStatus& node : catalog_.nodes()) {
      if (node.shards != 0) identity_.await_report(node.info.id);
    }
    committed_before_ = std::make_shared<std::vector<IdRange>>(log_contents.committed);
    restart_fence_ = next_sequence();
    ended_sessions_.restored(restart_fence_, {states_.last_session(), {}});
  }
  identity_.set_flushed_commits(log_contents.end);
}

SessionId Core::Impl::open_recoverer_session(uint64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  if (recoverer_.value != 0) {
    Env::probe("manager.recovery.recoverer_replaced");
    ended_sessions_.add(std::exchange(recoverer_, SessionId()), "recoverer", "another recoverer has replaced it",
                        now_ns_);
  }
  recoverer_ = durable_status_.ok() ? states_.next_session() : SessionId(0);
  run_deferred_work();
  return durable_status_.ok() ? recoverer_ : SessionId(0);
}

/// A live node holds a lease, so leases_.fenced() is true only if the node has acknowledged the fence.
bool Core::Impl::can_recover_at(NodeId node, uint64_t fence) const {
  return node_peers_.contains(node) && catalog_.node(node).info.state == wire::NodeState::kLive &&
         leases_.fenced(node, fence, now_ns_);
}

std::vector<RecoveryTask> Core::Impl::recovery_tasks(size_t max) const {
  std::vector<RecoveryTask> tasks;
  if (!identity_.serving_status().ok() || !durable_status_.ok()) return tasks;
  const std::vector<NodeId> all = catalog_.nodes_with_shards();
  if (restarting_) {
    // One task for all nodes, because recovery undoes index changes before records (R27, index entries). Node by
    // node, it would undo index changes of one node after another node has reverted the records.
    RecoveryTask task;
    for (const NodeId node : all) {
      if (restart_recovered_nodes_.contains(node)) continue;
      if (!can_recover_at(node, restart_fence_)) return tasks;
      task.nodes.push_back(node);
    }
    if (!leases_.fenced_everywhere(restart_fence_, now_ns_)) return tasks;
    task.committed = committed_before_;
    task.last_id_of_earlier_epochs = TransactionId(options_.first_transaction.value - 1);
    tasks.push_back(std::move(task));
    return tasks;
  }
  for (const auto& [session, ended] : ended_sessions_.sessions()) {
    if (ended.aborted->empty() || ended.fence == 0) continue;
    RecoveryTask task{session, ended.aborted, {}, {}, {}};
    for (const NodeId node : all) {
      if (!ended.recovered_nodes.contains(node) && can_recover_at(node, ended.fence)) task.nodes.push_back(node);
    }
    if (task.nodes.empty()) continue;
    tasks.push_back(std::move(task));
    if (tasks.size() == max) break;
  }
  return tasks;
}

/// A node whose process was replaced since the task was given may have answered with an empty list of intents. So
/// it does not count here; it counts when its loss is accepted.
void Core::Impl::complete_recovery(const RecoveryTask& task, uint64_t now_ns) {
  if (!durable_status_.ok()) return;
  now_ns_ = std::max(now_ns_, now_ns);
  std::vector<NodeId> recovered;
  for (const NodeId node : task.nodes) {
    if (catalog_.known(node) && !catalog_.node(node).memory_lost) recovered.push_back(node);
  }
  if (task.session == SessionId()) {
    if (!restarting_) return;
    restart_recovered_nodes_.insert(recovered.begin(), recovered.end());
    finish_restart_if_recovered();
  } else {
    ended_sessions_.add_recovered_nodes(task.session, recovered);
  }
  run_deferred_work();
}

void Core::Impl::mark_node_recovered(NodeId node) {
  if (restarting_) {
    restart_recovered_nodes_.insert(node);
    finish_restart_if_recovered();
  }
  ended_sessions_.mark_node_recovered(node);
}

void Core::Impl::finish_restart_if_recovered() {
  for (const NodeId node : catalog_.nodes_with_shards()) {
    if (!restart_recovered_nodes_.contains(node)) return;
  }
  restarting_ = false;
  committed_before_.reset();
  Env::probe("manager.recovery.restarted");
  republish_ = true;
  outbox_.log({LogLevel::kInfo, "recovery.restart_finished",
               "all sessions of earlier epochs are recovered; begins are answered from now on"});
}

const FencedSessions* Core::Impl::sweep_due() const {
  const FencedSessions& fenced = ended_sessions_.fenced();
  if (restarting_ || !identity_.serving_status().ok() || !catalog_.has_indexes()) return nullptr;
  return ended_sessions_.needs_sweep(fenced.lost, fenced.closed, options_.sweep_after_closed_sessions) ? &fenced
                                                                                                       : nullptr;
}

void Core::Impl::complete_sweep(const FencedSessions& sessions) { ended_sessions_.swept(sessions); }

}  // namespace loam::commit
