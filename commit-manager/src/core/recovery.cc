// What the recoverer is told and tells [R8], and the restart of the commit manager [R11].
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

/// `options` are those of this start.
wire::ClusterHistory continued_history(const CoreOptions& options, const std::optional<DurableState>& before) {
  wire::ClusterHistory history;
  if (before.has_value()) history = before->history;
  if (!history.cluster) history.cluster = {entropy(), entropy() | 1};
  if (history.epochs.size() >= wire::kMaxEpochs) history.epochs.erase(history.epochs.begin());
  history.epochs.push_back({options.epoch, entropy(), history.state + 1});
  return history;
}

std::optional<DurableState> read_state(const Durable* durable, Bytes state) {
  if (durable == nullptr || state.empty()) return std::nullopt;
  Result<DurableState> before = decode_state(state);
  LOAM_CHECK(before.ok(), "the state has passed check_state()");
  return std::move(before).value();
}

}  // namespace

Core::Core(const CoreOptions& options, Outbox& outbox, Durable* durable, Bytes state, CommitLog* log,
           const CommitLogContents& logged)
    : impl_(std::make_unique<Impl>(options, outbox, durable, read_state(durable, state), log, logged)) {}
Core::~Core() = default;

Status Core::check_state(Bytes state) { return state.empty() ? ok_status() : decode_state(state).status(); }

Core::Impl::Impl(const CoreOptions& options, Outbox& outbox, Durable* durable,
                 const std::optional<DurableState>& before, CommitLog* log, const CommitLogContents& logged)
    : options_(continued(options, before)),
      outbox_(outbox),
      catalog_(options_),
      changes_(catalog_, *this),
      transactions_(options_),
      kept_answers_(options_.max_kept_answer_bytes),
      last_session_(options_.first_session.value - 1),
      leases_(std::max(options_.node_lease_ns, before.has_value() ? before->node_lease_ns : 0)),
      log_(log),
      log_end_(logged.end),
      log_progress_{logged.end, logged.end},
      log_ranges_(logged.committed.size()),
      history_(continued_history(options_, before)),
      durable_(durable),
      node_lease_ns_(std::max(options_.node_lease_ns, before.has_value() ? before->node_lease_ns : 0)),
      transaction_bound_(options_.first_transaction.value - 1 + options_.ids_ahead),
      session_bound_(last_session_ + options_.ids_ahead) {
  if (before.has_value()) {
    catalog_.restore(*before);
    leases_.restored(before->nodes.size());
    restarting_ = catalog_.dealt();  // without shards no transaction can have left anything
    for (const NodeStatus& node : catalog_.nodes()) {
      if (node.shards != 0) unreported_.insert(node.info.id);
    }
    committed_before_ = std::make_shared<std::vector<IdRange>>(logged.committed);
    restart_fence_ = next_sequence();
    raised_ = {restart_fence_, {{SessionId(last_session_), {}}, ++lost_, 0}};
  }
  committed_.restore(logged, 0);
  history_.log = log_end_;
  unsaved_ = durable_ != nullptr;  // stored by the first call of on_time()
}

/// Gives what has changed to the disk, unless another state is on its way there. True: it is stored already.
bool Core::Impl::save() {
  if (durable_ == nullptr || storing_.has_value() || !durable_status_.ok()) return false;
  if (state_number() == stored_.number) return false;
  DurableState state;
  catalog_.save(state);
  state.epoch = options_.epoch;
  state.transactions = TransactionId(transaction_bound_);
  state.sessions = SessionId(session_bound_);
  state.node_lease_ns = node_lease_ns_;
  state.history = history_;
  ++state.history.state;
  encode_state(state, state_);
  storing_ = StoredState{.number = state_number(),
                         .transactions = transaction_bound_,
                         .sessions = session_bound_,
                         .catalog = catalog_.catalog(true),
                         .pending = catalog_.pending_tables(),
                         .nodes = catalog_.nodes(),
                         .told_revision = catalog_.told_revision()};
  const std::optional<Status> outcome = durable_->store(state_);
  if (outcome.has_value()) finish_store(*outcome);
  return outcome.has_value() && outcome->ok();
}

