// The processes of a simulated cluster, their restarts and the operator. cluster_faults.cc and
// cluster_correlated_faults.cc carry out the plan's faults.
#include "tests/sim/cluster.h"

#include <algorithm>
#include <utility>

#include "common/base/assert.h"
#include "common/base/thread.h"
#include "tests/sim/workload.h"

namespace loam::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;
/// Interval at which a node's process checks for requests of the simulator.
constexpr uint64_t kNodePollNs = 20 * kMs;
/// Interval between two sweeps of the indexes.
constexpr uint64_t kSweepNs = 20 * kMs;
/// Time after which a process that could not start tries again.
constexpr uint64_t kStartAgainNs = 10 * kMs;
constexpr uint64_t kConnectTimeoutNs = 500 * kMs;
constexpr uint64_t kRequestTimeoutNs = 1'000 * kMs;
constexpr uint64_t kCommitTimeoutNs = 3'000 * kMs;
constexpr size_t kFiberStackBytes = 64 << 10;
/// Node size so small that the tree of a few dozen keys has inner nodes.
constexpr size_t kIndexNodeBytes = 300;
/// Less than one dead entry in a table of the simulator's size.
constexpr double kNextToNoGarbage = 1e-6;
/// Steps of progress that each client must make in a calm cluster.
constexpr uint64_t kProgressSteps = 10;

}  // namespace

Cluster::Cluster(const Plan& plan, Simulator& simulator, Oracle& oracle)
    : plan_(plan),
      simulator_(simulator),
      oracle_(oracle),
      network_(network_options()),
      disk_(simulator),
      slots_(plan.roles()) {
  disk_.set_reserves(plan.log_preallocates);
  net::SimNetwork::install(&network_);
  // The simulator calls back at each crash, at each pause point and at each rare branch. The faults of the plan act
  // in these calls. The last hook only observes.
  simulator_.set_crash_hook([this](ProcessNumber process) { on_crash(process); });
  simulator_.set_pause_hook(
      [this](ProcessNumber process, std::string_view point) { return on_pause_point(process, point); });
  simulator_.set_rare_hook([this](std::string_view name) { return on_rare(name); });
  simulator_.set_request_hook([this](ProcessNumber server, uint64_t session, uint64_t sequence, Bytes message) {
    oracle_.sessions().request_received({server, simulator_.name_of(server)}, SessionId(session), sequence, message);
  });
}

net::SimNetworkOptions Cluster::network_options() {
  net::SimNetworkOptions options;
  options.seed = plan_.seed;
  options.max_delay_ns = plan_.max_delay_ns;
  options.max_end_delay_ns = plan_.max_end_delay_ns;
  options.now_ns = [this] { return simulator_.virtual_now_ns(); };
  options.on_arrival = [this](const std::string&, const void* transport, uint64_t at_ns) {
    simulator_.wake_at(transport, at_ns);
  };
  return options;
}

Cluster::~Cluster() { net::SimNetwork::install(nullptr); }

std::string Cluster::name_of(Role role, uint32_t nodes) {
  if (role == 0) return "manager";
  if (role <= nodes) return "node" + std::to_string(role);
  return "client" + std::to_string(role - nodes);
}

Role Cluster::role_of(ProcessNumber process) const {
  for (Role role = 0; role < plan_.roles(); ++role) {
    if (slots_[role].process == process) return role;
  }
  return plan_.roles();  // the client of the set-up or of the audit
}

// ---- starting and restarting ----------------------------------------------------------------------------------------

