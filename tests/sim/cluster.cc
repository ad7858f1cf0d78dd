#include "tests/sim/cluster.h"

#include <algorithm>
#include <utility>

#include "common/base/assert.h"
#include "common/base/thread.h"
#include "common/wire/system_tables.h"
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
/// A jitter lasts as long as a step of another thread, or as several messages.
constexpr uint64_t kShortestJitterNs = 1'000;
/// Where a client has all answers to its writes, and what a recoverer passes when it has taken some back.
constexpr std::string_view kBeforeMark = "client.commit.writes_applied";
constexpr std::string_view kReverted = "recoverer.reverted";
/// A recoverer tells the commit manager that it fails.
constexpr std::string_view kRecovererFails = "manager.recovery.recoverer_fails";
constexpr uint64_t kJitterScales = 9;
/// Steps of progress that a client is expected to make in a calm cluster.
constexpr uint64_t kProgressSteps = 10;

}  // namespace

Cluster::Cluster(const Plan& plan, World& world, Oracle& oracle)
    : plan_(plan), world_(world), oracle_(oracle), network_(network_options()), disk_(world), slots_(plan.roles()) {
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
  shape.trees = plan_.trees;
  shape.indexes = plan_.indexes;
  // A commit manager that stands still forgives that time to everybody.
  const bool steady = std::ranges::none_of(plan_.faults, [](const Fault& fault) {
    return fault.role == 0 && (fault.kind == FaultKind::kCrash || fault.kind == FaultKind::kCrashAtPoint ||
                               fault.kind == FaultKind::kPause || fault.kind == FaultKind::kStallAtPoint ||
                               fault.kind == FaultKind::kSlow || fault.kind == FaultKind::kRare);
  });
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
  options.store = &disk_;
  options.core.initial_nodes = plan_.nodes;
  options.core.client_lease_ns = plan_.client_lease_ns;
  options.core.node_lease_ns = plan_.node_lease_ns;
  options.core.max_transaction_age_ns = plan_.max_transaction_age_ns;
  options.core.publish_interval_ns = plan_.publish_interval_ns;
  options.core.ids_ahead = plan_.ids_ahead;
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
      if (slot.node_id.value == 0) slot.node_id = NodeId((*node)->statistics().node);
      if (!slot.check_wanted) continue;
      slot.check_wanted = false;
      uint64_t undo_records = 0;
      for (const storage::TableStatistics& table : (*node)->statistics().tables) {
        if (table.table == wire::kTransactionTableId.value) undo_records = table.keys;
      }
      oracle_.node_checked(name(role), (*node)->check_invariants(), undo_records);
    }
    // Replaced by the commit manager: its supervisor starts it anew, with empty memory.
    lose(slot);
    node.value()->stop();
  }
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
    run_workload({**client, oracle_, world_.random().fork(), number, [this] { return stopping_; }, shape()});
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

// ---- the load and its faults ----------------------------------------------------------------------------------------

void Cluster::start_load(const std::vector<size_t>& without) {
  for (Role role = plan_.nodes + 1; role < plan_.roles(); ++role) start_role(role);
  faulty_ = true;
  const uint64_t begin_ns = world_.world_ns();
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    if (std::ranges::find(without, i) != without.end()) continue;
    world_.at(begin_ns + plan_.faults[i].at_ns, [this, i] {
      if (!calm_) carry_out(plan_.faults[i]);
    });
  }
}

