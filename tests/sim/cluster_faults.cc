// Carries out the faults of a plan, at their times and at pause points.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/env.h"
#include "tests/sim/cluster.h"

namespace loam::sim {
namespace {

/// A jitter lasts between a step of another thread and several messages.
constexpr uint64_t kMinJitterNs = 1'000;
constexpr uint64_t kJitterScales = 9;
/// The pause point at which a client has received all replies to its writes and its index changes.
constexpr std::string_view kWritesApplied = "client.commit.writes_applied";
constexpr std::string_view kIndexed = "client.commit.indexed";
/// Prefix of the pause points that a recoverer passes while it undoes writes.
constexpr std::string_view kRecoverer = "recoverer.";
constexpr uint64_t kRecovererStandsIn = 3;
/// The rare branch in which a recoverer reports a failure to the commit manager.
constexpr std::string_view kRecovererFails = "manager.recovery.recoverer_fails";
/// Upper estimate of the time of one step of a client.
constexpr uint64_t kSoonNs = 100'000;
/// The pause point at which a client begins to send its writes.
constexpr std::string_view kCommitBegun = "client.commit.begun";
/// The second thread of an interleaving passes its point at most this many times before it stands still.
constexpr uint64_t kInterleavingPasses = 3;

}  // namespace

void Cluster::start_load(const std::vector<size_t>& without) {
  for (Role role = plan_.nodes + 1; role < plan_.roles(); ++role) start_role(role);
  faults_started_ = true;
  const uint64_t begin_ns = simulator_.virtual_now_ns();
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    if (std::ranges::find(without, i) != without.end()) continue;
    const Fault& fault = plan_.faults[i];
    if (fault.kind == FaultKind::kStaleManagerState) {
      simulator_.at(begin_ns + fault.at_ns - fault.amount, [this] {
        if (!on_stale_copy()) stale_copy_ = disk_.copy();
      });
    }
    simulator_.at(begin_ns + fault.at_ns, [this, i] {
      if (!faults_ended_) inject(plan_.faults[i]);
    });
  }
}

void Cluster::inject(const Fault& fault) {
  ++faults_done_;
  if (simulator_.traces()) simulator_.trace("FAULT " + describe(fault, plan_.nodes));
  RoleState& slot = slots_[fault.role];
  const uint64_t until_ns = simulator_.virtual_now_ns() + fault.for_ns;
  switch (fault.kind) {
    case FaultKind::kCrash:
      if (!plan_.is_node(fault.role) || !on_stale_copy()) simulator_.crash(slot.process);
      break;
    case FaultKind::kCrashAtPoint:
      slot.armed.push_back({fault.amount, true, 0, nullptr});
      break;
    case FaultKind::kStallAtPoint:
      slot.armed.push_back({fault.amount, false, fault.for_ns, nullptr});
      break;
    case FaultKind::kStallAndKillClients:
      arm_trap(fault);
      break;
    case FaultKind::kJitter:
      slot.jitter_until_ns = until_ns;
      slot.jitter_one_in = fault.amount;
      break;
    case FaultKind::kPause:
      stalled_until_ns_ = std::max(stalled_until_ns_, until_ns);
      simulator_.pause(slot.process, until_ns);
      break;
    case FaultKind::kSlow:
      simulator_.slow(slot.process, fault.amount);
      simulator_.at(until_ns, [this, process = slot.process] { simulator_.slow(process, 1); });
      break;
    case FaultKind::kPartition:
    case FaultKind::kPartitionOneWay:
      partition(fault, fault.kind == FaultKind::kPartition);
      break;
    case FaultKind::kReset:
      reset(fault);
      break;
    case FaultKind::kDelay:
      delay(fault, fault.amount);
      simulator_.at(until_ns, [this, fault] { delay(fault, 0); });
      break;
    case FaultKind::kRare:
      rare_one_in_ = fault.amount;
      rare_until_ns_ = until_ns;
      break;
    case FaultKind::kUnnoticedRestart:
      restart_unnoticed(fault);
      break;
    case FaultKind::kAtComplete:
      slot.armed.push_back({1, false, fault.for_ns, &fault, fault.at_ns % 2 == 0 ? kWritesApplied : kIndexed});
      break;
    case FaultKind::kCrashManagerAtCommit:
      slot.armed.push_back({1, true, 0, nullptr, kCommitPoints[fault.amount]});
      break;
    case FaultKind::kStallLog:
    case FaultKind::kFullLog:
      inject_log_fault(fault);
      break;
    case FaultKind::kNodeCutFromManager:
      network_.cut_one_way(name(0), name(fault.role));
      simulator_.at(until_ns, [this, fault] { network_.heal(name(0), name(fault.role)); });
      break;
    case FaultKind::kStaleManagerState:
      restore_stale_copy(fault);
      break;
    default:
      inject_correlated(fault);
      break;
  }
}

/// Half of the traps for one client wait until the client sends its writes.
void Cluster::arm_trap(const Fault& trap) {
  if (plan_.is_client(trap.peer) && trap.at_ns % 2 == 0) {
    slots_[trap.peer].armed.push_back({1, false, 0, &trap, kCommitBegun});
  } else {
    slots_[trap.role].armed.push_back({trap.amount, false, trap.for_ns, &trap});
  }
}