WorkloadShape Cluster::shape() const {
  WorkloadShape shape;
  shape.limits_call_time = true;
  shape.accounts = plan_.accounts;
  shape.hot_keys = plan_.hot_keys;
  shape.fibers = plan_.fibers;
  shape.think_ns = plan_.think_ns;
  shape.long_ns = plan_.long_ns;
  shape.late_inserts = plan_.late_inserts;
  shape.slow_scans = plan_.short_chunks;
  shape.toggles = plan_.toggles;
  shape.trees = plan_.trees;
  shape.adds_fields = plan_.adds_fields;
  shape.indexes = plan_.indexes;
  // A commit manager that stood still extends the leases of all sessions by that time.
  const bool steady = std::ranges::none_of(plan_.faults, [](const Fault& fault) {
    return fault.role == 0 && (fault.kind == FaultKind::kCrash || fault.kind == FaultKind::kCrashAtPoint ||
                               fault.kind == FaultKind::kPause || fault.kind == FaultKind::kStallAtPoint ||
                               fault.kind == FaultKind::kSlow || fault.kind == FaultKind::kRare);
  });
  shape.may_meet_stale_manager =
      std::ranges::any_of(plan_.faults, [](const Fault& fault) { return fault.kind == FaultKind::kStaleManagerState; });
  if (steady) shape.max_age_ns = plan_.max_transaction_age_ns;
  return shape;
}

void Cluster::start_servers() {
  for (Role role = 0; role <= plan_.nodes; ++role) start_role(role);
}

void Cluster::start_role(Role role) {
  RoleState& slot = slots_[role];
  if (slot.process != 0 && simulator_.alive(slot.process)) return;
  if (plan_.is_client(role)) slot.number = ++client_numbers_;
  const ClockShape clock{plan_.clock_offset_ns[role], plan_.clock_ppm[role]};
  slot.process = simulator_.start(name(role), clock, [this, role, number = slot.number] {
    if (role == 0) {
      manager_main(role);
    } else if (plan_.is_node(role)) {
      node_main(role);
    } else {
      client_main(role, number);
    }
  });
}

void Cluster::restart_later(Role role) {
  const uint64_t after_ns = faults_ended_ ? kStartAgainNs : 1 + simulator_.random().below(2 * plan_.restart_after_ns);
  simulator_.at(simulator_.virtual_now_ns() + after_ns, [this, role] {
    if (!slots_[role].ended) start_role(role);
  });
}

void Cluster::manager_main(Role role) {
  commit::ManagerOptions options;
  options.listen = address(role);
  options.admin_listen.clear();
  options.commit_log = plan_.log_mode;
  if (plan_.log_mode != commit::CommitLogMode::kNone) options.store = &disk_;
  options.core.initial_nodes = plan_.nodes;
  options.core.client_lease_ns = plan_.client_lease_ns;
  options.core.node_lease_ns = plan_.node_lease_ns;
  options.core.max_transaction_age_ns = plan_.max_transaction_age_ns;
  options.core.publish_interval_ns = plan_.publish_interval_ns;
  options.core.young_ns = plan_.young_ns;
  options.core.ids_ahead = plan_.ids_ahead;
  options.core.outcome_keep_ns = plan_.outcome_keep_ns;
  options.core.sweep_after_closed_sessions = 1;
  options.sweep_interval_ns = kSweepNs;
  for (;;) {
    auto manager = commit::CommitManager::start(options);
    if (!manager.ok()) {
      simulator_.trace("the commit manager cannot start: " + manager.status().to_string());
      sleep_ns(kStartAgainNs);
      continue;
    }
    for (;;) {
      sleep_ns(plan_.operator_ns);
      run_operator(**manager);
    }
  }
}

