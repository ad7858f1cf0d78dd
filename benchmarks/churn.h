// What suite gc runs: a storage node's memory management in process, under a thread that rewrites records.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "benchmarks/measure.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "common/testing/random.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/server/background_thread.h"
#include "storage-node/src/server/write_pace.h"
#include "storage-node/src/version/batch.h"

namespace loam::bench {

/// A row of 200 bytes whose words follow from its key and the transaction that wrote it.
struct ChurnRow {
  std::array<uint64_t, 25> words;

  static ChurnRow of(uint64_t key, uint64_t version) {
    ChurnRow row;
    for (uint64_t i = 0; i < row.words.size(); ++i) row.words[i] = key + version * (2 * i + 1);
    return row;
  }
};
static_assert(sizeof(ChurnRow) == 200);

/// Puts of one guard and one transaction, if nothing else is said.
inline constexpr size_t kChurnBatch = storage::ExecuteOptions{}.group;

struct ChurnOptions {
  size_t records = 0;
  /// The records that are rewritten: one of every so many neighbours, by chance. 2: a random half.
  size_t one_of = 2;
  size_t puts = 0;
  /// Puts of one guard and one transaction.
  size_t batch = kChurnBatch;
  /// How the puts of a guard are executed.
  storage::ExecuteOptions execution = {};
  bool compaction = true;
  /// No background thread while records are rewritten: the writing thread takes steps of compaction after each
  /// transaction until nothing is left to do. What is moved then does not depend on how fast the threads are.
  bool in_step = false;
  /// One snapshot, taken after the load, stays open for the whole run.
  bool long_snapshot = false;
  /// Off: publications name that snapshot as a floor alone, under which everything later is kept.
  bool interval_rule = true;
  /// Time every put (wall clock) in ChurnResult::took_ns.
  bool time_puts = false;
  uint64_t seed = 0;
};

/// Puts of one stretch of time.
struct Window {
  double at_s = 0;  ///< its end, by the wall clock, since the first put
  double puts_per_s = 0;
};

struct ChurnResult {
  std::vector<Window> cpu_windows;   ///< of 100 ms of the writing thread's CPU time
  std::vector<Window> wall_windows;  ///< of 100 ms of the wall clock
  std::vector<uint32_t> took_ns;
  size_t peak_bytes = 0;       ///< the most the pool had handed out, looked at every 128 puts
  double mean_log_bytes = 0;   ///< of entries in listed pages, over the second half of the run
  size_t versions_at_end = 0;  ///< live entries of churned keys in listed pages
  size_t churned_keys = 0;
  double paced_share = 0;  ///< of the rewriting: the thread slept because compaction was behind
  size_t refused = 0;      ///< puts that got kNoSpace and were tried again
  size_t most_frees = 0;   ///< objects freed at the end of one guard of the writing thread
  storage::CompactorStatistics compactor;
  uint64_t inline_zeroed_bytes = 0;
  double writer_ns = 0;      ///< CPU time of the writing thread, a put
  double background_ns = 0;  ///< CPU time of the process's other threads, a put
};

/// Role: pool, epochs, compactor, registry and background thread of a node, put together as StorageNode does it, and
/// one table. The calling thread is network thread and control thread in one; the background thread runs on another
/// core where there is one. Owner and thread: the suite.
class ChurnedNode {
 public:
  ChurnedNode(size_t memory_bytes, size_t page_bytes, bool huge_pages = true);
  ~ChurnedNode();

  /// Loads `records` into a new table, rewrites them, and compares every record with what was written last. The table
  /// is gone afterwards, and the pool zeroed.
  ChurnResult run(const ChurnOptions& options);

  /// Bytes that the log needs for one record.
  static constexpr size_t kEntryBytes = storage::entry_size(sizeof(ChurnRow));

 private:
  class Session;

  std::unique_ptr<PagePool> pool_;
  EpochDomain epochs_;
};

}  // namespace loam::bench
