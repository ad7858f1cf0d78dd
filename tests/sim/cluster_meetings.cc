// How the simulated cluster carries out the faults that meet at one moment of one request.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tests/sim/cluster.h"

namespace loam::sim {
namespace {

/// Where an index that is built gets an entry.
constexpr std::string_view kBuildEnters = "client.index.build_enters";
/// Points that the compactor passes, and how many it passes, at most, before it stands still.
constexpr std::string_view kCompactor = "node.compact.";
constexpr uint64_t kCompactorPasses = 8;
/// What clients take, at most, until they have connected to a node again.
constexpr uint64_t kConnectAnewNs = 60'000'000;
/// A node has read a batch's fences and lease.
constexpr std::string_view kBatchBegun = "node.batch.begun";

/// Where the client of a kLateFence stands still.
std::string_view late_point(const Fault& fault) {
  const bool reads = fault.amount == static_cast<uint64_t>(LateFence::kReadsIndexes);
  return reads ? "client.index.looks" : "client.index.change";
}

}  // namespace

void Cluster::carry_out_meeting(const Fault& fault) {
  Slot& slot = slots_[fault.role];
  const uint64_t until_ns = world_.world_ns() + fault.for_ns;
  switch (fault.kind) {
    case FaultKind::kLateFence:
      slot.armed.push_back({1, false, 0, &fault, late_point(fault)});
      break;
    case FaultKind::kLoseAnswers: {
      Fault away = fault;
      away.peer = 0;
      away.for_ns += kConnectAnewNs;
      cut(away, true);
      slot.armed.push_back({1, false, 0, &fault, "node.write.linked"});
      break;
    }
    case FaultKind::kSilentManager:
      come_back_without_publications(fault);
      break;
    case FaultKind::kPowerCut:
      if (on_older_folder()) break;
      disk_.stall_flushes(until_ns + kHandlingNs);
      power_cut_ns_ = until_ns;
      build_cuts_power_ = fault.amount == 1;
      world_.at(until_ns, [this, until_ns] {
        if (power_cut_ns_ == until_ns) cut_power();
      });
      break;
    case FaultKind::kMeet: {
      const Meeting& meeting = kMeetings[fault.amount];
      const bool compacts = meeting.first.starts_with(kCompactor);
      const uint64_t passes = compacts ? 1 + world_.random().below(kCompactorPasses) : 1;
      slot.armed.push_back({passes, false, fault.for_ns, nullptr, meeting.first, meeting.second});
      break;
    }
    case FaultKind::kAtSplit:
      slot.armed.push_back({1, false, 0, &fault, "client.tree.node_made"});
      break;
    default:
      break;
  }
}

void Cluster::cut_power() {
  power_cut_ns_ = 0;
  if (calm_ || on_older_folder() || !world_.alive(slots_[0].process)) return;
  power_goes_ = true;
  world_.crash(slots_[0].process);
  power_goes_ = false;
}

/// The power goes about when the entry has arrived.
void Cluster::cut_power_of_a_build(std::string_view point) {
  if (!build_cuts_power_ || world_.world_ns() >= power_cut_ns_ || point != kBuildEnters) return;
  build_cuts_power_ = false;
  const uint64_t soon_ns = world_.world_ns() + 1 + world_.random().below(kHandlingNs + 8 * plan_.max_delay_ns);
  world_.at(soon_ns, [this, cut_ns = power_cut_ns_] {
    if (power_cut_ns_ == cut_ns) cut_power();
  });
}

/// In half of the cases the host loses its power while the flush is stalled, or the process dies while the disk is
/// full.
void Cluster::hinder_log(const Fault& fault) {
  const uint64_t until_ns = world_.world_ns() + fault.for_ns;
  if (fault.kind == FaultKind::kStallLog) disk_.stall_flushes(until_ns);
  if (fault.kind == FaultKind::kFullLog) disk_.fill(until_ns);
  if (!kills_manager(fault)) return;
  world_.at(until_ns - 1, [this, kind = fault.kind] {
    if (calm_ || on_older_folder()) return;
    power_goes_ = kind == FaultKind::kStallLog;
    world_.crash(slots_[0].process);
    power_goes_ = false;
  });
}

/// The client hears nothing of its session's end, and goes on just before the nodes have the fence.
PauseDecision Cluster::go_on_before_the_fence(const Fault& fault) {
  const uint64_t soon_ns = 2 * (kHandlingNs + plan_.max_delay_ns);
  late_fence_ns_ = std::max(late_fence_ns_, world_.world_ns() + fault.for_ns + fault.for_ns / 16 + soon_ns);
  network_.cut_one_way(name(0), name(fault.role));
  world_.at(late_fence_ns_ + soon_ns, [this, role = fault.role] { network_.heal(name(0), name(role)); });
  if (fault.amount == static_cast<uint64_t>(LateFence::kChangesIndexesAfterRestart)) {
    world_.at(world_.world_ns(), [this] {
      if (calm_ || on_older_folder()) return;
      world_.crash(slots_[0].process);
      start_role(0);
    });
  }
  return stall(fault.for_ns);
}

/// What the node answers from now on is lost. The clients connect to it again when its lease is over.
void Cluster::lose_answers(const Fault& fault) {
  for (Role role = plan_.nodes + 1; role < plan_.roles(); ++role) network_.cut_one_way(name(fault.role), name(role));
  world_.at(world_.world_ns() + fault.for_ns, [this, node = fault.role] {
    for (Role role = plan_.nodes + 1; role < plan_.roles(); ++role) {
      if (!calm_) network_.reset(name(node), name(role));
      network_.heal(name(node), name(role));
    }
  });
}

/// First a client has made the right one of two tree nodes; then a storage node has the write that links it.
PauseDecision Cluster::at_split(Role role, const Fault& fault) {
  for (Role node = 1; node <= plan_.nodes; ++node) {
    std::vector<Slot::Armed>& waiting = slots_[node].armed;
    std::erase_if(waiting, [&](const Slot::Armed& armed) { return armed.fault == &fault; });
    if (plan_.is_client(role)) waiting.push_back({1, false, 0, &fault, "node.plain_write.appended"});
  }
  if (plan_.is_client(role)) return {};
  world_.at(world_.world_ns(), [this, role, &fault] {
    if (calm_) return;
    Fault away = fault;
    away.role = 0;
    away.peer = role;
    away.for_ns = fault.amount;
    cut(away, true);
    for (Role client = plan_.nodes + 1; client < plan_.roles(); ++client) world_.crash(slots_[client].process);
  });
  return stall(fault.for_ns);
}

void Cluster::come_back_without_publications(const Fault& fault) {
  if (on_older_folder()) return;
  world_.crash(slots_[0].process);
  start_role(0);
  silent_until_ns_ = world_.world_ns() + fault.for_ns;
  world_.at(silent_until_ns_, [this] {
    if (!calm_ && !on_older_folder()) world_.crash(slots_[0].process);
  });
}

std::optional<PauseDecision> Cluster::hold(std::string_view point) {
  const uint64_t now_ns = world_.world_ns();
  const auto until = [&](uint64_t ns) { return stall((ns - now_ns) + (ns - now_ns) / 16); };
  if (point == "node.fence.received" && now_ns < late_fence_ns_) return until(late_fence_ns_);
  // The next publication says that the transactions are complete, and nodes refuse what comes of them after it.
  const uint64_t soon_ns = 2 * (kHandlingNs + plan_.max_delay_ns);
  const uint64_t told_ns = std::max(late_fence_ns_ == 0 ? 0 : late_fence_ns_ + soon_ns, trapped_until_ns_);
  if (point != "recoverer.reverted" || now_ns >= told_ns) return std::nullopt;
  const PauseDecision decision = until(told_ns);
  recoverer_stalled_until_ns_ = stalled_until_ns_;
  return decision;
}

/// The thread has come to the point at which the fault has waited for it.
PauseDecision Cluster::meet(Role role, const Slot::Armed& due) {
  const Fault& fault = *due.fault;
  switch (fault.kind) {
    case FaultKind::kAtComplete:
      return at_complete(fault);
    case FaultKind::kLateFence:
      return go_on_before_the_fence(fault);
    case FaultKind::kLoseAnswers:
      lose_answers(fault);
      return {};
    case FaultKind::kAtSplit:
      return at_split(role, fault);
    default:
      break;
  }
  if (plan_.is_client(role)) {
    // It has sent its writes. They stand still not much longer than until its session is over: others wait for them.
    const uint64_t ns = plan_.client_lease_ns / 4 * 5 + plan_.client_lease_ns / 80 * fault.amount;
    slots_[fault.role].armed.push_back({1, false, ns, &fault, kBatchBegun});
    return {};
  }
  world_.at(world_.world_ns(), [this, &fault] { spring(fault); });
  if (!due.point.empty()) trapped_until_ns_ = world_.world_ns() + due.stall_ns + due.stall_ns / 16 + kHandlingNs;
  return stall(due.stall_ns);
}

}  // namespace loam::sim