void Cluster::node_main(Role role) {
  storage::NodeOptions options;
  options.listen = address(role);
  options.admin_listen.clear();
  options.manager = address(0);
  // The plan counts the memory of records and indexes; queries get three times as much in addition.
  options.memory_bytes = 4 * plan_.memory_bytes;
  options.query_memory_share = 0.75;
  options.intent_memory_bytes = plan_.intent_memory_bytes;
  options.page_bytes = plan_.page_bytes;
  options.huge_pages = false;
  if (plan_.columns) {
    options.columns = "always";
    options.column_rows = 1;
  }
  if (plan_.compaction) options.compact_dead_share = kNextToNoGarbage;
  options.network_threads = plan_.network_threads;
  options.register_timeout_ns = kConnectTimeoutNs;
  for (;;) {
    bool ended = false;
    auto node = storage::StorageNode::start(options, [&ended](const Status&) { ended = true; });
    if (!node.ok()) {
      simulator_.trace("the node cannot start: " + node.status().to_string());
      sleep_ns(kStartAgainNs);
      continue;
    }
    RoleState& slot = slots_[role];
    // The id is 0 as long as the commit manager waits for other nodes. Every start at this address gets the same id.
    if (const uint64_t id = node.value()->statistics().node; id != 0) slot.node_id = NodeId(id);
    slot.started_ns = simulator_.virtual_now_ns();
    slot.node = node.value().get();
    while (!ended) {
      sleep_ns(kNodePollNs);
      poll_node_statistics(slot, **node);
      if (!slot.check_requested) continue;
      slot.check_requested = false;
      oracle_.node_checked(name(role), (*node)->check_invariants(), 0);
    }
    // The commit manager has replaced this node's incarnation. Its supervisor restarts the process, with empty
    // memory.
    record_memory_loss(slot);
    node.value()->stop();
  }
}

void Cluster::poll_node_statistics(RoleState& slot, const storage::StorageNode& node) {
  const storage::NodeStatistics statistics = node.statistics();
  if (statistics.node != 0) slot.node_id = NodeId(statistics.node);
  slot.intents = statistics.intents;
  if (statistics.lease_holds) slot.leased_ns = simulator_.virtual_now_ns();
}

void Cluster::client_main(Role role, uint32_t number) {
  client::ClientOptions options;
  options.name = name(role);
  options.connect_timeout_ns = kConnectTimeoutNs;
  options.request_timeout_ns = kRequestTimeoutNs;
  options.commit_timeout_ns = kCommitTimeoutNs;
  options.fiber_stack_bytes = kFiberStackBytes;
  options.index_node_bytes = kIndexNodeBytes;
  while (!stopping_) {
    auto client = client::Client::connect(address(0), options);
    if (!client.ok()) {
      simulator_.trace("cannot connect: " + client.status().to_string());
      sleep_ns(kStartAgainNs);
      continue;
    }
    run_workload({**client, oracle_, simulator_.random().fork(), number, [this] { return stopping_; }, shape(),
                  &delegated_writes_});
    stay_idle(**client, number);
  }
  slots_[role].ended = true;
}

/// Keeps a client without open transactions for longer than a transaction may live. If the commit manager still held
/// a snapshot of the session, the snapshot would get too old, and the session would end (R8).
void Cluster::stay_idle(client::Client& client, uint32_t number) {
  if (!faults_ended_ || !all_threads_run()) return;
  const bool alive = client.run([&client] { return client.begin({.read_only = true, .retry = {}}).ok(); });
  if (!alive || oracle_.failed()) return;
  // A commit whose caller was cancelled continues until the storage node's loss is accepted.
  const auto left = [number](const ModelTransaction& transaction) {
    return transaction.process == number && transaction.answer == StatusCode::kUnknownOutcome;
  };
  if (std::ranges::any_of(oracle_.transactions().all(), left)) return;
  const uint64_t ended = client.statistics().fenced;
  const uint64_t idle_ns = plan_.max_transaction_age_ns / 4 * 5 + plan_.client_lease_ns;
  sleep_ns(idle_ns);
  oracle_.sessions().idled(number, idle_ns, client.statistics().fenced != ended);
}

void Cluster::run_client(const std::string& process_name, std::function<void(client::Client&)> body) {
  simulator_.start(process_name, {}, [this, process_name, body = std::move(body)] {
    client::ClientOptions options;
    options.name = process_name;
    options.fiber_stack_bytes = kFiberStackBytes;
    options.index_node_bytes = kIndexNodeBytes;
    options.connect_timeout_ns = kConnectTimeoutNs;
    for (;;) {
      auto client = client::Client::connect(address(0), options);
      if (client.ok()) return body(**client);
      simulator_.trace("cannot connect: " + client.status().to_string());
      sleep_ns(kStartAgainNs);
    }
  });
}

