// How the simulated cluster carries out the faults of its plan, at their times and at pause points.
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

/// A jitter lasts as long as a step of another thread, or as several messages.
constexpr uint64_t kShortestJitterNs = 1'000;
constexpr uint64_t kJitterScales = 9;
/// Where a client has all answers to its writes; and with indexes, to those of its index changes.
constexpr std::string_view kWritesApplied = "client.commit.writes_applied";
constexpr std::string_view kIndexed = "client.commit.indexed";
/// What a recoverer passes while it undoes something.
constexpr std::string_view kRecoverer = "recoverer.";
constexpr uint64_t kRecovererStandsIn = 3;
/// A recoverer tells the commit manager that it fails.
constexpr std::string_view kRecovererFails = "manager.recovery.recoverer_fails";
/// What a step of a client takes, generously.
constexpr uint64_t kSoonNs = 100'000;
/// A client begins to send its writes.
constexpr std::string_view kCommitBegun = "client.commit.begun";
/// How many times the second thread of a meeting passes its point, at most, before it stands still.
constexpr uint64_t kMeetingPasses = 3;

}  // namespace

void Cluster::start_load(const std::vector<size_t>& without) {
  for (Role role = plan_.nodes + 1; role < plan_.roles(); ++role) start_role(role);
  faulty_ = true;
  const uint64_t begin_ns = world_.world_ns();
  for (size_t i = 0; i < plan_.faults.size(); ++i) {
    if (std::ranges::find(without, i) != without.end()) continue;
    const Fault& fault = plan_.faults[i];
    if (fault.kind == FaultKind::kOlderFolder) {
      world_.at(begin_ns + fault.at_ns - fault.amount, [this] {
        if (!on_older_folder()) older_folder_ = disk_.copy();
      });
    }
    world_.at(begin_ns + fault.at_ns, [this, i] {
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
      if (!plan_.is_node(fault.role) || !on_older_folder()) world_.crash(slot.process);
      break;
    case FaultKind::kCrashAtPoint:
      slot.armed.push_back({fault.amount, true, 0, nullptr});
      break;
    case FaultKind::kStallAtPoint:
      slot.armed.push_back({fault.amount, false, fault.for_ns, nullptr});
      break;
    case FaultKind::kTrap:
      set_trap(fault);
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
    case FaultKind::kCutOneWay:
      cut(fault, fault.kind == FaultKind::kCut);
      break;
    case FaultKind::kReset:
      reset(fault);
      break;
    case FaultKind::kDelay:
      delay(fault, fault.amount);
      world_.at(until_ns, [this, fault] { delay(fault, 0); });
      break;
    case FaultKind::kRare:
      rare_one_in_ = fault.amount;
      rare_until_ns_ = until_ns;
      break;
    case FaultKind::kComeback:
      come_back(fault);
      break;
    case FaultKind::kAtComplete:
      slot.armed.push_back({1, false, fault.for_ns, &fault, fault.at_ns % 2 == 0 ? kWritesApplied : kIndexed});
      break;
    case FaultKind::kManagerAtCommit:
      slot.armed.push_back({1, true, 0, nullptr, kCommitPoints[fault.amount]});
      break;
    case FaultKind::kStallLog:
    case FaultKind::kFullLog:
      hinder_log(fault);
      break;
    case FaultKind::kBehind:
      network_.cut_one_way(name(0), name(fault.role));
      world_.at(until_ns, [this, fault] { network_.heal(name(0), name(fault.role)); });
      break;
    case FaultKind::kOlderFolder:
      adopt_older_folder(fault);
      break;
    default:
      carry_out_meeting(fault);
      break;
  }
}

/// Half of the traps for one client wait until that sends its writes.
void Cluster::set_trap(const Fault& trap) {
  if (plan_.is_client(trap.peer) && trap.at_ns % 2 == 0) {
    slots_[trap.peer].armed.push_back({1, false, 0, &trap, kCommitBegun});
  } else {
    slots_[trap.role].armed.push_back({trap.amount, false, trap.for_ns, &trap});
  }
}

void Cluster::reset(const Fault& fault) {
  for (uint64_t i = 0; i < fault.amount; ++i) {
    world_.at(world_.world_ns() + fault.for_ns * i / fault.amount, [this, fault] {
      if (!calm_) network_.reset(name(fault.role), name(fault.peer));
    });
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

/// A node that holds a lease has been answered by the commit manager within the length of that, and each answer names
/// the commits that are flushed.
uint64_t Cluster::told_commits() const {
  uint64_t told = 0;
  for (Role role = 1; role <= plan_.nodes; ++role) {
    const Slot& slot = slots_[role];
    const uint64_t lease_ns = plan_.node_lease_ns + plan_.node_lease_ns / 8;
    if (slot.node == nullptr || slot.leased_ns < lease_ns) continue;
    for (const Flushed& flushed : flushed_) {
      if (flushed.since_ns < slot.leased_ns - lease_ns) told = std::max(told, flushed.commits);
    }
  }
  return told;
}

/// Somebody starts the commit manager on a copy of its folder. Nodes that were told more than that one knows must not
/// serve under it, and nobody is harmed when the right folder is back.
void Cluster::adopt_older_folder(const Fault& fault) {
  if (!older_folder_.has_value() || on_older_folder() || !world_.alive(slots_[0].process)) return;
  const std::optional<commit::CommitLogContents> older = SimDisk::logged(*older_folder_);
  if (!older.has_value() || older->end >= told_commits()) return;  // as good as any
  Env::probe("sim.older_folder");
  world_.crash(slots_[0].process);
  right_folder_ = disk_.copy();
  SimDisk::Copy found = *older_folder_;
  // Only the log comes from a backup: then nothing but its end tells.
  if (fault.at_ns % 2 == 0) found.state = right_folder_->state;
  disk_.adopt(found);
  world_.at(world_.world_ns() + fault.for_ns, [this] { return_folder(); });
}

void Cluster::return_folder() {
  if (!on_older_folder()) return;
  world_.trace("the right folder is back");
  if (world_.alive(slots_[0].process)) world_.crash(slots_[0].process);
  disk_.adopt(*right_folder_);
  right_folder_.reset();
}

/// The recoverer stands still until the Complete has come, and then the commit manager dies: the next one goes by its
/// log.
PauseDecision Cluster::die_with_the_complete() {
  const uint64_t crash_ns = std::exchange(late_complete_ns_, 0) + 2 * (kHandlingNs + plan_.max_delay_ns);
  world_.at(crash_ns, [this, process = slots_[0].process] {
    if (!calm_) world_.crash(process);
  });
  const PauseDecision decision = stall(2 * (crash_ns - world_.world_ns()));
  recoverer_stalled_until_ns_ = stalled_until_ns_;
  return decision;
}

/// The client's thread is about to complete a commit.
PauseDecision Cluster::at_complete(const Fault& fault) {
  const ProcessNumber process = slots_[fault.role].process;
  const uint64_t soon_ns = world_.world_ns() + 1 + world_.random().below(kSoonNs + 2 * plan_.max_delay_ns);
  const auto soon = [&](std::function<void()> action) {
    world_.at(soon_ns, [this, action = std::move(action)] {
      if (!calm_) action();
    });
  };
  switch (static_cast<AtComplete>(fault.amount)) {
    case AtComplete::kDieBefore:
      return {PauseDecision::Kind::kCrash, 0};
    case AtComplete::kStandBefore:
      // By the slowest clock.
      late_complete_ns_ = std::max(late_complete_ns_, world_.world_ns() + fault.for_ns + fault.for_ns / 16);
      return stall(fault.for_ns);
    case AtComplete::kDieAfter:
      soon([this, process] { world_.crash(process); });
      break;
    case AtComplete::kStandAfter:
      soon([this, process, ns = fault.for_ns] {
        stalled_until_ns_ = std::max(stalled_until_ns_, world_.world_ns() + ns);
        world_.pause(process, world_.world_ns() + ns);
      });
      break;
    case AtComplete::kLoseAnswer:
      network_.cut_one_way(name(0), name(fault.role));
      world_.at(world_.world_ns() + fault.for_ns, [this, role = fault.role] {
        network_.reset(name(0), name(role));
        network_.heal(name(0), name(role));
      });
      break;
    case AtComplete::kManagerDies:
      soon([this] { world_.crash(slots_[0].process); });
      break;
  }
  return {};
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
    if (calm_ || on_older_folder()) return;
    network_.cut(client, name(0));
    network_.cut(client, node);
    network_.reset(node, client);
    world_.crash(slots_[fault.role].process);
    slots_[fault.role].hurried = true;
    start_role(fault.role);
  });
  world_.at(world_.world_ns() + fault.for_ns, [this, node, client] { network_.heal(node, client); });
  // The client's question for the catalog is slower than its first words to the node.
  const uint64_t later_ns = fault.for_ns + 4 * (kHandlingNs + plan_.max_delay_ns);
  world_.at(world_.world_ns() + later_ns, [this, client] { network_.heal(client, name(0)); });
}

PauseDecision Cluster::stall(uint64_t ns) {
  // Clocks of processes drift by some hundredths.
  stalled_until_ns_ = std::max(stalled_until_ns_, world_.world_ns() + ns + ns / 8);
  return {PauseDecision::Kind::kStall, ns};
}

bool Cluster::on_rare(std::string_view name) {
  if (plan_.short_chunks && name == "node.scan.short_chunks") return true;
  if (name == "manager.publication.full_queue" && world_.world_ns() < silent_until_ns_) return true;
  if (world_.world_ns() >= rare_until_ns_ || !world_.random().one_in(rare_one_in_)) return false;
  // One that stands still says nothing. The commit manager, which takes its word for its end, would wait for it.
  return name != kRecovererFails || world_.world_ns() >= recoverer_stalled_until_ns_;
}

PauseDecision Cluster::on_pause_point(ProcessNumber process, std::string_view point) {
  if (!faulty_ || calm_) return {};
  const Role role = role_of(process);
  if (role == plan_.roles()) return {};
  if (world_.world_ns() < late_complete_ns_ && point.starts_with(kRecoverer) &&
      world_.random().one_in(kRecovererStandsIn)) {
    return die_with_the_complete();
  }
  cut_power_of_a_build(point);
  if (const std::optional<PauseDecision> held = hold(point)) return *held;
  std::vector<Slot::Armed>& armed = slots_[role].armed;
  for (size_t i = 0; i < armed.size(); ++i) {
    if (!armed[i].point.empty() && armed[i].point != point) continue;
    if (armed[i].countdown-- > 1) continue;
    const Slot::Armed due = armed[i];
    armed.erase(armed.begin() + static_cast<std::ptrdiff_t>(i));
    if (due.crash && plan_.is_node(role) && on_older_folder()) return {};  // it must remember what it was told
    if (due.crash) return {PauseDecision::Kind::kCrash, 0};
    if (due.fault != nullptr) return meet(role, due);
    if (!due.then.empty()) {
      const uint64_t longer_ns = due.stall_ns + world_.random().between(10'000, 3'000'000);
      armed.push_back({1 + world_.random().below(kMeetingPasses), false, longer_ns, nullptr, due.then});
    }
    return stall(due.stall_ns);
  }
  const Slot& slot = slots_[role];
  if (world_.world_ns() < slot.jitter_until_ns && world_.random().one_in(slot.jitter_one_in)) {
    return stall(kShortestJitterNs << world_.random().below(kJitterScales));
  }
  return {};
}

}  // namespace loam::sim
