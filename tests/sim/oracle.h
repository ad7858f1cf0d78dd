// The oracle of a simulated run: it is told what clients do and see, and reports which promise of Loam was broken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/wire/catalog.h"
#include "tests/sim/added_field_model.h"
#include "tests/sim/index_model.h"
#include "tests/sim/invariants.h"
#include "tests/sim/losses.h"
#include "tests/sim/plain_model.h"
#include "tests/sim/session_model.h"
#include "tests/sim/table_model.h"
#include "tests/sim/transaction_model.h"
#include "tests/sim/tree_model.h"
#include "tests/sim/verdict.h"

namespace loam::sim {

/// Counters since the start of the run.
struct OracleStatistics {
  uint64_t transactions = 0;  ///< begun transactions, including read-only ones
  uint64_t commits = 0;       ///< acknowledged commits with writes
  uint64_t aborts = 0;        ///< transactions that ended by choice, conflict or error
  uint64_t unknown = 0;       ///< commits whose client crashed or was told kUnknownOutcome
  uint64_t resolved = 0;      ///< unknown commits that a later read has shown to be committed
  uint64_t reads = 0;         ///< point reads, without scanned rows
  uint64_t scans = 0;
  uint64_t plain_writes = 0;  ///< acknowledged
  uint64_t counter_numbers = 0;
  uint64_t tree_changes = 0;  ///< acknowledged
  uint64_t tables_created = 0;
  uint64_t crashes = 0;  ///< crashes of client processes
  /// Rises with everything that a client finishes. A cluster hangs if this does not rise for long after the last
  /// fault.
  uint64_t progress = 0;
};

/// The oracle of one run. The clients report what they did and saw to models of strong snapshot isolation, of
/// non-transactional tables, of counters, of indexes and of the catalog. A contradiction between a report and a model
/// is a violation of a named invariant (invariants.h).
///
/// **How transactions are judged.** Every row carries a tag that is unique in the run, and every record that is read
/// names the transaction that wrote it; so each read is attributed to one write. A reader must not see a write whose
/// transaction is open, was aborted, or asked for its commit only after the reader had begun. A reader must see a
/// write that was acknowledged, or seen by another reader, before it asked for its begin. Of two committed writers of
/// a record that follow each other, the later one must have seen the first. If a client crashes before it is told the
/// outcome of a commit, the first read of its writes decides that outcome, and later reads are judged by it.
/// Contradictions between several transactions are found at the end: final_check() orders all begins and commits by
/// everything that was seen, and a cycle is a violation.
///
/// **Losses.** A record may be missing only if its node lost its memory: node_lost(), loss_accepted() (losses.h says
/// what they excuse). A power cut at the commit manager's host excuses no missing record of a node; it may only undo
/// the last commits, each as a whole (transaction_model.h).
///
/// Owner: the run (the simulator, or a test); the oracle outlives all client processes. Threads: any; each function
/// holds one lock (the simulator has only one thread). No function waits. Cost: a look-up and a walk over the newest
/// writes of a key, about a microsecond; final_check() sorts, and is linear otherwise.
class Oracle {
 public:
  /// `now_ns` returns the run's time.
  explicit Oracle(std::function<uint64_t()> now_ns);
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;

  /// The run's time. Unlike the clock of a process, reading it takes no time of the run.
  uint64_t run_ns() const { return verdict_.now_ns(); }

  // ---- verdict --------------------------------------------------------------------------------------------------

  bool failed() const;
  /// The first violation: its invariant, the transactions and processes, the time, ids and tags.
  const std::string& message() const;
  /// The invariant of the first violation; empty if there is none.
  std::string_view invariant() const;
  /// Reports a violation. The simulator calls it too, for "progress" and other invariants that only it can check.
  void violate(std::string_view invariant, std::string_view text);

  // ---- reported by the simulator ----------------------------------------------------------------------------------

  /// All fibers of the process stop for ever: its open transactions are aborted, the outcomes of its running commits
  /// unknown.
  void client_crashed(uint32_t process);
  /// A storage node has lost its memory. `owned` says which records it stored, by the shard map of that moment.
  /// Called at the crash, whether or not the node ever returns. Returns the number of the loss.
  size_t node_lost(Losses::StoredOnNode owned);
  size_t node_lost(NodeId node, wire::ShardMap map);
  /// An operator accepts the loss. Called before the acceptance is sent to the commit manager.
  void loss_accepted(size_t loss);

  /// The node that serves the shards again knows of the acceptance.
  void loss_acknowledged(size_t loss);

  /// The node of the record lost its memory at some time after that moment.
  bool lost_since(RecordId place, LogicalTime from);

  /// A storage node has checked its memory while no transaction was open. `wrong`: the error that it found; empty:
  /// none. `intents`: number of intents that the node holds.
  void node_checked(std::string_view node, std::string_view wrong, uint64_t intents);

  /// Called after the last client has ended and audit() has read everything. No report may follow.
  void final_check();

  OracleStatistics statistics() const;

  // ---- reported by the workload -----------------------------------------------------------------------------------

  TransactionModel& transactions() { return transactions_; }
  PlainModel& plain() { return plain_; }
  TableModel& tables() { return tables_; }
  CounterModel& counters() { return counters_; }
  SessionModel& sessions() { return sessions_; }
  TreeModel& trees() { return trees_; }
  IndexModel& indexes() { return indexes_; }
  AddedFieldModel& added_fields() { return added_fields_; }
  /// The current logical time. The caller takes it before an operation and passes it with the operation's result.
  LogicalTime now();

 private:
  mutable Verdict verdict_;
  Losses losses_;
  IndexModel indexes_;
  TransactionModel transactions_;
  PlainModel plain_;
  TableModel tables_;
  AddedFieldModel added_fields_;
  CounterModel counters_;
  SessionModel sessions_;
  TreeModel trees_;
  uint64_t crashes_ = 0;
};

}  // namespace loam::sim