void Cluster::carry_out(const Fault& fault) {
  ++faults_done_;
  if (world_.traces()) world_.trace("FAULT " + describe(fault, plan_.nodes));
  Slot& slot = slots_[fault.role];
  const uint64_t until_ns = world_.world_ns() + fault.for_ns;
  switch (fault.kind) {
    case FaultKind::kCrash:
      world_.crash(slot.process);
      break;
    case FaultKind::kCrashAtPoint:
      slot.armed.push_back({fault.amount, true, 0, nullptr});
      break;
    case FaultKind::kStallAtPoint:
      slot.armed.push_back({fault.amount, false, fault.for_ns, nullptr});
      break;
    case FaultKind::kTrap:
      slot.armed.push_back({fault.amount, false, fault.for_ns, &fault});
      break;
    case FaultKind::kJitter:
      slot.jitter_until_ns = until_ns;
      slot.jitter_one_in = fault.amount;
      break;
    case FaultKind::kPause:
      stalled_until_ns_ = std::max(stalled_until_ns_, until_ns);
      world_.pause(slot.process, until_ns);
      break;
    case FaultKind::kSlow:
      world_.slow(slot.process, fault.amount);
      world_.at(until_ns, [this, process = slot.process] { world_.slow(process, 1); });
      break;
    case FaultKind::kCut:
      cut(fault, true);
      break;
    case FaultKind::kCutOneWay:
      cut(fault, false);
      break;
    case FaultKind::kReset:
      for (uint64_t i = 0; i < fault.amount; ++i) {
        world_.at(world_.world_ns() + fault.for_ns * i / fault.amount, [this, fault] {
          if (!calm_) network_.reset(name(fault.role), name(fault.peer));
        });
      }
      break;
    case FaultKind::kDelay:
      delay(fault, fault.amount);
      world_.at(until_ns, [this, fault] { delay(fault, 0); });
      break;
    case FaultKind::kRare:
      rare_one_in_ = fault.amount;
      rare_until_ns_ = until_ns;
      break;
    case FaultKind::kLateMark:
      slot.armed.push_back({1, false, fault.for_ns, nullptr, kBeforeMark});
      break;
    case FaultKind::kComeback:
      come_back(fault);
      break;
  }
}

void Cluster::cut(const Fault& fault, bool both) {
  const std::string a = name(fault.role);
  const std::string b = name(fault.peer);
  network_.cut_one_way(a, b);
  if (both) network_.cut_one_way(b, a);
  world_.at(world_.world_ns() + fault.for_ns, [this, a, b] { network_.heal(a, b); });
}

void Cluster::delay(const Fault& fault, uint64_t ns) {
  network_.set_extra_delay(name(fault.role), name(fault.peer), ns);
  network_.set_extra_delay(name(fault.peer), name(fault.role), ns);
}

void Cluster::on_crash(ProcessNumber process) {
  const Role role = role_of(process);
  LOAM_CHECK(role < plan_.roles(), "only a role's process dies");
  Slot& slot = slots_[role];
  network_.kill(name(role));
  slot.armed.clear();
  lose(slot);
  if (plan_.is_client(role)) oracle_.client_crashed(slot.number);
  restart_later(role);
}

void Cluster::lose(Slot& slot) {
  if (slot.node != nullptr) slot.losses.push_back(oracle_.node_lost(slot.node_id, shards_));
  slot.node = nullptr;
}

/// The recoverer stands still until the mark has come, and then the commit manager dies: the next one finds it.
PauseDecision Cluster::die_with_the_mark() {
  const uint64_t crash_ns = std::exchange(late_mark_ns_, 0) + 2 * (kMs + plan_.max_delay_ns);
  world_.at(crash_ns, [this, process = slots_[0].process] {
    if (!calm_) world_.crash(process);
  });
  const PauseDecision decision = stall(2 * (crash_ns - world_.world_ns()));
  recoverer_stalled_until_ns_ = stalled_until_ns_;
  return decision;
}

/// One client dies, or (the peer is the commit manager) all do, while that is cut off from the node.
void Cluster::spring(const Fault& trap) {
  if (calm_) return;
  const bool all = trap.peer == 0;
  for (Role role = plan_.nodes + 1; role < plan_.roles(); ++role) {
    if (all || role == trap.peer) world_.crash(slots_[role].process);
  }
  if (!all) return;
  Fault away = trap;
  away.for_ns = trap.for_ns / 2;
  cut(away, true);
}

