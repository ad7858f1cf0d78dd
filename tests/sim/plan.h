// What a seed stands for: the shape of a cluster, and the faults that befall it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <loam/commit/log_device.h>

namespace loam::sim {

/// A place in the cluster that one process after another fills: the commit manager (0), then the storage nodes, then
/// the clients.
using Role = uint32_t;

enum class FaultKind : uint8_t {
  kCrash,         ///< of a role's process, between two steps
  kCrashAtPoint,  ///< at the `amount`-th pause point that it passes
  kPause,         ///< of all its threads: stopped and continued
  kStallAtPoint,  ///< of one thread, at the `amount`-th pause point
  kTrap,          ///< a node's thread stands still at its `amount`-th pause point, and just then clients die
  kJitter,        ///< of its threads at one pause point in `amount`, for some microseconds
  kSlow,          ///< its steps take `amount` times as long
  kCut,           ///< nothing passes between two roles, both ways
  kCutOneWay,     ///< from `role` to `peer`
  kReset,         ///< their connections break, `amount` times; messages on their way may come late
  kDelay,         ///< what they say takes up to `amount` ns longer
  kRare,          ///< branches that are rare by themselves are taken once in `amount`
  kComeback,    ///< a node answers a client no more, dies `amount` ns later and comes back, all before that hears of it
  kAtComplete,  ///< something befalls a client, or what it hears, when it sends Complete: `amount` is an AtComplete
  kManagerAtCommit,  ///< the commit manager dies at its next pause point of that name: kCommitPoints[amount]
  kStallLog,         ///< no flush of the commit log ends
  kFullLog,          ///< the disk of the commit log has no more room
  kBehind,           ///< a node hears nothing of the commit manager, and goes on serving
  kOlderFolder,      ///< the commit manager dies, and one on a copy of its folder, `amount` ns old, takes its place
  kLateFence,        ///< a client stands still, and goes on when its session has ended and no node has the fence yet:
                     ///< `amount` is a LateFence
  kLoseAnswers,  ///< a node has executed a write, its answers are lost, and its lease is over when they are asked again
  kSilentManager,  ///< the commit manager dies, publishes nothing when it is back, and dies again
  kPowerCut,       ///< no flush ends, and then the commit manager's host loses its power; `amount` 1: at once when an
                   ///< index that is built gets its next entry
  kMeet,           ///< threads of a node stand still at kMeetings[amount]
  kAtSplit,        ///< all clients die while one splits a node of a tree, and a node that loses its lease has a write
                   ///< of that under way
};
/// Of those that any plan may have: all before kComeback. The others are a trait's.
inline constexpr size_t kFaultKinds = 12;
std::string_view to_string(FaultKind kind);

/// What happens around a client's Complete. "Before": it has not left the client. "After": it has, or is about to.
enum class AtComplete : uint8_t {
  kDieBefore,
  kStandBefore,  ///< until its session is over and recovery is at work; then the Complete comes
  kDieAfter,
  kStandAfter,
  kLoseAnswer,   ///< the client hears nothing of the commit manager for a while
  kManagerDies,  ///< the commit manager does, about when the Complete comes
};
inline constexpr size_t kAtCompletes = 6;

/// What a client does when its session has ended and no node has the fence yet.
enum class LateFence : uint8_t {
  kChangesIndexes,
  kChangesIndexesAfterRestart,  ///< of the commit manager, which is how the session has ended
  kReadsIndexes,
};
inline constexpr size_t kLateFences = 3;

/// Where a commit stands at the commit manager and in its log.
inline constexpr std::array<std::string_view, 7> kCommitPoints = {
    "manager.commit.before_append", "manager.commit.appended", "manager.log.appended",     "manager.log.written",
    "manager.log.flushed",          "manager.log.renamed",     "manager.complete.answered"};

/// Where a thread of a node stands still; and where the next one that comes by does, a little longer. Empty: none does.
struct Meeting {
  std::string_view first;
  std::string_view second;
};
inline constexpr std::array<Meeting, 10> kMeetings = {{
    {"node.compact.moved", ""},
    {"node.compact.moved", ""},
    {"node.compact.moved", ""},
    {"node.compact.moved", "node.write.claimed"},
    {"node.compact.moved", "node.write.claimed"},
    {"node.compact.copied", "node.write.claimed"},
    {"node.compact.moved", "node.write.appended"},
    {"node.compact.moved", "node.revert.killed"},
    {"node.batch.opened_page", ""},
    {"node.batch.opened_page", ""},
}};

std::string_view to_string(commit::CommitLogMode mode);

struct Fault {
  FaultKind kind = FaultKind::kCrash;
  uint64_t at_ns = 0;
  uint64_t for_ns = 0;
  Role role = 0;
  Role peer = 0;
  uint64_t amount = 0;
};
/// The commit manager dies just before the fault of its log ends.
inline bool kills_manager(const Fault& fault) {
  return (fault.kind == FaultKind::kStallLog || fault.kind == FaultKind::kFullLog) && fault.at_ns % 2 == 0;
}
/// "crash of node 1 at 310 ms".
std::string describe(const Fault& fault, uint32_t nodes);

/// Everything that a seed decides before the first event.
struct Plan {
  uint64_t seed = 0;
  // The cluster.
  uint32_t nodes = 2;
  uint32_t clients = 3;
  uint32_t network_threads = 1;
  uint64_t page_bytes = 0;
  uint64_t memory_bytes = 0;  ///< of a node
  bool columns = false;       ///< the compactor rewrites versions that are old enough as columns
  bool compaction = false;    ///< without end: next to no garbage makes a table worth it
  uint64_t client_lease_ns = 0;
  uint64_t node_lease_ns = 0;
  uint64_t max_transaction_age_ns = 0;
  uint64_t publish_interval_ns = 0;
  uint64_t young_ns = 100'000'000;  ///< publications name snapshots that are older one by one
  uint64_t ids_ahead = 0;
  commit::CommitLogMode log_mode = commit::CommitLogMode::kOs;  ///< kNone only where the commit manager does not die
  bool log_takes_room = true;                                   ///< its file system can reserve room for it
  bool power_cuts = false;                ///< half of the commit manager's deaths are those of its host
  uint64_t outcome_keep_ns = 0;           ///< minimum time for which the commit log keeps an outcome
  uint64_t intent_memory_bytes = 0;       ///< of a node
  std::vector<int64_t> clock_ppm;         ///< by role
  std::vector<uint64_t> clock_offset_ns;  ///< by role
  uint64_t max_delay_ns = 0;              ///< of the network, while nothing is wrong
  uint64_t max_end_delay_ns = 0;          ///< a broken connection is noticed so late
  uint64_t restart_after_ns = 0;          ///< a process that died is started again so much later, on average
  uint64_t accept_loss_after_ns = 0;      ///< while faults last, the operator accepts a loss so much later
  uint64_t operator_ns = 0;               ///< interval between two looks of the operator at the cluster
  // The load.
  uint32_t accounts = 0;
  uint32_t hot_keys = 0;
  uint32_t fibers = 0;    ///< of a client
  uint64_t think_ns = 0;  ///< mean pause between two operations of a fiber
  uint64_t long_ns = 0;   ///< mean life of a long transaction
  // Traits: what reaches places that hardly any plan would. Most plans have none.
  bool late_inserts = false;  ///< of keys that have come and gone since the transaction's begin
  bool short_chunks = false;  ///< of scans, and clients read them slowly
  bool toggles = false;       ///< values of records go back and forth, and an index is built again and again
  bool trees = false;         ///< clients work on a Bd-tree besides
  uint32_t indexes = 0;       ///< of an IndexSet (workload.h): every plan has some
  // The faults, by time. They stop at calm_ns.
  std::vector<Fault> faults;
  uint64_t calm_ns = 0;

  uint32_t roles() const { return 1 + nodes + clients; }
  bool is_node(Role role) const { return role >= 1 && role <= nodes; }
  bool is_client(Role role) const { return role > nodes && role < roles(); }
};

Plan make_plan(uint64_t seed);

}  // namespace loam::sim