// ---- deaths, and the end of faults --------------------------------------------------------------------------------

void Cluster::on_crash(ProcessNumber process) {
  const Role role = role_of(process);
  LOAM_CHECK(role < plan_.roles(), "only a role's process dies");
  RoleState& slot = slots_[role];
  network_.kill(name(role));
  slot.armed.clear();
  record_memory_loss(slot);
  if (role == 0) record_manager_crash();
  if (plan_.is_client(role)) oracle_.client_crashed(slot.number);
  restart_later(role);
}

void Cluster::record_memory_loss(RoleState& slot) {
  if (slot.node != nullptr) slot.losses.push_back(oracle_.node_lost(slot.node_id, shards_));
  slot.node = nullptr;
  slot.leased_ns = slot.intents = 0;
}

namespace {

/// Ids that a log has truncated count as committed, because the commit manager reports none of them as aborted.
TransactionModel::InCommitLog in_commit_log(const std::optional<commit::CommitLogContents>& log) {
  if (!log.has_value()) return [](TransactionId) { return false; };
  return [log = *log](TransactionId id) {
    if (id <= log.truncated_up_to) return true;
    const auto after = std::ranges::upper_bound(log.committed, id, {}, &commit::IdRange::first);
    return after != log.committed.begin() && std::prev(after)->last >= id;
  };
}

}  // namespace

/// Compares the log with the outcomes that clients were told, before another process continues the log.
void Cluster::record_manager_crash() {
  if (plan_.log_mode == commit::CommitLogMode::kNone || on_stale_copy()) return;
  const TransactionModel::InCommitLog written = in_commit_log(disk_.logged());
  oracle_.transactions().manager_died(written);
  if (!crash_cuts_power_ && (!plan_.power_cuts || !simulator_.random().one_in(2))) return;
  simulator_.trace("POWER CUT");
  Env::probe("sim.power_cut");
  disk_.cut_power();
  const std::optional<commit::CommitLogContents> left = disk_.logged();
  const uint64_t flushed = flushed_.empty() ? 0 : flushed_.back().commits;
  if ((left.has_value() ? left->end : 0) < flushed) {
    oracle_.violate("flushed-lost", "the commit manager counted " + std::to_string(flushed) +
                                        " commits as flushed, and " + std::to_string(left.has_value() ? left->end : 0) +
                                        " are left");
  }
  oracle_.transactions().power_cut(written, in_commit_log(left), plan_.log_mode == commit::CommitLogMode::kOs);
}

void Cluster::end_faults() {
  faults_ended_ = true;
  network_.heal_all();
  for (const Fault& fault : plan_.faults) {
    if (fault.kind == FaultKind::kDelay) delay(fault, 0);
  }
  rare_until_ns_ = no_publications_until_ns_ = 0;
  disk_.clear_faults();
  restore_current_copy();
  for (Role role = 0; role < plan_.roles(); ++role) {
    RoleState& slot = slots_[role];
    slot.armed.clear();
    simulator_.slow(slot.process, 1);
    if (!simulator_.alive(slot.process) && !slot.ended) start_role(role);
  }
  progress_at_faults_end_ = oracle_.statistics().progress;
}

void Cluster::check_structures() {
  outcome_check_requested_ = true;
  for (Role role = 1; role <= plan_.nodes; ++role) slots_[role].check_requested = true;
}

bool Cluster::structures_checked() const {
  if (outcome_check_requested_) return false;
  for (Role role = 1; role <= plan_.nodes; ++role) {
    if (slots_[role].check_requested) return false;
  }
  return true;
}

bool Cluster::intents_gone() const {
  return std::ranges::all_of(slots_, [](const RoleState& slot) { return slot.intents == 0; });
}

void Cluster::report_remaining_intents() {
  for (Role role = 1; role <= plan_.nodes; ++role) oracle_.node_checked(name(role), "", slots_[role].intents);
}

bool Cluster::progressed() const {
  return oracle_.statistics().progress >= progress_at_faults_end_ + kProgressSteps * plan_.clients;
}

