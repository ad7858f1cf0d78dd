// The load of a simulated cluster: clients that use the public API and report every call and result to the oracle.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include <loam/client/client.h>

#include "common/testing/random.h"
#include "tests/sim/oracle.h"

namespace loam::sim {

/// The indexes of a run, as bits.
struct IndexSet {
  static constexpr uint32_t kHotByValue = 1;
  static constexpr uint32_t kHotByTag = 2;
  static constexpr uint32_t kWide = 4;
  static constexpr uint32_t kUniqueTable = 8;  ///< unique, on a table of its own
  static constexpr uint32_t kDynamic = 16;     ///< on the tables that clients create and drop
  static constexpr uint32_t kAll = 31;
};

/// A key that another client process is to insert and remove. A client refuses a local conflict by itself, so storage
/// nodes would never see the conflict; a write of another process does reach them.
struct DelegatedWrite {
  Key key;
  uint32_t process = 0;  ///< the process that asks
  bool done = false;
};
using DelegatedWrites = std::deque<std::shared_ptr<DelegatedWrite>>;

/// Sizes of the load, chosen from the seed of the run.
struct WorkloadShape {
  bool limits_call_time = false;        ///< ClientProcess::limits_call_time
  uint32_t accounts = 24;               ///< records whose balances always add up to accounts * kFirstBalance
  uint32_t hot_keys = 16;               ///< keys of the table whose records clients insert and remove
  uint32_t plain_keys = 6;              ///< keys of the non-transactional table
  uint32_t wide_keys = 120;             ///< keys of the table with long records, which has many pages
  uint32_t wide_note_bytes = 600;       ///< longest note in that table
  uint32_t fibers = 5;                  ///< fibers of each client process
  uint32_t dynamic_tables = 3;          ///< names under which clients create and drop tables during the run
  uint32_t note_bytes = 40;             ///< longest note of a hot record; long enough to fill some pages
  uint64_t think_ns = 200'000;          ///< mean pause of a fiber between two operations
  uint64_t long_ns = 50'000'000;        ///< mean duration of a long transaction
  uint64_t max_age_ns = 0;              ///< a transaction that is open for longer must not commit; 0: not judged
  bool slow_scans = false;              ///< clients pause between the chunks of a scan
  bool toggles = false;                 ///< values of records go back and forth, and an index is built again and again
  bool late_inserts = false;            ///< clients insert keys that were inserted and removed again since the
                                        ///< transaction's begin
  bool trees = false;                   ///< each process has one more fiber, which works on a Bd-tree that all
                                        ///< processes share
  bool adds_fields = false;             ///< clients add fields to the tables that they create, and scan these in
                                        ///< transactions that write
  bool may_meet_stale_manager = false;  ///< ClientProcess::may_meet_stale_manager
  uint32_t indexes = 0;                 ///< bits of an IndexSet
  uint32_t operations = 0;              ///< operations of each fiber, after which it ends; 0: until stop()

  /// Draws a shape.
  static WorkloadShape from(testing::Random& random);
};
/// The balance of each account when it is created.
inline constexpr int64_t kFirstBalance = 100;

/// The parameters of run_workload().
struct WorkloadContext {
  client::Client& client;
  Oracle& oracle;
  testing::Random random;
  uint32_t process = 0;        ///< number of this start of a client process; unique in the run, from 1
  std::function<bool()> stop;  ///< true: finish the current operation, begin no other
  WorkloadShape shape{};
  DelegatedWrites* delegated_writes = nullptr;  ///< the queue that all processes share; null: a fiber does such a
                                                ///< write itself
};

/// Creates the tables and the first rows. Called once, before any fault: an error is a violation ("set-up"). Runs on
/// an ordinary thread of process 0.
void set_up(client::Client& client, Oracle& oracle, const WorkloadShape& shape);

/// The body of a client process: opens the tables, spawns the fibers, and returns when all fibers have ended because
/// stop() returned true or `operations` are done. Runs on an ordinary thread.
void run_workload(WorkloadContext context);

/// Reads everything when no other client works and all faults are over: gets, scans, non-transactional tables, the
/// list of tables. The caller calls Oracle::final_check() afterwards. Runs on an ordinary thread, with a client of
/// its own. A read that fails is a violation ("unreadable"), because all faults are repaired and all losses accepted
/// by then.
void audit(client::Client& client, Oracle& oracle);

}  // namespace loam::sim
