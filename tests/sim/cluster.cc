#include "tests/sim/cluster.h"

#include <algorithm>
#include <utility>

#include "common/base/assert.h"
#include "common/base/thread.h"
#include "tests/sim/workload.h"

namespace loam::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;
/// How often a node's process looks whether something is wanted of it.
constexpr uint64_t kLookNs = 20 * kMs;
/// Between two sweeps of the indexes.
constexpr uint64_t kSweepNs = 20 * kMs;
/// A process that could not start tries again.
constexpr uint64_t kStartAgainNs = 10 * kMs;
constexpr uint64_t kConnectTimeoutNs = 500 * kMs;
constexpr uint64_t kRequestTimeoutNs = 1'000 * kMs;
constexpr uint64_t kCommitTimeoutNs = 3'000 * kMs;
constexpr size_t kFiberStackBytes = 64 << 10;
/// Trees of a few dozen keys have inner nodes.
constexpr size_t kIndexNodeBytes = 300;
/// Less than one dead entry in a table of these sizes.
constexpr double kNextToNoGarbage = 1e-6;
/// Steps of progress that a client is expected to make in a calm cluster.
constexpr uint64_t kProgressSteps = 10;

}  // namespace

Cluster::Cluster(const Plan& plan, World& world, Oracle& oracle)
    : plan_(plan), world_(world), oracle_(oracle), network_(network_options()), disk_(world), slots_(plan.roles()) {
  disk_.set_reserves(plan.log_takes_room);
  net::SimNetwork::install(&network_);
  world_.set_crash_hook([this](ProcessNumber process) { on_crash(process); });
  world_.set_pause_hook(
      [this](ProcessNumber process, std::string_view point) { return on_pause_point(process, point); });
  world_.set_rare_hook([this](std::string_view name) { return on_rare(name); });
}

