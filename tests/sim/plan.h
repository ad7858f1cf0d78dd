// The meaning of a seed: the shape of a cluster, and its faults.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <loam/commit/log_device.h>

namespace loam::sim {

/// A place in the cluster that one process after another fills. Numbers: the commit manager is 0; then follow the
/// storage nodes, then the clients.
using Role = uint32_t;

/// The kinds of faults. `role`, `peer` and `amount` are fields of Fault.
enum class FaultKind : uint8_t {
  kCrash,                 ///< the role's process dies between two steps
  kCrashAtPoint,          ///< the process dies at the `amount`-th pause point that it passes
  kPause,                 ///< all threads of the process stand still, then continue
  kStallAtPoint,          ///< one thread stands still at the `amount`-th pause point
  kStallAndKillClients,   ///< a node's thread stands still at its `amount`-th pause point, and clients die at that
                          ///< moment
  kJitter,                ///< threads of the process stand still for some microseconds, at one pause point in `amount`
  kSlow,                  ///< the steps of the process take `amount` times as long
  kPartition,             ///< no message passes between two roles, in either direction
  kPartitionOneWay,       ///< no message passes from `role` to `peer`
  kReset,                 ///< connections between two roles break, `amount` times; messages in flight may arrive late
  kDelay,                 ///< messages between two roles take up to `amount` ns longer
  kRare,                  ///< threads take branches that are rare by themselves, once in `amount`
  kUnnoticedRestart,      ///< a node stops answering a client, dies `amount` ns later and returns, before that client
                          ///< hears of it
  kAtComplete,            ///< a fault meets a client's Complete or the reply to it; `amount` is an AtComplete
  kCrashManagerAtCommit,  ///< the commit manager dies at its next pause point with the name kCommitPoints[amount]
  kStallLog,              ///< no flush of the commit log ends
  kFullLog,               ///< the disk of the commit log is full
  kNodeCutFromManager,    ///< a node receives nothing from the commit manager and continues to serve
  kStaleManagerState,  ///< the commit manager dies; the next one starts on a copy of its folder that is `amount` ns old
  kLateFence,          ///< a client stands still, and continues when its session has ended and no node has the fence
                       ///< yet; `amount` is a LateFence
  kDropResponses,      ///< a node has executed a write and its replies are lost; when the client repeats the write,
                       ///< the node's lease is over
  kManagerWithoutPublications,  ///< the commit manager dies, publishes nothing after its restart, and dies again
  kPowerCut,    ///< no flush ends, then the commit manager's host loses power; `amount` 1: earlier, when an index
                ///< that is being built gets its next entry
  kInterleave,  ///< threads of a node stand still at the pause points of kInterleavings[amount]
  kAtSplit,     ///< all clients die while one of them splits a tree node; a storage node that loses its lease has a
                ///< write of that split in execution
};
/// Number of kinds that any plan may have: all kinds before kUnnoticedRestart. A plan has one of the others only if
/// it has the trait for it.
inline constexpr size_t kFaultKinds = 12;
/// The kind's name in messages, for example "crash".
std::string_view to_string(FaultKind kind);

/// The event around a client's Complete. "Before": the message has not left the client. "After": it has left, or is
/// about to.
enum class AtComplete : uint8_t {
  kDieBefore,
  kStallBefore,  ///< the client stands still until its session has ended and recovery is at work; then the Complete
                 ///< arrives
  kDieAfter,
  kStallAfter,
  kDropResponse,  ///< the client receives nothing from the commit manager for a while
  kManagerDies,   ///< the commit manager dies, about when the Complete arrives
};
inline constexpr size_t kAtCompletes = 6;

/// The next action of a client whose session has ended while no node has the fence yet.
enum class LateFence : uint8_t {
  kChangesIndexes,
  kChangesIndexesAfterRestart,  ///< the same after a restart of the commit manager, which has ended the session
  kReadsIndexes,
};
inline constexpr size_t kLateFences = 3;

/// The pause points of a commit at the commit manager and in its log, in order.
inline constexpr std::array<std::string_view, 7> kCommitPoints = {
    "manager.commit.before_append", "manager.commit.appended", "manager.log.appended",     "manager.log.written",
    "manager.log.flushed",          "manager.log.renamed",     "manager.complete.answered"};

/// Two pause points at which threads of one node meet: the first thread stands still at `first`; the next thread that
/// reaches `second` stands still there for a little longer. An empty `second` holds no second thread.
struct Interleaving {
  std::string_view first;
  std::string_view second;
};
/// The pairs that a plan chooses from. A pair that is listed twice is chosen twice as often.
inline constexpr std::array<Interleaving, 10> kInterleavings = {{
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

/// The value of `--commit-log` that names the mode.
std::string_view to_string(commit::CommitLogMode mode);

/// One fault of a plan: it begins at `at_ns` and lasts for `for_ns`. The other fields depend on the kind.
struct Fault {
  FaultKind kind = FaultKind::kCrash;
  uint64_t at_ns = 0;
  uint64_t for_ns = 0;
  Role role = 0;
  Role peer = 0;
  uint64_t amount = 0;
};
/// The commit manager dies just before this fault of its log ends.
inline bool kills_manager(const Fault& fault) {
  return (fault.kind == FaultKind::kStallLog || fault.kind == FaultKind::kFullLog) && fault.at_ns % 2 == 0;
}
/// One line about the fault, for example "crash of node 1 at 310 ms".
std::string describe(const Fault& fault, uint32_t nodes);

/// Everything that a seed decides before the first event.
struct Plan {
  uint64_t seed = 0;
  // The cluster.
  uint32_t nodes = 2;
  uint32_t clients = 3;
  uint32_t network_threads = 1;
  uint64_t page_bytes = 0;
  uint64_t memory_bytes = 0;  ///< of one node
  bool columns = false;       ///< the compactor rewrites versions that are old enough as column pages
  bool compaction = false;    ///< the compactor works without end: it also rewrites pages with next to no garbage
  uint64_t client_lease_ns = 0;
  uint64_t node_lease_ns = 0;
  uint64_t max_transaction_age_ns = 0;
  uint64_t publish_interval_ns = 0;
  uint64_t young_ns = 100'000'000;  ///< publications list older snapshots one by one
  uint64_t ids_ahead = 0;
  commit::CommitLogMode log_mode = commit::CommitLogMode::kOs;  ///< kNone only if the commit manager does not die
  bool log_preallocates = true;                                 ///< the log's file system supports preallocation
  bool power_cuts = false;                ///< half of the commit manager's deaths are power cuts of its host
  uint64_t outcome_keep_ns = 0;           ///< minimum time for which the commit log keeps an outcome
  uint64_t intent_memory_bytes = 0;       ///< of one node
  std::vector<int64_t> clock_ppm;         ///< by role
  std::vector<uint64_t> clock_offset_ns;  ///< by role
  uint64_t max_delay_ns = 0;              ///< longest delay of a message while no fault lasts
  uint64_t max_end_delay_ns = 0;          ///< longest time until an end of a broken connection is noticed
  uint64_t restart_after_ns = 0;          ///< mean time until a dead process is started again
  uint64_t accept_loss_after_ns = 0;      ///< time until the operator accepts a loss, while faults last
  uint64_t operator_ns = 0;               ///< interval at which the operator polls the cluster
  // The load.
  uint32_t accounts = 0;
  uint32_t hot_keys = 0;
  uint32_t fibers = 0;    ///< of one client
  uint64_t think_ns = 0;  ///< mean pause between two operations of a fiber
  uint64_t long_ns = 0;   ///< mean duration of a long transaction
  // Traits: combinations that reach places which hardly any other plan would reach. Most plans have none.
  bool late_inserts = false;  ///< clients insert keys that were inserted and removed again since the transaction's
                              ///< begin
  bool short_chunks = false;  ///< scans send short chunks, and clients read them slowly
  bool toggles = false;       ///< values of records go back and forth, and an index is built again and again
  bool trees = false;         ///< clients also work on a Bd-tree
  bool adds_fields = false;   ///< clients also add fields to tables, and scan these in transactions that write
  uint32_t indexes = 0;       ///< bits of an IndexSet (workload.h); every plan has some
  // The faults, in order of time. All end by faults_end_ns.
  std::vector<Fault> faults;
  uint64_t faults_end_ns = 0;

  uint32_t roles() const { return 1 + nodes + clients; }
  bool is_node(Role role) const { return role >= 1 && role <= nodes; }
  bool is_client(Role role) const { return role > nodes && role < roles(); }
};

/// Derives the plan from the seed. The same seed gives the same plan.
Plan make_plan(uint64_t seed);

}  // namespace loam::sim
