// The judge of a simulated run: is told what clients do and see, and says which promise of Loam was broken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/wire/catalog.h"
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

/// Counted since the start of the run.
struct OracleStatistics {
  uint64_t transactions = 0;  ///< begun, read-only ones included
  uint64_t commits = 0;       ///< acknowledged, with writes
  uint64_t aborts = 0;        ///< by choice, by conflict, by error
  uint64_t unknown = 0;       ///< commits whose client crashed, or was told kUnknownOutcome
  uint64_t resolved = 0;      ///< of the unknown: those that were seen to be committed
  uint64_t reads = 0;         ///< point reads, scanned rows not included
  uint64_t scans = 0;
  uint64_t plain_writes = 0;  ///< acknowledged
  uint64_t counter_numbers = 0;
  uint64_t tree_changes = 0;  ///< acknowledged
  uint64_t tables_created = 0;
  uint64_t crashes = 0;  ///< client processes
  /// Rises with everything that a client got done. What does not rise for long after the last fault hangs.
  uint64_t progress = 0;
};

/// The oracle of one run. Models of strong snapshot isolation, of exact-version tables, of counters and of the catalog
/// are fed with what clients did and saw; what contradicts them is a violation of a named invariant (invariants.h).
///
/// **How transactions are judged.** Every row carries a tag that is unique in the run, every record read names the
/// transaction that wrote it; so each read is attributed to one write. A reader must not see a write whose transaction
/// is open, was aborted, or asked for its commit only after the reader had begun. A reader must see a write that was
/// acknowledged, or seen by another reader, before it asked for its begin. Of two committed writers of a record that
/// follow each other, the later one must have seen the first. If a client crashes before it is told the outcome of a
/// commit, the first read of its writes decides that outcome, and later reads are judged by it. Contradictions between
/// several transactions are found at the end: final_check() orders all begins and commits by everything that was seen,
/// and a cycle is a violation.
///
/// **Losses.** The only excuse is a node that lost its memory: node_lost(), loss_accepted() (losses.h says what they
/// excuse). A power cut at the commit manager's host is no excuse for any node's records; what it may take is the last
/// commits, whole (transaction_model.h).
///
/// Owner: the run (the simulator's world, or a test); outlives all client processes. Threads: the simulator is one;
/// elsewhere any, each entry takes one lock. No entry waits. Cost: a look-up and a walk over the newest writes of a
/// key, about a microsecond; final_check() sorts, and is linear otherwise.
class Oracle {
 public:
  /// `now_ns`: the run's time, for messages only.
  explicit Oracle(std::function<uint64_t()> now_ns);
  Oracle(const Oracle&) = delete;
  Oracle& operator=(const Oracle&) = delete;

  // ---- verdict --------------------------------------------------------------------------------------------------

  bool failed() const;
  /// The first violation: its name, who, when, ids and tags.
  const std::string& message() const;
  /// Its name; empty if there is none.
  std::string_view invariant() const;
  /// For the world too ("progress" and what else only it can see).
  void violate(std::string_view invariant, std::string_view text);

  // ---- told by the world ----------------------------------------------------------------------------------------

  /// Every fiber of that process stands still for ever: what it had open is aborted, what it was committing is unknown.
  void client_crashed(uint32_t process);
  /// A storage node has lost its memory now; `owned` says which records lay there (by the shard map of that moment).
  /// Returns the loss's number. Told at the crash, whether or not the node ever comes back.
  size_t node_lost(Losses::Owned owned);
  size_t node_lost(NodeId node, wire::ShardMap map);
  /// An operator has accepted it (told before the acceptance is sent to the commit manager).
  void loss_accepted(size_t loss);

  /// The node that serves the shards again has heard of it.
  void loss_told(size_t loss);

  /// The record's node was lost at some time after that moment.
  bool lost_since(Place place, Moment from);

  /// A storage node has checked its memory when no transaction was open any more. `wrong` names the fault that it found
  /// (empty: none), `intents` counts the intents that it holds.
  void node_checked(std::string_view node, std::string_view wrong, uint64_t intents);

  /// After the last client ended and audit() has read everything. Nothing may be told after it.
  void final_check();

  OracleStatistics statistics() const;

  // ---- told by the workload -------------------------------------------------------------------------------------

  TransactionModel& transactions() { return transactions_; }
  PlainModel& plain() { return plain_; }
  TableModel& tables() { return tables_; }
  CounterModel& counters() { return counters_; }
  SessionModel& sessions() { return sessions_; }
  TreeModel& trees() { return trees_; }
  IndexModel& indexes() { return indexes_; }
  /// Of the moment: the start of an operation whose end is told later.
  Moment now();

 private:
  mutable Verdict verdict_;
  Losses losses_;
  IndexModel indexes_;
  TransactionModel transactions_;
  PlainModel plain_;
  TableModel tables_;
  CounterModel counters_;
  SessionModel sessions_;
  TreeModel trees_;
  uint64_t crashes_ = 0;
};

}  // namespace loam::sim