/// What the client asks of the node from now on is done, and not answered; others see it. Then the node loses it with
/// all else, and is another incarnation before the client can know, whose connections wait for the end of the cut.
void Cluster::come_back(const Fault& fault) {
  const std::string node = name(fault.role);
  const std::string client = name(fault.peer);
  network_.cut_one_way(node, client);
  world_.at(world_.world_ns() + fault.amount, [this, fault, node, client] {
    if (calm_) return;
    network_.cut(client, name(0));
    network_.cut(client, node);
    network_.reset(node, client);
    world_.crash(slots_[fault.role].process);
    slots_[fault.role].hurried = true;
    start_role(fault.role);
  });
  world_.at(world_.world_ns() + fault.for_ns, [this, node, client] { network_.heal(node, client); });
  // The client's question for the catalog is slower than its first words to the node.
  const uint64_t later_ns = fault.for_ns + 4 * (kMs + plan_.max_delay_ns);
  world_.at(world_.world_ns() + later_ns, [this, client] { network_.heal(client, name(0)); });
}

PauseDecision Cluster::stall(uint64_t ns) {
  // Clocks of processes drift by some hundredths.
  stalled_until_ns_ = std::max(stalled_until_ns_, world_.world_ns() + ns + ns / 8);
  return {PauseDecision::Kind::kStall, ns};
}

bool Cluster::on_rare(std::string_view name) {
  if (world_.world_ns() >= rare_until_ns_ || !world_.random().one_in(rare_one_in_)) return false;
  // One that stands still says nothing. The commit manager, which takes its word for its end, would wait for it.
  return name != kRecovererFails || world_.world_ns() >= recoverer_stalled_until_ns_;
}

PauseDecision Cluster::on_pause_point(ProcessNumber process, std::string_view point) {
  if (!faulty_ || calm_) return {};
  const Role role = role_of(process);
  if (role == plan_.roles()) return {};
  if (point == kReverted && world_.world_ns() < late_mark_ns_) return die_with_the_mark();
  std::vector<Slot::Armed>& armed = slots_[role].armed;
  for (size_t i = 0; i < armed.size(); ++i) {
    if (!armed[i].point.empty() && armed[i].point != point) continue;
    if (armed[i].countdown-- > 1) continue;
    const Slot::Armed due = armed[i];
    armed.erase(armed.begin() + static_cast<std::ptrdiff_t>(i));
    if (due.crash) return {PauseDecision::Kind::kCrash, 0};
    if (due.point == kBeforeMark) {
      // By the slowest clock.
      late_mark_ns_ = std::max(late_mark_ns_, world_.world_ns() + due.stall_ns + due.stall_ns / 16);
    } else if (due.trap != nullptr) {
      world_.at(world_.world_ns(), [this, due] { spring(*due.trap); });
    }
    return stall(due.stall_ns);
  }
  const Slot& slot = slots_[role];
  if (world_.world_ns() < slot.jitter_until_ns && world_.random().one_in(slot.jitter_one_in)) {
    return stall(kShortestJitterNs << world_.random().below(kJitterScales));
  }
  return {};
}

void Cluster::calm() {
  calm_ = true;
  network_.heal_all();
  for (const Fault& fault : plan_.faults) {
    if (fault.kind == FaultKind::kDelay) delay(fault, 0);
  }
  rare_until_ns_ = 0;
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
    if (!std::exchange(outcomes_wanted_, false)) return;
    for (const TransactionId id : oracle_.transactions().asked_ids()) {
      if (const auto committed = core.outcome(id); committed.has_value()) {
        oracle_.transactions().recovered(id, *committed);
      }
    }
  });
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
  const std::pair<const char*, uint64_t> rests[] = {
      {"open transactions", now.open},
      {"undo records not cleared", now.uncleared},
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
