// Garbage collection of a node: rewrites pages that hold much garbage, in small steps, without any scan. [Thesis 4.6;
// MV-RLU]
//
//     Compactor compactor(options, pool, epochs);
//     compactor.add(table);                       // any thread: with the registry's insertion
//     compactor.publish(publication);             // any thread: each publication of the commit manager (R13)
//     while (running) { if (!compactor.step(thread, 256)) wait_a_little(); }     // one background thread
//     compactor.drop(id);                         // any thread: after the registry let go of the table
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "common/base/ids.h"
#include "common/base/thread.h"
#include "common/memory/page_pool.h"
#include "common/snapshot/publication.h"
#include "storage-node/src/log/thread_context.h"
#include "storage-node/src/version/table.h"

namespace loam::storage {

/// Which tables' cold pages are rewritten column by column. A scan of a column page costs a fraction, a point read some
/// cache misses more: one for each field.
enum class ColumnPolicy : uint8_t {
  kNever,
  kScanned,  ///< those of tables that are scanned now and then
  kAlways,
};

struct CompactorOptions {
  /// A table with a larger share of (estimated) garbage is compacted: its pages with more than that.
  double dead_share = 0.25;
  /// Pages with a smaller share are left alone, also when memory is short: rewriting them frees too little.
  double min_page_dead_share = 0.05;
  /// Above this fill of the pool every table is compacted, the one with most garbage first: pages with twice
  /// `dead_share` and more, then with less and less of it down to `min_page_dead_share`, when what a job may need is
  /// all the room that is left.
  double pressure_fill = 0.7;
  /// A table whose gets walk more entries than this beyond the first, on average since the last look, is compacted too.
  double max_mean_hops = 2.0;
  /// Full pages that one job rewrites at most (more of smaller ones, and small ones up to a page besides): bounds its
  /// need of reserve, and the memory held while it waits for epochs.
  size_t max_sources = 4;
  /// Jobs under way at one time: one waits for an epoch while another one moves.
  size_t max_jobs = 4;
  /// A page whose superseded versions are still seen is left alone for so many publications, twice as long each time.
  uint64_t backoff_publications = 2;
  ColumnPolicy columns = ColumnPolicy::kScanned;
  /// A page is cold when nothing in it was superseded for so many publications.
  uint64_t cold_publications = 100;
  /// A table is one that is scanned for so many publications after a scan has begun.
  uint64_t scanned_publications = 10'000;
  /// A job that has fewer rows for column pages writes them as rows.
  size_t min_column_rows = 256;
};

/// Counters since start; read by any thread.
struct CompactorStatistics {
  uint64_t pages_rewritten = 0;
  uint64_t pages_freed = 0;
  uint64_t bytes_moved = 0;
  uint64_t entries_moved = 0;
  uint64_t entries_fetched = 0;  ///< looked at ahead of moving or verifying them
  uint64_t versions_collected = 0;
  uint64_t tombstones_collected = 0;
  uint64_t jobs_without_room = 0;  ///< given up for want of target pages; tried again later
  uint64_t futile_walks = 0;       ///< pages that an open snapshot keeps from being worth a rewrite
  uint64_t column_pages = 0;       ///< written
  uint64_t column_rows = 0;        ///< written to them
  uint64_t pages_waiting = 0;      ///< retired, not yet freed: an epoch or a pin holds them
};

class TableCompactor;

/// Role: decides which table is compacted and steps its state machine; frees dropped tables. Owner: the node. Threads:
/// step() by one thread; add(), drop(), publish() and statistics() by any. Ends before the pool and the epochs; no
/// thread uses the tables any more then, and no scan pins a page.
class Compactor {
 public:
  Compactor(const CompactorOptions& options, PagePool& pool, EpochDomain& epochs);
  ~Compactor();
  Compactor(const Compactor&) = delete;
  Compactor& operator=(const Compactor&) = delete;

  void add(std::shared_ptr<Table> table);
  /// The registry has let go of the table: no operation begins on it any more. Ongoing operations and scans end in
  /// peace; then its memory is given back.
  void drop(TableId table);
  /// The newest publication, after the node's requests have been given it. The compactor uses it only after an epoch,
  /// when every request that was admitted under an older one has ended (R13).
  void publish(std::shared_ptr<const Publication> publication);

  /// Looks at up to `budget` entries, and does at most a few constant pieces of work besides. Enters epoch guards of
  /// its own: the caller is in none. False: nothing to do but to wait (for epochs, pins, garbage).
  bool step(ThreadContext& thread, size_t budget);
  /// For the stepping thread: there is something that only waits for an epoch or a pin, so that a step soon may do
  /// something though nothing new comes. Otherwise only garbage, a publication or a dropped table makes work.
  bool waits() const;

  /// For the stepping thread: garbage is being collected. While that is so and memory runs short, writers are faster.
  bool collecting() const;

  CompactorStatistics statistics() const;

 private:
  const CompactorOptions options_;
  PagePool& pool_;
  EpochDomain& epochs_;

  void take_mail(ThreadContext& thread);
  bool free_memory();
  bool start_job(ThreadContext& thread);
  double hurry() const;

  mutable Mutex mutex_;
  // Guarded by mutex_: what other threads left for the stepping thread, and what it left for them.
  std::vector<std::shared_ptr<Table>> added_;
  std::vector<TableId> dropped_;
  std::shared_ptr<const Publication> offered_;
  CompactorStatistics statistics_;

  // Stepping thread only.
  CompactorStatistics working_;
  std::vector<std::unique_ptr<TableCompactor>> tables_;
  std::shared_ptr<const Publication> waiting_;  // taken from offered_, becomes usable_ when its epoch has passed
  uint64_t waiting_epoch_ = 0;
  std::shared_ptr<const Publication> usable_;
  uint64_t turn_ = 0;  // counts the changes of usable_
  size_t next_job_ = 0;
  size_t next_look_ = 0;
};

}  // namespace loam::storage