void Cluster::reset(const Fault& fault) {
  for (uint64_t i = 0; i < fault.amount; ++i) {
    simulator_.at(simulator_.virtual_now_ns() + fault.for_ns * i / fault.amount, [this, fault] {
      if (!faults_ended_) network_.reset(name(fault.role), name(fault.peer));
    });
  }
}

void Cluster::partition(const Fault& fault, bool both) {
  const std::string a = name(fault.role);
  const std::string b = name(fault.peer);
  network_.cut_one_way(a, b);
  if (both) network_.cut_one_way(b, a);
  simulator_.at(simulator_.virtual_now_ns() + fault.for_ns, [this, a, b] { network_.heal(a, b); });
}

void Cluster::delay(const Fault& fault, uint64_t ns) {
  network_.set_extra_delay(name(fault.role), name(fault.peer), ns);
  network_.set_extra_delay(name(fault.peer), name(fault.role), ns);
}

/// A node that holds a lease has received a reply of the commit manager within the last lease, and each reply names
/// the commits that are flushed.
uint64_t Cluster::announced_flushed_commits() const {
  uint64_t flushed_commits = 0;
  for (Role role = 1; role <= plan_.nodes; ++role) {
    const RoleState& slot = slots_[role];
    const uint64_t lease_ns = plan_.node_lease_ns + plan_.node_lease_ns / 8;
    if (slot.node == nullptr || slot.leased_ns < lease_ns) continue;
    for (const Flushed& flushed : flushed_) {
      if (flushed.since_ns < slot.leased_ns - lease_ns) flushed_commits = std::max(flushed_commits, flushed.commits);
    }
  }
  return flushed_commits;
}

/// Restarts the commit manager on an older copy of its folder. Nodes that know of more commits must not serve under
/// that commit manager, and must not have lost anything when the current folder is back.
void Cluster::restore_stale_copy(const Fault& fault) {
  if (!stale_copy_.has_value() || on_stale_copy() || !simulator_.alive(slots_[0].process)) return;
  const std::optional<commit::CommitLogContents> older = SimDisk::logged(*stale_copy_);
  // the copy lacks no commit that a node knows of
  if (!older.has_value() || older->end >= announced_flushed_commits()) return;
  Env::probe("sim.older_folder");
  simulator_.crash(slots_[0].process);
  current_copy_ = disk_.copy();
  SimDisk::Copy found = *stale_copy_;
  // Half of the copies have only an old log: then nodes can detect the copy by the end of the log alone.
  if (fault.at_ns % 2 == 0) found.state = current_copy_->state;
  disk_.adopt(found);
  simulator_.at(simulator_.virtual_now_ns() + fault.for_ns, [this] { restore_current_copy(); });
}

void Cluster::restore_current_copy() {
  if (!on_stale_copy()) return;
  simulator_.trace("the current folder is back");
  if (simulator_.alive(slots_[0].process)) simulator_.crash(slots_[0].process);
  disk_.adopt(*current_copy_);
  current_copy_.reset();
}

/// Holds the recoverer until the Complete has arrived; then the commit manager dies, and the next one decides the
/// outcome from its log.
PauseDecision Cluster::crash_after_complete() {
  const uint64_t crash_ns = std::exchange(late_complete_ns_, 0) + 2 * (kHandlingNs + plan_.max_delay_ns);
  simulator_.at(crash_ns, [this, process = slots_[0].process] {
    if (!faults_ended_) simulator_.crash(process);
  });
  const PauseDecision decision = stall(2 * (crash_ns - simulator_.virtual_now_ns()));
  recoverer_stalled_until_ns_ = stalled_until_ns_;
  return decision;
}

/// Called when the client's thread is about to complete a commit.
PauseDecision Cluster::at_complete(const Fault& fault) {
  const ProcessNumber process = slots_[fault.role].process;
  const uint64_t soon_ns =
      simulator_.virtual_now_ns() + 1 + simulator_.random().below(kSoonNs + 2 * plan_.max_delay_ns);
  const auto soon = [&](std::function<void()> action) {
    simulator_.at(soon_ns, [this, action = std::move(action)] {
      if (!faults_ended_) action();
    });
  };
  switch (static_cast<AtComplete>(fault.amount)) {
    case AtComplete::kDieBefore:
      return {PauseDecision::Kind::kCrash, 0};
    case AtComplete::kStallBefore:
      // The margin covers the slowest clock.
      late_complete_ns_ = std::max(late_complete_ns_, simulator_.virtual_now_ns() + fault.for_ns + fault.for_ns / 16);
      return stall(fault.for_ns);
    case AtComplete::kDieAfter:
      soon([this, process] { simulator_.crash(process); });
      break;
    case AtComplete::kStallAfter:
      soon([this, process, ns = fault.for_ns] {
        stalled_until_ns_ = std::max(stalled_until_ns_, simulator_.virtual_now_ns() + ns);
        simulator_.pause(process, simulator_.virtual_now_ns() + ns);
      });
      break;
    case AtComplete::kDropResponse:
      network_.cut_one_way(name(0), name(fault.role));
      simulator_.at(simulator_.virtual_now_ns() + fault.for_ns, [this, role = fault.role] {
        network_.reset(name(0), name(role));
        network_.heal(name(0), name(role));
      });
      break;
    case AtComplete::kManagerDies:
      soon([this] { simulator_.crash(slots_[0].process); });
      break;
  }
  return {};
}