bool Cluster::load_ended() const {
  for (Role role = plan_.nodes + 1; role < plan_.roles(); ++role) {
    if (!slots_[role].ended || simulator_.alive(slots_[role].process)) return false;
  }
  return true;
}

// ---- the operator ---------------------------------------------------------------------------------------------------

void Cluster::run_operator(commit::CommitManager& manager) {
  manager.post([this](commit::Core& core) {
    shards_ = core.catalog_for_recovery().shards;
    for (const commit::NodeStatus& node : core.nodes()) {
      if (node.memory_lost) accept_loss(core, node);
    }
    update_quiescence(core.statistics());
    if (on_stale_copy() && core.ready()) {
      oracle_.violate("older-log-served", "the commit manager serves with an older folder than nodes know");
    }
    if (std::exchange(outcome_check_requested_, false)) check_outcomes(core);
  });
}

void Cluster::check_outcomes(const commit::Core& core) {
  const auto log = plan_.log_mode == commit::CommitLogMode::kNone ? std::nullopt : disk_.logged();
  const TransactionModel::InCommitLog on_disk = in_commit_log(log);
  for (const TransactionId id : oracle_.transactions().ids()) {
    const wire::Outcome outcome = core.outcome(id);
    if (outcome == wire::Outcome::kPending) {
      oracle_.violate("quiet", "transaction " + std::to_string(id.value) + " is pending at the commit manager");
    }
    // The log may have truncated the outcome. Then no node needs it any more.
    if (outcome == wire::Outcome::kForgotten) continue;
    const bool committed = outcome == wire::Outcome::kCommitted;
    const bool known_on_disk = log.has_value() && id > log->truncated_up_to;
    oracle_.transactions().decided(id, committed, known_on_disk ? on_disk(id) : committed);
  }
}

void Cluster::accept_loss(commit::Core& core, const commit::NodeStatus& node) {
  for (Role role = 1; role <= plan_.nodes; ++role) {
    RoleState& slot = slots_[role];
    // The operator accepts only losses from before the start of the current process: a later death is another loss.
    if (slot.node == nullptr || slot.node_id != node.info.id || !simulator_.alive(slot.process)) continue;
    const bool at_once = faults_ended_ || std::exchange(slot.accept_loss_at_once, false);
    if (!at_once && simulator_.virtual_now_ns() < slot.started_ns + plan_.accept_loss_after_ns) continue;
    for (const size_t loss : slot.losses) oracle_.loss_accepted(loss);
    core.accept_loss(node.info.id, [this, &slot, losses = slot.losses](const Status& status) {
      if (!status.ok()) return;  // the operator tries again at its next poll
      for (const size_t loss : losses) {
        oracle_.loss_acknowledged(loss);
        std::erase(slot.losses, loss);
      }
    });
  }
}

void Cluster::update_quiescence(const commit::Statistics& now) {
  const uint64_t before = flushed_.empty() ? 0 : flushed_.back().commits;
  if (!on_stale_copy() && now.log_flushed > before) flushed_.push_back({simulator_.virtual_now_ns(), now.log_flushed});
  // Each of these must be 0 in a quiescent cluster.
  const std::pair<const char*, uint64_t> rests[] = {
      {"open transactions", now.open},
      {"commits that are not on the disk", now.log_end - now.log_flushed},
      {"sessions to be fenced", now.sessions_fencing},
      {"sessions to be recovered", now.sessions_recovering},
      {"registered snapshots", now.read_only_snapshots},
      {"lost nodes", now.nodes_lost},
      {"nodes that do not serve", now.nodes_dead},
      {"catalog changes in progress", now.pending_changes},
      {"restart in progress", now.restarting ? 1 : 0},
      {"sweep of the indexes", now.sweep_due ? 1 : 0},
  };
  not_quiescent_reason_.clear();
  for (const auto& [what, count] : rests) {
    if (count != 0)
      not_quiescent_reason_ += (not_quiescent_reason_.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  }
  quiescent_ = not_quiescent_reason_.empty();
}

}  // namespace loam::sim