SessionId Core::Impl::open_recoverer(uint64_t now_ns) {
  now_ns_ = std::max(now_ns_, now_ns);
  if (recoverer_.value != 0) {
    Env::probe("manager.recovery.recoverer_replaced");
    EndedSession& before = ended_[recoverer_];
    before.client_name = "recoverer";
    before.why = "another recoverer has taken over";
    before.ended_ns = now_ns_;
    ++fencing_;
    ++lost_;
    fence_due_ = true;
  }
  recoverer_ = durable_status_.ok() ? next_session() : SessionId(0);
  settle();
  return durable_status_.ok() ? recoverer_ : SessionId(0);
}

std::vector<NodeId> Core::Impl::nodes_with_shards() const {
  std::vector<NodeId> nodes;
  for (const NodeStatus& node : catalog_.nodes()) {
    if (node.shards != 0) nodes.push_back(node.info.id);
  }
  return nodes;
}

/// A live node holds a lease, so it counts as fenced only when it has acknowledged the fence.
bool Core::Impl::may_ask(NodeId node, uint64_t fence) const {
  return node_peers_.contains(node) && catalog_.node(node).info.state == wire::NodeState::kLive &&
         leases_.fenced(node, fence, now_ns_);
}

std::vector<RecoveryTask> Core::Impl::recovery_tasks(size_t max) const {
  std::vector<RecoveryTask> tasks;
  if (!may_serve().ok() || !durable_status_.ok()) return tasks;
  const std::vector<NodeId> all = nodes_with_shards();
  if (restarting_) {
    // One after the other would meet index changes whose records another node has reverted already; all are there.
    RecoveryTask task;
    for (const NodeId node : all) {
      if (restart_undone_.contains(node)) continue;
      if (!may_ask(node, restart_fence_)) return tasks;
      task.nodes.push_back(node);
    }
    if (!leases_.fenced_everywhere(restart_fence_, now_ns_)) return tasks;
    task.committed = committed_before_;
    task.last_of_earlier = TransactionId(options_.first_transaction.value - 1);
    tasks.push_back(std::move(task));
    return tasks;
  }
  for (const auto& [session, ended] : ended_) {
    if (ended.aborted->empty() || ended.fence == 0) continue;
    RecoveryTask task{session, ended.aborted, {}, {}, {}};
    for (const NodeId node : all) {
      if (!ended.undone.contains(node) && may_ask(node, ended.fence)) task.nodes.push_back(node);
    }
    if (task.nodes.empty()) continue;
    tasks.push_back(std::move(task));
    if (tasks.size() == max) break;
  }
  return tasks;
}

/// A node that has been started anew since the task was given may have been asked when its intents were gone already:
/// it counts when its loss is accepted.
void Core::Impl::recovered(const RecoveryTask& task, uint64_t now_ns) {
  if (!durable_status_.ok()) return;
  now_ns_ = std::max(now_ns_, now_ns);
  const auto count_nodes = [&](std::set<NodeId>& undone) {
    for (const NodeId node : task.nodes) {
      if (catalog_.known(node) && !catalog_.node(node).memory_lost) undone.insert(node);
    }
  };
  if (task.session == SessionId()) {
    if (!restarting_) return;
    count_nodes(restart_undone_);
    end_restart();
  } else if (const auto at = ended_.find(task.session); at != ended_.end()) {
    count_nodes(at->second.undone);
    leave_if_done(at);
  }
  settle();
}

void Core::Impl::nothing_left_at(NodeId node) {
  if (restarting_) {
    restart_undone_.insert(node);
    end_restart();
  }
  for (auto at = ended_.begin(); at != ended_.end();) {
    const auto next = std::next(at);
    at->second.undone.insert(node);
    leave_if_done(at);
    at = next;
  }
}

void Core::Impl::end_restart() {
  for (const NodeId node : nodes_with_shards()) {
    if (!restart_undone_.contains(node)) return;
  }
  restarting_ = false;
  committed_before_.reset();
  Env::probe("manager.recovery.restarted");
  republish_ = true;
  outbox_.note("everything of earlier epochs is recovered; begins are answered from now on");
}

bool Core::Impl::worth_a_sweep(uint64_t lost, uint64_t closed) const {
  return (lost > swept_lost_ || closed - swept_closed_ >= options_.closed_to_sweep) && catalog_.has_indexes();
}

const FencedSessions* Core::Impl::sweep_due() const {
  return worth_a_sweep(fenced_.lost, fenced_.closed) && !restarting_ && may_serve().ok() ? &fenced_ : nullptr;
}

void Core::Impl::swept(const FencedSessions& sessions) {
  swept_lost_ = sessions.lost;
  swept_closed_ = sessions.closed;
}

}  // namespace loam::commit
