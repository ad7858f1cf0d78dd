// The plan of a seed. The shape and the common faults come from one generator, each later choice from one of its own.
// The seed alone determines all of them.
#include "tests/sim/plan.h"

#include <algorithm>
#include <array>

#include "common/testing/random.h"
#include "tests/sim/workload.h"

namespace loam::sim {
namespace {

using commit::CommitLogMode;
using testing::Random;

constexpr uint64_t kMs = 1'000'000;
/// Earliest time of a fault: the load runs by then.
constexpr uint64_t kFirstFaultNs = 5 * kMs;
/// The commit manager treats a lease as one eighth longer than it grants it (docs/architecture.md), so the clocks of
/// two hosts may differ by less than that.
constexpr int64_t kMaxClockPpm = 55'000;
constexpr size_t kMaxFaults = 14;
constexpr uint64_t kOperatorNs = 20 * kMs;
/// A plan has a trait in one case of this number.
constexpr uint64_t kTraitOneIn = 4;
constexpr uint64_t kMaxTraitFaults = 4;

/// The kinds of faults in this run: each kind is left out of half of all runs.
std::vector<FaultKind> choose_kinds(Random& random) {
  std::vector<FaultKind> kinds;
  for (size_t kind = 0; kind < kFaultKinds; ++kind) {
    if (random.one_in(2)) kinds.push_back(static_cast<FaultKind>(kind));
  }
  return kinds;
}

/// Clients die more often than nodes, and nodes more often than the commit manager, because most rules concern
/// clients.
Role choose_role(const Plan& plan, Random& random) {
  const uint64_t x = random.below(10);
  if (x < 2) return 0;
  if (x < 4) return 1 + static_cast<Role>(random.below(plan.nodes));
  return 1 + plan.nodes + static_cast<Role>(random.below(plan.clients));
}

/// Chooses a role that `role` has connections with: nodes and the commit manager connect to all, clients to no
/// client.
Role choose_peer(const Plan& plan, Role role, Random& random) {
  for (;;) {
    const auto peer = static_cast<Role>(random.below(plan.roles()));
    if (peer != role && !(plan.is_client(role) && plan.is_client(peer)) &&
        !(plan.is_node(role) && plan.is_node(peer))) {
      return peer;
    }
  }
}

Fault make_fault(const Plan& plan, FaultKind kind, Random& random) {
  Fault fault;
  fault.kind = kind;
  fault.at_ns = random.between(kFirstFaultNs, plan.faults_end_ns);
  fault.role = choose_role(plan, random);
  fault.peer = choose_peer(plan, fault.role, random);
  const uint64_t lease = std::max(plan.client_lease_ns, plan.node_lease_ns);
  // Half of the pauses are far below a lease, half around and beyond it.
  fault.for_ns = (random.one_in(2) ? random.between(10'000, lease / 2) : random.between(lease / 2, lease * 3));
  switch (kind) {
    case FaultKind::kCrashAtPoint:
    case FaultKind::kStallAtPoint:
      fault.amount = random.between(1, 40);
      break;
    case FaultKind::kStallAndKillClients:
      // Fences, leases and their barriers must handle this case: a node's batch ends after its client counts as dead.
      fault.role = 1 + static_cast<Role>(random.below(plan.nodes));
      fault.peer = random.one_in(2) ? 0 : 1 + plan.nodes + static_cast<Role>(random.below(plan.clients));
      fault.for_ns = lease * random.between(1, 4) + random.below(lease);
      fault.amount = random.between(1, 40);
      break;
    case FaultKind::kJitter:
      fault.role = random.one_in(2) ? 1 + static_cast<Role>(random.below(plan.nodes)) : fault.role;
      fault.amount = uint64_t{1} << random.between(1, 6);
      break;
    case FaultKind::kReset:
      fault.amount = random.one_in(2) ? 1 : random.between(2, 20);
      break;
    case FaultKind::kSlow:
      fault.amount = uint64_t{1} << random.between(2, 9);
      break;
    case FaultKind::kDelay:
      fault.amount = uint64_t{100'000} << random.between(0, 9);
      break;
    case FaultKind::kRare:
      fault.amount = uint64_t{1} << random.between(1, 6);
      break;
    default:
      break;
  }
  return fault;
}

void choose_shape(Plan& plan, Random& random) {
  plan.nodes = static_cast<uint32_t>(random.between(1, 3));
  plan.clients = static_cast<uint32_t>(random.between(2, 4));
  plan.network_threads = static_cast<uint32_t>(random.between(1, 2));
  plan.page_bytes = uint64_t{4 << 10} << random.below(4);
  // Room for all records, or for so few that garbage collection has to keep up.
  plan.memory_bytes = random.one_in(3) ? std::max(plan.page_bytes * 16, random.between(192, 768) << 10) : 4 << 20;
  plan.client_lease_ns = random.between(15, 60) * kMs;
  plan.node_lease_ns = random.between(15, 60) * kMs;
  plan.max_transaction_age_ns = random.between(60, 250) * kMs;
  plan.publish_interval_ns = random.between(1, 10) * kMs;
  plan.ids_ahead = random.one_in(2) ? random.between(1, 20) : 1'000;
  plan.max_delay_ns = uint64_t{20'000} << random.below(6);
  plan.max_end_delay_ns = uint64_t{50'000} << random.below(12);
  plan.restart_after_ns = random.between(1, 80) * kMs;
  plan.accept_loss_after_ns = random.between(1, 100) * kMs;
  for (Role role = 0; role < plan.roles(); ++role) {
    plan.clock_ppm.push_back(static_cast<int64_t>(random.below(2 * kMaxClockPpm)) - kMaxClockPpm);
    plan.clock_offset_ns.push_back(random.below(uint64_t{1} << 50));
  }
  plan.accounts = static_cast<uint32_t>(random.between(4, 32));
  plan.hot_keys = static_cast<uint32_t>(random.between(2, 24));
  plan.think_ns = uint64_t{100'000} << random.below(5);
  // Some transactions live longer than max_transaction_age_ns; the commit manager fences their sessions (R8,
  // completion by the owner).
  plan.long_ns = random.one_in(8) ? 2 * plan.max_transaction_age_ns : random.between(5, 60) * kMs;
  plan.fibers = static_cast<uint32_t>(random.between(2, 7));
}

/// The node has to return, and its loss has to be accepted, before the client's session ends and before the client
/// gets a new catalog.
Fault make_unnoticed_restart(const Plan& plan, Random& random) {
  Fault fault;
  fault.kind = FaultKind::kUnnoticedRestart;
  fault.at_ns = random.between(kFirstFaultNs, plan.faults_end_ns);
  fault.role = 1 + static_cast<Role>(random.below(plan.nodes));
  fault.peer = 1 + plan.nodes + static_cast<Role>(random.below(plan.clients));
  fault.amount = random.between(kMs / 4, 4 * kMs);
  fault.for_ns = fault.amount + random.between(plan.client_lease_ns / 8, plan.client_lease_ns / 2);
  return fault;
}

/// The stall, or the loss of messages, lasts longer than the client's lease, so that the session is recovered
/// meanwhile. In a third of the cases it is shorter.
Fault make_at_complete(const Plan& plan, Random& random) {
  Fault fault;
  fault.kind = FaultKind::kAtComplete;
  fault.at_ns = random.between(kFirstFaultNs, plan.faults_end_ns);
  fault.role = 1 + plan.nodes + static_cast<Role>(random.below(plan.clients));
  fault.for_ns = plan.client_lease_ns + random.between(plan.client_lease_ns / 4, plan.client_lease_ns);
  if (random.one_in(3)) fault.for_ns = random.between(kMs / 4, plan.client_lease_ns);
  // Late completions are the rarest case, because several conditions must coincide, so half of the faults try one.
  fault.amount = random.one_in(2) ? static_cast<uint64_t>(AtComplete::kStallBefore) : random.below(kAtCompletes);
  return fault;
}

Fault make_log_fault(const Plan& plan, Random& random) {
  constexpr std::array kKinds = {FaultKind::kCrashManagerAtCommit, FaultKind::kCrashManagerAtCommit,
                                 FaultKind::kStallLog, FaultKind::kFullLog, FaultKind::kNodeCutFromManager};
  Fault fault;
  fault.kind = kKinds[random.below(kKinds.size())];
  fault.at_ns = random.between(kFirstFaultNs, plan.faults_end_ns);
  fault.for_ns = random.between(kMs, 2 * plan.client_lease_ns);
  if (fault.kind == FaultKind::kCrashManagerAtCommit) fault.amount = random.below(kCommitPoints.size());
  if (fault.kind == FaultKind::kNodeCutFromManager) {
    fault.role = 1 + static_cast<Role>(random.below(plan.nodes));
    fault.for_ns = random.between(plan.node_lease_ns / 4, plan.node_lease_ns);
  }
  return fault;
}

Fault make_stale_manager_state(const Plan& plan, Random& random) {
  Fault fault;
  fault.kind = FaultKind::kStaleManagerState;
  fault.amount = random.between(2 * kMs, plan.faults_end_ns / 2);
  fault.at_ns = fault.amount + random.below(plan.faults_end_ns - fault.amount);
  fault.for_ns = random.between(plan.node_lease_ns, 4 * plan.node_lease_ns);
  return fault;
}

/// Uses a generator of its own, so that plans without a trait do not change when a trait is added.
void choose_traits(Plan& plan) {
  Random random(~plan.seed);
  plan.late_inserts = random.one_in(kTraitOneIn);
  plan.operator_ns = kOperatorNs;
  if (random.one_in(kTraitOneIn)) {
    plan.operator_ns = kMs;
    for (uint64_t left = random.between(1, kMaxTraitFaults); left != 0; --left) {
      plan.faults.push_back(make_unnoticed_restart(plan, random));
    }
  }
  if (!random.one_in(kTraitOneIn)) return;
  uint64_t ends_ns = 0;
  for (uint64_t left = random.between(1, kMaxTraitFaults); left != 0; --left) {
    plan.faults.push_back(make_at_complete(plan, random));
    // The commit manager dies while faults last; the client reaches its Complete some time after this.
    const Fault& late = plan.faults.back();
    ends_ns = std::max(ends_ns, late.at_ns + late.for_ns / 4 * 5 + plan.client_lease_ns);
  }
  plan.faults_end_ns = std::max(plan.faults_end_ns, ends_ns);
}

std::string name_of(Role role, uint32_t nodes) {
  if (role == 0) return "the commit manager";
  if (role <= nodes) return "node " + std::to_string(role);
  return "client " + std::to_string(role - nodes);
}

}  // namespace

std::string_view to_string(FaultKind kind) {
  switch (kind) {
    case FaultKind::kCrash:
      return "crash";
    case FaultKind::kCrashAtPoint:
      return "crash-at-point";
    case FaultKind::kPause:
      return "pause";
    case FaultKind::kStallAtPoint:
      return "stall-at-point";
    case FaultKind::kStallAndKillClients:
      return "trap";
    case FaultKind::kJitter:
      return "jitter";
    case FaultKind::kSlow:
      return "slow";
    case FaultKind::kPartition:
      return "cut";
    case FaultKind::kPartitionOneWay:
      return "cut-one-way";
    case FaultKind::kReset:
      return "reset";
    case FaultKind::kDelay:
      return "delay";
    case FaultKind::kRare:
      return "rare";
    case FaultKind::kUnnoticedRestart:
      return "comeback";
    case FaultKind::kAtComplete:
      return "at-complete";
    case FaultKind::kCrashManagerAtCommit:
      return "manager-at-commit";
    case FaultKind::kStallLog:
      return "stall-log";
    case FaultKind::kFullLog:
      return "full-log";
    case FaultKind::kNodeCutFromManager:
      return "behind";
    case FaultKind::kStaleManagerState:
      return "older-folder";
    case FaultKind::kLateFence:
      return "late-fence";
    case FaultKind::kDropResponses:
      return "lose-answers";
    case FaultKind::kManagerWithoutPublications:
      return "silent-manager";
    case FaultKind::kPowerCut:
      return "power-cut";
    case FaultKind::kInterleave:
      return "meet";
    case FaultKind::kAtSplit:
      return "at-split";
  }
  return "?";
}

std::string_view to_string(CommitLogMode mode) {
  switch (mode) {
    case CommitLogMode::kNone:
      return "none";
    case CommitLogMode::kOs:
      return "os";
    case CommitLogMode::kSync:
      return "sync";
  }
  return "?";
}

std::string describe(const Fault& fault, uint32_t nodes) {
  std::string text = std::string(to_string(fault.kind)) + " of " + name_of(fault.role, nodes);
  const bool pair = fault.kind == FaultKind::kPartition || fault.kind == FaultKind::kPartitionOneWay ||
                    fault.kind == FaultKind::kReset || fault.kind == FaultKind::kStallAndKillClients ||
                    fault.kind == FaultKind::kDelay || fault.kind == FaultKind::kUnnoticedRestart;
  if (pair) text += " and " + name_of(fault.peer, nodes);
  text += " at " + std::to_string(fault.at_ns / 1'000) + " us for " + std::to_string(fault.for_ns / 1'000) + " us";
  if (fault.kind == FaultKind::kCrashManagerAtCommit) return text + ", " + std::string(kCommitPoints[fault.amount]);
  if (fault.kind == FaultKind::kAtComplete) return text + ", way " + std::to_string(fault.amount);
  if (fault.amount != 0) text += ", amount " + std::to_string(fault.amount);
  return text;
}

/// Salts of generators: each choice below draws from a generator of its own, for the same reason.
constexpr uint64_t kColumnsSalt = 0x636f'6c75'6d6e;
constexpr uint64_t kTreesSalt = 0x7472'6565;
constexpr uint64_t kIndexesSalt = 0x696e'6465'78;
constexpr uint64_t kCompactionSalt = 0x6761'7262'6167'65;
constexpr uint64_t kCommitSalt = 0x636f'6d6d'6974;
constexpr uint64_t kRoomSalt = 0x726f'6f6d;
constexpr uint64_t kNoPublicationsSalt = 0x7369'6c65'6e74;
constexpr uint64_t kEndedSessionSalt = 0x656e'6465'64;
constexpr uint64_t kYoungSalt = 0x796f'756e'67;
constexpr uint64_t kPowerSalt = 0x706f'7765'72;
constexpr uint64_t kInterleavingSalt = 0x6d65'6574;
constexpr uint64_t kChunksSalt = 0x6368'756e'6b73;
constexpr uint64_t kAddedFieldsSalt = 0x6669'656c'6473;
constexpr uint64_t kNoPublicationsOneIn = 16;
constexpr uint64_t kIndexesMemoryBytes = 1 << 20;
constexpr uint64_t kMaxLogFaults = 3;
constexpr uint64_t kIntentBlockBytes = 4'096;
/// Aborted ids are forgotten in blocks, so a restart leaves the rest of a block behind.
constexpr uint64_t kManyIdsAhead = 5'000;

/// With full memory, each table in which recovery undoes writes needs a page of the reserve, and indexes add many
/// tables. Of the plans with less memory than that, half get enough, and half keep their memory and have a single
/// index.
void choose_indexes(Plan& plan) {
  constexpr std::array kSingle = {IndexSet::kHotByValue, IndexSet::kHotByTag, IndexSet::kUniqueTable};
  Random random(plan.seed ^ kIndexesSalt);
  plan.indexes = IndexSet::kAll;
  if (plan.memory_bytes >= kIndexesMemoryBytes) return;
  if (random.one_in(2)) {
    plan.memory_bytes = kIndexesMemoryBytes;
  } else {
    plan.indexes = kSingle[random.below(kSingle.size())];
  }
}

/// Faults that meet at one moment of one transaction. Each reaches a place that random faults hardly ever reach: a
/// request of an ended session at a node that has not heard of the end (R8), a repeated request at a node without a
/// lease (R3, idempotent requests), a batch that outlives the lease of its node (R9, leases of storage nodes).
void choose_late_requests(Plan& plan) {
  Random random(plan.seed ^ kEndedSessionSalt);
  if (!random.one_in(kTraitOneIn)) return;
  const uint64_t lease_ns = std::max(plan.client_lease_ns, plan.node_lease_ns);
  Fault fault;
  fault.at_ns = random.between(kFirstFaultNs, plan.faults_end_ns);
  fault.role = 1 + plan.nodes + static_cast<Role>(random.below(plan.clients));
  switch (random.below(4)) {
    case 0:
    case 1:
      fault.kind = FaultKind::kLateFence;
      fault.amount = random.below(kLateFences);
      fault.for_ns = plan.client_lease_ns / 8 * 11 + random.below(plan.client_lease_ns / 8);
      if (fault.amount == static_cast<uint64_t>(LateFence::kChangesIndexesAfterRestart)) {
        fault.for_ns = random.between(120, 160) * kMs;
      }
      if (fault.amount == static_cast<uint64_t>(LateFence::kReadsIndexes)) {
        // Other open transactions of the session would hold back garbage collection.
        plan.fibers = static_cast<uint32_t>(random.between(1, 2));
        plan.think_ns = 200'000;
      }
      break;
    case 2:
      fault.kind = FaultKind::kDropResponses;
      fault.role = 1 + static_cast<Role>(random.below(plan.nodes));
      fault.for_ns = plan.node_lease_ns / 16 * 17;
      break;
    default:
      fault.kind = FaultKind::kAtSplit;
      fault.amount = lease_ns / 20 * 27;
      fault.for_ns = 2 * fault.amount + 60 * kMs;
      plan.network_threads = 2;
      plan.trees = false;                 // recovery sweeps only the trees of indexes
      plan.restart_after_ns = 150 * kMs;  // no client changes the leaf meanwhile
      break;
  }
  plan.faults.push_back(fault);
  plan.faults_end_ns =
      std::max(plan.faults_end_ns, fault.at_ns + fault.for_ns / 4 * 5 + 2 * plan.client_lease_ns + 60 * kMs);
}

/// Nodes do not learn which transactions are complete. A commit log that truncated outcomes by time alone would drop
/// outcomes that the nodes still need.
void choose_manager_without_publications(Plan& plan) {
  Random random(plan.seed ^ kNoPublicationsSalt);
  if (!random.one_in(kNoPublicationsOneIn)) return;
  Fault fault;
  fault.kind = FaultKind::kManagerWithoutPublications;
  fault.at_ns = random.between(kFirstFaultNs, plan.faults_end_ns);
  fault.for_ns = random.between(100, 150) * kMs;
  plan.faults.push_back(fault);
  plan.ids_ahead = kManyIdsAhead;
  plan.outcome_keep_ns = random.between(5, 20) * kMs;
  plan.faults_end_ns = std::max(plan.faults_end_ns, fault.at_ns + fault.for_ns + 60 * kMs);
}

/// Snapshots of late inserts must be listed in publications before they end, else they do not count.
void choose_young(Plan& plan) {
  Random random(plan.seed ^ kYoungSalt);
  if (plan.late_inserts || random.one_in(2)) plan.young_ns = random.between(1, 8) * kMs;
}

/// Plans in which a power cut meets commits that are not on the disk, and index entries made from such commits (R27,
/// index entries; R29, index creation).
void choose_power_cuts(Plan& plan) {
  Random random(plan.seed ^ kPowerSalt);
  if (plan.log_mode != CommitLogMode::kOs || !random.one_in(kTraitOneIn)) return;
  plan.toggles = true;
  for (uint64_t left = random.between(1, 2); left != 0; --left) {
    Fault fault;
    fault.kind = FaultKind::kPowerCut;
    fault.at_ns = random.between(plan.faults_end_ns / 3, plan.faults_end_ns);
    fault.for_ns = random.between(15, 60) * kMs;
    fault.amount = random.below(2);
    plan.faults.push_back(fault);
    plan.faults_end_ns = std::max(plan.faults_end_ns, fault.at_ns + fault.for_ns + kMs);
  }
}

/// Writers that run beside the compactor. A simulated thread runs until it blocks, so it hardly ever stops by itself
/// between the move of an entry and the publication of the move.
void choose_interleavings(Plan& plan) {
  Random random(plan.seed ^ kInterleavingSalt);
  if (!random.one_in(kTraitOneIn)) return;
  plan.compaction = true;
  for (uint64_t left = random.between(8, 16); left != 0; --left) {
    Fault fault;
    fault.kind = FaultKind::kInterleave;
    fault.at_ns = random.between(kFirstFaultNs, plan.faults_end_ns);
    fault.role = 1 + static_cast<Role>(random.below(plan.nodes));
    fault.amount = random.below(kInterleavings.size());
    const bool alone = kInterleavings[fault.amount].second.empty();
    fault.for_ns = alone ? random.between(5 * kMs, 60 * kMs) : random.between(kMs, 10 * kMs);
    plan.faults.push_back(fault);
  }
}

/// Whether the commit manager may die in this plan; it then needs its log.
bool may_lose_manager(const Plan& plan) {
  return std::ranges::any_of(plan.faults, [](const Fault& fault) {
    switch (fault.kind) {
      case FaultKind::kCrash:
      case FaultKind::kCrashAtPoint:
        return fault.role == 0;
      case FaultKind::kAtComplete:  // may stop the recoverer, which is a part of the commit manager's process
      case FaultKind::kCrashManagerAtCommit:
      case FaultKind::kStaleManagerState:
      case FaultKind::kManagerWithoutPublications:
      case FaultKind::kPowerCut:
        return true;
      case FaultKind::kLateFence:
        return fault.amount == static_cast<uint64_t>(LateFence::kChangesIndexesAfterRestart);
      default:
        return kills_manager(fault);
    }
  });
}

/// Chooses the mode of the commit log, and the log's own faults.
void choose_commits(Plan& plan) {
  Random random(plan.seed ^ kCommitSalt);
  plan.log_mode = random.one_in(4) ? CommitLogMode::kSync : CommitLogMode::kOs;
  plan.power_cuts = random.one_in(2);
  plan.outcome_keep_ns = random.one_in(2) ? random.between(20, 200) * kMs : 600'000 * kMs;
  if (random.one_in(4)) plan.ids_ahead = kManyIdsAhead;
  plan.intent_memory_bytes = (random.one_in(8) ? random.between(12, 48) : 1'024) * kIntentBlockBytes;
  if (random.one_in(2)) {
    for (uint64_t left = random.between(1, kMaxLogFaults); left != 0; --left) {
      plan.faults.push_back(make_log_fault(plan, random));
    }
  }
  if (random.one_in(8)) plan.faults.push_back(make_stale_manager_state(plan, random));
  choose_manager_without_publications(plan);
  plan.log_preallocates = Random(plan.seed ^ kRoomSalt).one_in(2);
  if (!may_lose_manager(plan) && random.one_in(4)) plan.log_mode = CommitLogMode::kNone;
}

Plan make_plan(uint64_t seed) {
  Random random(seed);
  Plan plan;
  plan.seed = seed;
  choose_shape(plan, random);
  plan.faults_end_ns = kFirstFaultNs + random.between(30, 250) * kMs;
  const std::vector<FaultKind> kinds = choose_kinds(random);
  const size_t count = kinds.empty() ? 0 : random.between(1, kMaxFaults);
  for (size_t i = 0; i < count; ++i) {
    plan.faults.push_back(make_fault(plan, kinds[random.below(kinds.size())], random));
  }
  choose_traits(plan);
  plan.columns = Random(seed ^ kColumnsSalt).one_in(3);
  plan.compaction = Random(seed ^ kCompactionSalt).one_in(3);
  plan.trees = Random(seed ^ kTreesSalt).one_in(3);
  choose_indexes(plan);
  choose_late_requests(plan);
  choose_commits(plan);
  choose_power_cuts(plan);
  choose_interleavings(plan);
  choose_young(plan);
  plan.short_chunks = Random(seed ^ kChunksSalt).one_in(kTraitOneIn);
  plan.adds_fields = Random(seed ^ kAddedFieldsSalt).one_in(3);
  std::ranges::sort(plan.faults, {}, &Fault::at_ns);
  return plan;
}

}  // namespace loam::sim
