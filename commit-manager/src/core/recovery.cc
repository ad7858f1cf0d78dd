// What the recoverer is told and tells [R4, R5, R8], and the restart of the commit manager [R11].
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

Core::Core(const CoreOptions& options, Outbox& outbox, Durable* durable, Bytes state)
    : impl_(std::make_unique<Impl>(options, outbox, durable, read_state(durable, state))) {}
Core::~Core() = default;

Status Core::check_state(Bytes state) { return state.empty() ? ok_status() : decode_state(state).status(); }

Core::Impl::Impl(const CoreOptions& options, Outbox& outbox, Durable* durable,
                 const std::optional<DurableState>& before)
    : options_(continued(options, before)),
      outbox_(outbox),
      catalog_(options_),
      changes_(catalog_, *this),
      transactions_(options_),
      kept_answers_(options_.max_kept_answer_bytes),
      last_session_(options_.first_session.value - 1),
      leases_(std::max(options_.node_lease_ns, before.has_value() ? before->node_lease_ns : 0)),
      outcomes_(options_.max_outcomes, options_.outcome_keep_ns),
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
    restart_fence_ = next_sequence();
    raised_ = {restart_fence_, {{SessionId(last_session_), {}}, ++lost_, 0}};
  }
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

/// Nobody writes into the transaction table under a session of an earlier epoch any more, and all of it can be read.
bool Core::Impl::recovery_scan_due() const {
  if (!restarting_ || !may_serve().ok() || !durable_status_.ok() || !leases_.fenced_everywhere(restart_fence_, now_ns_))
    return false;
  for (const NodeStatus& node : catalog_.nodes()) {
    const NodeId id = node.info.id;
    if (node.shards == 0) continue;
    // Who is live holds a lease, and so counts as fenced only because it has acknowledged.
    if (node.info.state != wire::NodeState::kLive || !node_peers_.contains(id)) return false;
  }
  return true;
}

std::vector<RecoveryTask> Core::Impl::recovery_tasks(size_t max) const {
  std::vector<RecoveryTask> tasks;
  if (!may_serve().ok()) return tasks;
  for (const auto& [session, ended] : ended_) {
    if (!ended.fenced_everywhere) continue;
    for (const TransactionId id : ended.open) tasks.push_back({id, session, RecoveryTask::Kind::kOpen});
    for (const TransactionId id : ended.uncleared) tasks.push_back({id, session, RecoveryTask::Kind::kUncleared});
  }
  const auto end = tasks.begin() + static_cast<ptrdiff_t>(std::min(max, tasks.size()));
  std::partial_sort(tasks.begin(), end, tasks.end(),
                    [](const RecoveryTask& a, const RecoveryTask& b) { return a.id < b.id; });
  tasks.erase(end, tasks.end());
  return tasks;
}

void Core::Impl::recovered(TransactionId id, bool committed, uint64_t now_ns) {
  if (!durable_status_.ok()) return;
  now_ns_ = std::max(now_ns_, now_ns);
  const auto at = ended_.find(transactions_.orphan_of(id));
  if (at == ended_.end()) {
    Env::probe("manager.recovery.of_earlier_epoch");
    // Of an earlier epoch: all that is known of it is what the recoverer says.
    if (id < options_.first_transaction) outcomes_.keep(id, committed, now_ns);
    return;
  }
  if (!at->second.fenced_everywhere || !at->second.open.contains(id)) return;
  LOAM_CHECK(transactions_.recover(id, committed), "what is handed to recovery is an open orphan");
  Env::probe(committed ? "manager.recovery.committed" : "manager.recovery.aborted");
  ++(committed ? counts_.recovered_committed : counts_.recovered_aborted);
  at->second.open.erase(id);
  at->second.uncleared.insert(id);
  settle();
}

void Core::Impl::recovery_cleared(TransactionId id) {
  const auto at = ended_.find(transactions_.orphan_of(id));
  if (at == ended_.end() || !at->second.fenced_everywhere || !at->second.uncleared.contains(id)) return;
  const std::optional<bool> committed = transactions_.forget_orphan(id);
  LOAM_CHECK(committed.has_value(), "what is left to clear is a complete orphan");
  outcomes_.keep(id, *committed, now_ns_);
  at->second.uncleared.erase(id);
  leave_if_done(at);
}

void Core::Impl::recovery_scan_done(uint64_t now_ns) {
  if (!restarting_ || !durable_status_.ok() || !stale_.ok()) return;
  now_ns_ = std::max(now_ns_, now_ns);
  restarting_ = false;
  Env::probe("manager.recovery.restarted");
  republish_ = true;
  outbox_.note("everything of earlier epochs is recovered; begins are answered from now on");
  settle();
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