/// Kills one client, or all clients if the peer is the commit manager, while they are cut off from the node.
void Cluster::kill_clients(const Fault& trap) {
  if (faults_ended_) return;
  const bool all = trap.peer == 0;
  for (Role role = plan_.nodes + 1; role < plan_.roles(); ++role) {
    if (all || role == trap.peer) simulator_.crash(slots_[role].process);
  }
  if (!all) return;
  Fault away = trap;
  away.for_ns = trap.for_ns / 2;
  partition(away, true);
}

/// From now on the node executes the client's requests, and the replies are lost; other clients see the effects. Then
/// the node dies with its records and returns as another incarnation before the client can know of it, because the
/// client's connections wait for the end of the partition.
void Cluster::restart_unnoticed(const Fault& fault) {
  const std::string node = name(fault.role);
  const std::string client = name(fault.peer);
  network_.cut_one_way(node, client);
  simulator_.at(simulator_.virtual_now_ns() + fault.amount, [this, fault, node, client] {
    if (faults_ended_ || on_stale_copy()) return;
    network_.cut(client, name(0));
    network_.cut(client, node);
    network_.reset(node, client);
    simulator_.crash(slots_[fault.role].process);
    slots_[fault.role].accept_loss_at_once = true;
    start_role(fault.role);
  });
  simulator_.at(simulator_.virtual_now_ns() + fault.for_ns, [this, node, client] { network_.heal(node, client); });
  // The client's request for the catalog takes longer than its first messages to the node.
  const uint64_t later_ns = fault.for_ns + 4 * (kHandlingNs + plan_.max_delay_ns);
  simulator_.at(simulator_.virtual_now_ns() + later_ns, [this, client] { network_.heal(client, name(0)); });
}

PauseDecision Cluster::stall(uint64_t ns) {
  // The margin covers the drift of the processes' clocks, which is a few percent.
  stalled_until_ns_ = std::max(stalled_until_ns_, simulator_.virtual_now_ns() + ns + ns / 8);
  return {PauseDecision::Kind::kStall, ns};
}

bool Cluster::on_rare(std::string_view name) {
  if (plan_.short_chunks && name == "node.scan.short_chunks") return true;
  if (name == "manager.publication.full_queue" && simulator_.virtual_now_ns() < no_publications_until_ns_) return true;
  if (simulator_.virtual_now_ns() >= rare_until_ns_ || !simulator_.random().one_in(rare_one_in_)) return false;
  // A recoverer that stands still sends nothing, so it must not report its failure meanwhile: the commit manager
  // takes that report as the end of its work.
  return name != kRecovererFails || simulator_.virtual_now_ns() >= recoverer_stalled_until_ns_;
}

PauseDecision Cluster::on_pause_point(ProcessNumber process, std::string_view point) {
  if (!faults_started_ || faults_ended_) return {};
  const Role role = role_of(process);
  if (role == plan_.roles()) return {};
  if (simulator_.virtual_now_ns() < late_complete_ns_ && point.starts_with(kRecoverer) &&
      simulator_.random().one_in(kRecovererStandsIn)) {
    return crash_after_complete();
  }
  cut_power_during_index_build(point);
  if (const std::optional<PauseDecision> held = hold(point)) return *held;
  std::vector<RoleState::ArmedFault>& armed = slots_[role].armed;
  for (size_t i = 0; i < armed.size(); ++i) {
    if (!armed[i].point.empty() && armed[i].point != point) continue;
    if (armed[i].countdown-- > 1) continue;
    const RoleState::ArmedFault due = armed[i];
    armed.erase(armed.begin() + static_cast<std::ptrdiff_t>(i));
    // the node must keep its memory of the announced commits
    if (due.crash && plan_.is_node(role) && on_stale_copy()) return {};
    if (due.crash) return {PauseDecision::Kind::kCrash, 0};
    if (due.fault != nullptr) return fire(role, due);
    if (!due.then.empty()) {
      const uint64_t longer_ns = due.stall_ns + simulator_.random().between(10'000, 3'000'000);
      armed.push_back({1 + simulator_.random().below(kInterleavingPasses), false, longer_ns, nullptr, due.then});
    }
    return stall(due.stall_ns);
  }
  const RoleState& slot = slots_[role];
  if (simulator_.virtual_now_ns() < slot.jitter_until_ns && simulator_.random().one_in(slot.jitter_one_in)) {
    return stall(kMinJitterNs << simulator_.random().below(kJitterScales));
  }
  return {};
}

}  // namespace loam::sim