net::SimNetworkOptions Cluster::network_options() {
  net::SimNetworkOptions options;
  options.seed = plan_.seed;
  options.max_delay_ns = plan_.max_delay_ns;
  options.max_end_delay_ns = plan_.max_end_delay_ns;
  options.now_ns = [this] { return world_.world_ns(); };
  options.on_arrival = [this](const std::string&, const void* transport, uint64_t at_ns) {
    world_.wake_at(transport, at_ns);
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
  return plan_.roles();  // the set-up's or the auditor's
}

// ---- starting and restarting ----------------------------------------------------------------------------------------

WorkloadShape Cluster::shape() const {
  WorkloadShape shape;
  shape.cuts_calls = true;
  shape.accounts = plan_.accounts;
  shape.hot_keys = plan_.hot_keys;
  shape.fibers = plan_.fibers;
  shape.think_ns = plan_.think_ns;
  shape.long_ns = plan_.long_ns;
  shape.late_inserts = plan_.late_inserts;
  shape.slow_scans = plan_.short_chunks;
  shape.toggles = plan_.toggles;
  shape.trees = plan_.trees;
  shape.indexes = plan_.indexes;
  // A commit manager that stands still forgives that time to everybody.
  const bool steady = std::ranges::none_of(plan_.faults, [](const Fault& fault) {
    return fault.role == 0 && (fault.kind == FaultKind::kCrash || fault.kind == FaultKind::kCrashAtPoint ||
                               fault.kind == FaultKind::kPause || fault.kind == FaultKind::kStallAtPoint ||
                               fault.kind == FaultKind::kSlow || fault.kind == FaultKind::kRare);
  });
  shape.older_folder =
      std::ranges::any_of(plan_.faults, [](const Fault& fault) { return fault.kind == FaultKind::kOlderFolder; });
  if (steady) shape.max_age_ns = plan_.max_transaction_age_ns;
  return shape;
}

void Cluster::start_servers() {
  for (Role role = 0; role <= plan_.nodes; ++role) start_role(role);
}

void Cluster::start_role(Role role) {
  Slot& slot = slots_[role];
  if (slot.process != 0 && world_.alive(slot.process)) return;
  if (plan_.is_client(role)) slot.number = ++client_numbers_;
  const ClockShape clock{plan_.clock_offset_ns[role], plan_.clock_ppm[role]};
  slot.process = world_.start(name(role), clock, [this, role, number = slot.number] {
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
  const uint64_t after_ns = calm_ ? kStartAgainNs : 1 + world_.random().below(2 * plan_.restart_after_ns);
  world_.at(world_.world_ns() + after_ns, [this, role] {
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
  options.core.closed_to_sweep = 1;
  options.sweep_interval_ns = kSweepNs;
  for (;;) {
    auto manager = commit::CommitManager::start(options);
    if (!manager.ok()) {
      world_.trace("the commit manager does not start: " + manager.status().to_string());
      sleep_ns(kStartAgainNs);
      continue;
    }
    for (;;) {
      sleep_ns(plan_.operator_ns);
      operate(**manager);
    }
  }
}

void Cluster::node_main(Role role) {
  storage::NodeOptions options;
  options.listen = address(role);
  options.admin_listen.clear();
  options.manager = address(0);
  // The plan speaks of what records and indexes have; three times as much is for queries.
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
      world_.trace("the node does not start: " + node.status().to_string());
      sleep_ns(kStartAgainNs);
      continue;
    }
    Slot& slot = slots_[role];
    // 0: the commit manager waits for other nodes first. The number is the one that this address has always had.
    if (const uint64_t id = node.value()->statistics().node; id != 0) slot.node_id = NodeId(id);
    slot.started_ns = world_.world_ns();
    slot.node = node.value().get();
    while (!ended) {
      sleep_ns(kLookNs);
      look_at_node(slot, **node);
      if (!slot.check_wanted) continue;
      slot.check_wanted = false;
      oracle_.node_checked(name(role), (*node)->check_invariants(), 0);
    }
    // Replaced by the commit manager: its supervisor starts it anew, with empty memory.
    lose(slot);
    node.value()->stop();
  }
}

void Cluster::look_at_node(Slot& slot, const storage::StorageNode& node) {
  const storage::NodeStatistics statistics = node.statistics();
  if (statistics.node != 0) slot.node_id = NodeId(statistics.node);
  slot.intents = statistics.intents;
  if (statistics.lease_holds) slot.leased_ns = world_.world_ns();
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
      world_.trace("no connection: " + client.status().to_string());
      sleep_ns(kStartAgainNs);
      continue;
    }
    run_workload({**client, oracle_, world_.random().fork(), number, [this] { return stopping_; }, shape(), &errands_});
    stay_idle(**client, number);
  }
  slots_[role].ended = true;
}

/// What the commit manager holds open for a session although its client has nothing open gets too old, and that ends
/// the session (R8).
void Cluster::stay_idle(client::Client& client, uint32_t number) {
  if (!calm_ || !all_threads_run()) return;
  const bool alive = client.run([&client] { return client.begin({.read_only = true, .retry = {}}).ok(); });
  if (!alive || oracle_.failed()) return;
  // A commit that its caller has left may go on for as long as a storage node's loss is not accepted.
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
  world_.start(process_name, {}, [this, process_name, body = std::move(body)] {
    client::ClientOptions options;
    options.name = process_name;
    options.fiber_stack_bytes = kFiberStackBytes;
    options.index_node_bytes = kIndexNodeBytes;
    options.connect_timeout_ns = kConnectTimeoutNs;
    for (;;) {
      auto client = client::Client::connect(address(0), options);
      if (client.ok()) return body(**client);
      world_.trace("no connection: " + client.status().to_string());
      sleep_ns(kStartAgainNs);
    }
  });
}

// ---- deaths, and the calm after the faults --------------------------------------------------------------------------

void Cluster::on_crash(ProcessNumber process) {
  const Role role = role_of(process);
  LOAM_CHECK(role < plan_.roles(), "only a role's process dies");
  Slot& slot = slots_[role];
  network_.kill(name(role));
  slot.armed.clear();
  lose(slot);
  if (role == 0) lose_manager();
  if (plan_.is_client(role)) oracle_.client_crashed(slot.number);
  restart_later(role);
}

void Cluster::lose(Slot& slot) {
  if (slot.node != nullptr) slot.losses.push_back(oracle_.node_lost(slot.node_id, shards_));
  slot.node = nullptr;
  slot.leased_ns = slot.intents = 0;
}

namespace {

/// Ids that a log does not know any more count as committed: nobody is told that they are aborted.
TransactionModel::Named names(const std::optional<commit::CommitLogContents>& log) {
  if (!log.has_value()) return [](TransactionId) { return false; };
  return [log = *log](TransactionId id) {
    if (id <= log.cut) return true;
    const auto after = std::ranges::upper_bound(log.committed, id, {}, &commit::IdRange::first);
    return after != log.committed.begin() && std::prev(after)->last >= id;
  };
}

}  // namespace

/// What its log holds is compared with what clients were told, before another process goes on with it.
void Cluster::lose_manager() {
  if (plan_.log_mode == commit::CommitLogMode::kNone || on_older_folder()) return;
  const TransactionModel::Named written = names(disk_.logged());
  oracle_.transactions().manager_died(written);
  if (!power_goes_ && (!plan_.power_cuts || !world_.random().one_in(2))) return;
  world_.trace("POWER CUT");
  Env::probe("sim.power_cut");
  disk_.cut_power();
  const std::optional<commit::CommitLogContents> left = disk_.logged();
  const uint64_t flushed = flushed_.empty() ? 0 : flushed_.back().commits;
  if ((left.has_value() ? left->end : 0) < flushed) {
    oracle_.violate("flushed-lost", "the commit manager took " + std::to_string(flushed) +
                                        " commits for flushed, and " +
                                        std::to_string(left.has_value() ? left->end : 0) + " are left");
  }
  oracle_.transactions().power_cut(written, names(left), plan_.log_mode == commit::CommitLogMode::kOs);
}

void Cluster::calm() {
  calm_ = true;
  network_.heal_all();
  for (const Fault& fault : plan_.faults) {
    if (fault.kind == FaultKind::kDelay) delay(fault, 0);
  }
  rare_until_ns_ = silent_until_ns_ = 0;
  disk_.calm();
  return_folder();
  for (Role role = 0; role < plan_.roles(); ++role) {
    Slot& slot = slots_[role];
    slot.armed.clear();
    world_.slow(slot.process, 1);
    if (!world_.alive(slot.process) && !slot.ended) start_role(role);
  }
  progress_at_calm_ = oracle_.statistics().progress;
}

void Cluster::check_structures() {
  outcomes_wanted_ = true;
  for (Role role = 1; role <= plan_.nodes; ++role) slots_[role].check_wanted = true;
}

bool Cluster::structures_checked() const {
  if (outcomes_wanted_) return false;
  for (Role role = 1; role <= plan_.nodes; ++role) {
    if (slots_[role].check_wanted) return false;
  }
  return true;
}

bool Cluster::intents_gone() const {
  return std::ranges::all_of(slots_, [](const Slot& slot) { return slot.intents == 0; });
}

void Cluster::judge_intents() {
  for (Role role = 1; role <= plan_.nodes; ++role) oracle_.node_checked(name(role), "", slots_[role].intents);
}

bool Cluster::progressed() const {
  return oracle_.statistics().progress >= progress_at_calm_ + kProgressSteps * plan_.clients;
}

bool Cluster::load_ended() const {
  for (Role role = plan_.nodes + 1; role < plan_.roles(); ++role) {
    if (!slots_[role].ended || world_.alive(slots_[role].process)) return false;
  }
  return true;
}

// ---- the operator ---------------------------------------------------------------------------------------------------

void Cluster::operate(commit::CommitManager& manager) {
  manager.post([this](commit::Core& core) {
    shards_ = core.catalog_for_recovery().shards;
    for (const commit::NodeStatus& node : core.nodes()) {
      if (node.memory_lost) accept_loss(core, node);
    }
    judge(core.statistics());
    if (on_older_folder() && core.ready()) {
      oracle_.violate("older-log-served", "the commit manager serves on an older folder, and nodes know it");
    }
    if (std::exchange(outcomes_wanted_, false)) check_outcomes(core);
  });
}

void Cluster::check_outcomes(const commit::Core& core) {
  const auto log = plan_.log_mode == commit::CommitLogMode::kNone ? std::nullopt : disk_.logged();
  const TransactionModel::Named on_disk = names(log);
  for (const TransactionId id : oracle_.transactions().ids()) {
    const wire::Outcome outcome = core.outcome(id);
    if (outcome == wire::Outcome::kPending) {
      oracle_.violate("quiet", "transaction " + std::to_string(id.value) + " is pending, says the commit manager");
    }
    if (outcome == wire::Outcome::kForgotten) continue;
    const bool committed = outcome == wire::Outcome::kCommitted;
    const bool known_on_disk = log.has_value() && id > log->cut;
    oracle_.transactions().decided(id, committed, known_on_disk ? on_disk(id) : committed);
  }
}

void Cluster::accept_loss(commit::Core& core, const commit::NodeStatus& node) {
  for (Role role = 1; role <= plan_.nodes; ++role) {
    Slot& slot = slots_[role];
    // Only what was lost before the process that runs now was started: the next death is another loss.
    if (slot.node == nullptr || slot.node_id != node.info.id || !world_.alive(slot.process)) continue;
    const bool at_once = calm_ || std::exchange(slot.hurried, false);
    if (!at_once && world_.world_ns() < slot.started_ns + plan_.accept_loss_after_ns) continue;
    for (const size_t loss : slot.losses) oracle_.loss_accepted(loss);
    core.accept_loss(node.info.id, [this, &slot, losses = slot.losses](const Status& status) {
      if (!status.ok()) return;  // another time
      for (const size_t loss : losses) {
        oracle_.loss_told(loss);
        std::erase(slot.losses, loss);
      }
    });
  }
}

void Cluster::judge(const commit::Statistics& now) {
  const uint64_t before = flushed_.empty() ? 0 : flushed_.back().commits;
  if (!on_older_folder() && now.log_flushed > before) flushed_.push_back({world_.world_ns(), now.log_flushed});
  const std::pair<const char*, uint64_t> rests[] = {
      {"open transactions", now.open},
      {"commits that are not on the disk", now.log_end - now.log_flushed},
      {"sessions to be fenced", now.sessions_fencing},
      {"sessions to be recovered", now.sessions_recovering},
      {"held snapshots", now.read_only_snapshots},
      {"lost nodes", now.nodes_lost},
      {"nodes that do not serve", now.nodes_dead},
      {"catalog changes under way", now.pending_changes},
      {"restart not over", now.restarting ? 1 : 0},
      {"sweep of the indexes", now.sweep_due ? 1 : 0},
  };
  unrest_.clear();
  for (const auto& [what, count] : rests) {
    if (count != 0) unrest_ += (unrest_.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  }
  quiet_ = unrest_.empty();
}

}  // namespace loam::sim
