// The workload of suite gc: the memory management of a storage node, in process, under a thread that rewrites records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/harness/measure.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "common/testing/random.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/server/background_thread.h"
#include "storage-node/src/server/write_throttle.h"
#include "storage-node/src/version/batch.h"

namespace loam::bench {

/// A row of 200 bytes. Its words follow from its key and the transaction that wrote it, so every copy can be checked.
struct ChurnRow {
  std::array<uint64_t, 25> words;

  static ChurnRow of(uint64_t key, uint64_t version) {
    ChurnRow row;
    for (uint64_t i = 0; i < row.words.size(); ++i) row.words[i] = key + version * (2 * i + 1);
    return row;
  }
};
static_assert(sizeof(ChurnRow) == 200);

/// Default number of puts of one epoch guard and one transaction.
inline constexpr size_t kChurnBatch = storage::ExecuteOptions{}.group;

/// Options of one run.
struct ChurnOptions {
  size_t records = 0;  ///< records that are loaded
  /// The loaded records form groups of this many neighbours. The run rewrites one record of each group, which the
  /// seed chooses. 2: a random half of all records is rewritten.
  size_t key_stride = 2;
  size_t puts = 0;  ///< puts after the load
  /// Number of puts of one epoch guard and one transaction.
  size_t batch = kChurnBatch;
  /// How the puts of a guard are executed.
  storage::ExecuteOptions execution = {};
  bool compaction = true;
  /// Run no background thread while records are rewritten. The writing thread executes steps of compaction after each
  /// transaction until none is left. The moved entries then do not depend on the speed of threads.
  bool synchronous_compaction = false;
  /// Keep one snapshot open for the whole run, taken after the load.
  bool long_snapshot = false;
  /// False: publications name that snapshot as a lower bound alone, and compaction keeps every later version. True:
  /// compaction also collects versions between two snapshots (R20, garbage and tombstones).
  bool interval_rule = true;
  /// Measure the wall-clock latency of every put in ChurnResult::put_latencies_ns.
  bool time_puts = false;
  uint64_t seed = 0;
};

/// The put rate in one interval.
struct Window {
  double at_s = 0;  ///< end of the interval, wall-clock time since the first put
  double puts_per_s = 0;
};

/// The result of one run.
struct ChurnResult {
  std::vector<Window> cpu_windows;   ///< intervals of 100 ms of the writing thread's CPU time
  std::vector<Window> wall_windows;  ///< intervals of 100 ms of the wall clock
  std::vector<uint32_t> put_latencies_ns;
  size_t peak_bytes = 0;       ///< peak allocation of the pool, sampled every 128 puts
  double mean_log_bytes = 0;   ///< entries in listed pages, mean of the second half of the run
  size_t versions_at_end = 0;  ///< live entries of rewritten keys in listed pages
  size_t churned_keys = 0;
  double throttled_share = 0;  ///< share of the time for which the writing thread was slowed down
  size_t refused = 0;          ///< puts that got kNoSpace and were repeated
  size_t max_frees = 0;        ///< most objects freed at the end of one guard of the writing thread
  storage::CompactorStatistics compactor;
  uint64_t inline_zeroed_bytes = 0;
  double writer_ns = 0;      ///< CPU time of the writing thread for each put
  double background_ns = 0;  ///< CPU time of the other threads of the process for each put
};

/// The memory management of a storage node with one table: pool, epochs, compactor, registry and background thread, put
/// together as StorageNode does it. The calling thread acts as network thread and control thread; the background thread
/// runs on another core if there is one. Owner: the suite. Threads: one.
class ChurnedNode {
 public:
  ChurnedNode(size_t memory_bytes, size_t page_bytes, bool huge_pages = true);
  ~ChurnedNode();

  /// Loads `records` into a new table, rewrites them, and compares every record with its last write. Afterwards the
  /// table is gone and the pool is zeroed. Aborts the program if a record is wrong.
  ChurnResult run(const ChurnOptions& options);

  /// Bytes of one record in the log.
  static constexpr size_t kEntryBytes = storage::entry_size(sizeof(ChurnRow));

 private:
  class Trial;

  std::unique_ptr<PagePool> pool_;
  EpochDomain epochs_;
};

}  // namespace loam::bench
