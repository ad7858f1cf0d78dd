// Carries out the faults that must meet another event at one moment of one request.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tests/sim/cluster.h"

namespace loam::sim {
namespace {

/// The pause point at which a client that builds an index enters an entry.
constexpr std::string_view kBuildEnters = "client.index.build_enters";
/// Prefix of the compactor's pause points; below, the most that it passes before it stands still.
constexpr std::string_view kCompactor = "node.compact.";
constexpr uint64_t kCompactorPasses = 8;
/// Upper bound on the time until clients have connected to a node again.
constexpr uint64_t kConnectAnewNs = 60'000'000;
/// The pause point at which a node has read the fences and the lease for a batch.
constexpr std::string_view kBatchBegun = "node.batch.begun";

/// The pause point at which the client of a kLateFence stands still.
std::string_view late_point(const Fault& fault) {
  const bool reads = fault.amount == static_cast<uint64_t>(LateFence::kReadsIndexes);
  return reads ? "client.index.looks" : "client.index.change";
}

}  // namespace

void Cluster::inject_correlated(const Fault& fault) {
  RoleState& slot = slots_[fault.role];
  const uint64_t until_ns = simulator_.virtual_now_ns() + fault.for_ns;
  switch (fault.kind) {
    case FaultKind::kLateFence:
      slot.armed.push_back({1, false, 0, &fault, late_point(fault)});
      break;
    case FaultKind::kDropResponses: {
      Fault away = fault;
      away.peer = 0;
      away.for_ns += kConnectAnewNs;
      partition(away, true);
      slot.armed.push_back({1, false, 0, &fault, "node.write.linked"});
      break;
    }
    case FaultKind::kManagerWithoutPublications:
      restart_without_publications(fault);
      break;
    case FaultKind::kPowerCut:
      if (on_stale_copy()) break;
      disk_.stall_flushes(until_ns + kHandlingNs);
      power_cut_ns_ = until_ns;
      build_cuts_power_ = fault.amount == 1;
      simulator_.at(until_ns, [this, until_ns] {
        if (power_cut_ns_ == until_ns) cut_power();
      });
      break;
    case FaultKind::kInterleave: {
      const Interleaving& meeting = kInterleavings[fault.amount];
      const bool compacts = meeting.first.starts_with(kCompactor);
      const uint64_t passes = compacts ? 1 + simulator_.random().below(kCompactorPasses) : 1;
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
  if (faults_ended_ || on_stale_copy() || !simulator_.alive(slots_[0].process)) return;
  crash_cuts_power_ = true;
  simulator_.crash(slots_[0].process);
  crash_cuts_power_ = false;
}

/// Cuts the power at about the time when the entry has arrived.
void Cluster::cut_power_during_index_build(std::string_view point) {
  if (!build_cuts_power_ || simulator_.virtual_now_ns() >= power_cut_ns_ || point != kBuildEnters) return;
  build_cuts_power_ = false;
  const uint64_t soon_ns =
      simulator_.virtual_now_ns() + 1 + simulator_.random().below(kHandlingNs + 8 * plan_.max_delay_ns);
  simulator_.at(soon_ns, [this, cut_ns = power_cut_ns_] {
    if (power_cut_ns_ == cut_ns) cut_power();
  });
}

/// In half of the cases, the host loses power while the flush is stalled, or the process dies while the disk is full.
void Cluster::inject_log_fault(const Fault& fault) {
  const uint64_t until_ns = simulator_.virtual_now_ns() + fault.for_ns;
  if (fault.kind == FaultKind::kStallLog) disk_.stall_flushes(until_ns);
  if (fault.kind == FaultKind::kFullLog) disk_.fill(until_ns);
  if (!kills_manager(fault)) return;
  simulator_.at(until_ns - 1, [this, kind = fault.kind] {
    if (faults_ended_ || on_stale_copy()) return;
    crash_cuts_power_ = kind == FaultKind::kStallLog;
    simulator_.crash(slots_[0].process);
    crash_cuts_power_ = false;
  });
}

/// The client does not hear of its session's end, and continues just before the nodes have the fence.
PauseDecision Cluster::resume_before_fence(const Fault& fault) {
  const uint64_t soon_ns = 2 * (kHandlingNs + plan_.max_delay_ns);
  late_fence_ns_ = std::max(late_fence_ns_, simulator_.virtual_now_ns() + fault.for_ns + fault.for_ns / 16 + soon_ns);
  network_.cut_one_way(name(0), name(fault.role));
  simulator_.at(late_fence_ns_ + soon_ns, [this, role = fault.role] { network_.heal(name(0), name(role)); });
  if (fault.amount == static_cast<uint64_t>(LateFence::kChangesIndexesAfterRestart)) {
    simulator_.at(simulator_.virtual_now_ns(), [this] {
      if (faults_ended_ || on_stale_copy()) return;
      simulator_.crash(slots_[0].process);
      start_role(0);
    });
  }
  return stall(fault.for_ns);
}

/// From now on the node's replies are lost. The clients connect to the node again after its lease is over.
void Cluster::lose_replies(const Fault& fault) {
  for (Role role = plan_.nodes + 1; role < plan_.roles(); ++role) network_.cut_one_way(name(fault.role), name(role));
  simulator_.at(simulator_.virtual_now_ns() + fault.for_ns, [this, node = fault.role] {
    for (Role role = plan_.nodes + 1; role < plan_.roles(); ++role) {
      if (!faults_ended_) network_.reset(name(node), name(role));
      network_.heal(name(node), name(role));
    }
  });
}

/// First a client has written the right one of two tree nodes; then a storage node executes the write that links it.
PauseDecision Cluster::at_split(Role role, const Fault& fault) {
  for (Role node = 1; node <= plan_.nodes; ++node) {
    std::vector<RoleState::ArmedFault>& waiting = slots_[node].armed;
    std::erase_if(waiting, [&](const RoleState::ArmedFault& armed) { return armed.fault == &fault; });
    if (plan_.is_client(role)) waiting.push_back({1, false, 0, &fault, "node.plain_write.appended"});
  }
  if (plan_.is_client(role)) return {};
  simulator_.at(simulator_.virtual_now_ns(), [this, role, &fault] {
    if (faults_ended_) return;
    Fault away = fault;
    away.role = 0;
    away.peer = role;
    away.for_ns = fault.amount;
    partition(away, true);
    for (Role client = plan_.nodes + 1; client < plan_.roles(); ++client) simulator_.crash(slots_[client].process);
  });
  return stall(fault.for_ns);
}

void Cluster::restart_without_publications(const Fault& fault) {
  if (on_stale_copy()) return;
  simulator_.crash(slots_[0].process);
  start_role(0);
  no_publications_until_ns_ = simulator_.virtual_now_ns() + fault.for_ns;
  simulator_.at(no_publications_until_ns_, [this] {
    if (!faults_ended_ && !on_stale_copy()) simulator_.crash(slots_[0].process);
  });
}

std::optional<PauseDecision> Cluster::hold(std::string_view point) {
  const uint64_t now_ns = simulator_.virtual_now_ns();
  const auto until = [&](uint64_t ns) { return stall((ns - now_ns) + (ns - now_ns) / 16); };
  if (point == "node.fence.received" && now_ns < late_fence_ns_) return until(late_fence_ns_);
  // After the next publication the transactions are complete, and nodes refuse later requests of them.
  const uint64_t soon_ns = 2 * (kHandlingNs + plan_.max_delay_ns);
  const uint64_t published_ns = std::max(late_fence_ns_ == 0 ? 0 : late_fence_ns_ + soon_ns, batch_stalled_until_ns_);
  if (point != "recoverer.reverted" || now_ns >= published_ns) return std::nullopt;
  const PauseDecision decision = until(published_ns);
  recoverer_stalled_until_ns_ = stalled_until_ns_;
  return decision;
}

/// Fires an armed fault: its thread has reached the pause point.
PauseDecision Cluster::fire(Role role, const RoleState::ArmedFault& due) {
  const Fault& fault = *due.fault;
  switch (fault.kind) {
    case FaultKind::kAtComplete:
      return at_complete(fault);
    case FaultKind::kLateFence:
      return resume_before_fence(fault);
    case FaultKind::kDropResponses:
      lose_replies(fault);
      return {};
    case FaultKind::kAtSplit:
      return at_split(role, fault);
    default:
      break;
  }
  if (plan_.is_client(role)) {
    // The client has sent its writes. Their threads stand still only a little longer than the session lives, because
    // other threads wait for them.
    const uint64_t ns = plan_.client_lease_ns / 4 * 5 + plan_.client_lease_ns / 80 * fault.amount;
    slots_[fault.role].armed.push_back({1, false, ns, &fault, kBatchBegun});
    return {};
  }
  simulator_.at(simulator_.virtual_now_ns(), [this, &fault] { kill_clients(fault); });
  if (!due.point.empty())
    batch_stalled_until_ns_ = simulator_.virtual_now_ns() + due.stall_ns + due.stall_ns / 16 + kHandlingNs;
  return stall(due.stall_ns);
}

}  // namespace loam::sim
