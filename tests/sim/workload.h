// What the clients of a simulated cluster do: ordinary code against the public API that tells the oracle everything.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include <loam/client/client.h>

#include "common/testing/random.h"
#include "tests/sim/oracle.h"

namespace loam::sim {

/// Indexes of a run, as bits.
struct IndexSet {
  static constexpr uint32_t kHotByValue = 1;
  static constexpr uint32_t kHotByTag = 2;
  static constexpr uint32_t kWide = 4;
  static constexpr uint32_t kClaims = 8;  ///< with a table of its own
  static constexpr uint32_t kMade = 16;   ///< of tables that come and go
  static constexpr uint32_t kAll = 31;
};

/// A key that another client process is to insert and remove. A client refuses by itself what contradicts its own
/// commits, and storage nodes hear of no such conflict.
struct Errand {
  Key key;
  uint32_t process = 0;  ///< that asks
  bool done = false;
};
using Errands = std::deque<std::shared_ptr<Errand>>;

/// Sizes of a run; chosen from its seed.
struct WorkloadShape {
  bool cuts_calls = false;         ///< Process::cuts_calls
  uint32_t accounts = 24;          ///< records whose balances always add up to accounts * kFirstBalance
  uint32_t hot_keys = 16;          ///< of the table whose records come and go
  uint32_t plain_keys = 6;         ///< of the non-transactional table
  uint32_t wide_keys = 120;        ///< of the table whose records are long: it has many pages
  uint32_t wide_note_bytes = 600;  ///< longest note there
  uint32_t fibers = 5;             ///< of each client process
  uint32_t made_tables = 3;        ///< names under which tables are created and dropped while the run goes on
  uint32_t note_bytes = 40;        ///< longest note of a hot record: some pages fill
  uint64_t think_ns = 200'000;     ///< mean pause of a fiber between two operations
  uint64_t long_ns = 50'000'000;   ///< mean life of a long transaction
  uint64_t max_age_ns = 0;         ///< a transaction that is open for longer must not commit; 0: not judged
  bool slow_scans = false;         ///< clients pause between the chunks of a scan
  bool toggles = false;            ///< values of records go back and forth, and an index is built again and again
  bool late_inserts = false;       ///< with inserts of keys that have come and gone since the transaction's begin
  bool trees = false;              ///< with a fiber of each process that works on the Bd-tree of all
  bool older_folder = false;       ///< Process::older_folder
  uint32_t indexes = 0;            ///< of an IndexSet: tables whose records come and go have these
  uint32_t operations = 0;         ///< of each fiber, then it ends; 0: until stop()

  static WorkloadShape from(testing::Random& random);
};
inline constexpr int64_t kFirstBalance = 100;

struct WorkloadContext {
  client::Client& client;
  Oracle& oracle;
  testing::Random random;
  uint32_t process = 0;        ///< number of this start of a client process; unique in the run, from 1
  std::function<bool()> stop;  ///< true: finish, begin nothing new
  WorkloadShape shape{};
  Errands* errands = nullptr;  ///< of all processes; null: a fiber does them itself
};

/// Creates the tables and the first rows. Called once, before faults: an error is a violation ("set-up").
/// From an ordinary thread of process 0.
void set_up(client::Client& client, Oracle& oracle, const WorkloadShape& shape);

/// The body of a client process: opens the tables, spawns the fibers, returns when stop() holds (or `operations` are
/// done) and all have ended. From an ordinary thread.
void run_workload(WorkloadContext context);

/// Reads everything when no other client works and every fault is over: gets, scans, plain tables, tables. Then call
/// Oracle::final_check(). From an ordinary thread, with a client of its own. A read that fails is a violation
/// ("unreadable"): everything must work again by then, and every loss accepted.
void audit(client::Client& client, Oracle& oracle);

}  // namespace loam::sim
