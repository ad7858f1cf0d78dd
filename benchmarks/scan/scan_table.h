// A table in process with the parts of a storage node that a scan needs, and passes of queries over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "common/schema/chunk.h"
#include "common/schema/query.h"
#include "common/schema/row.h"
#include "common/schema/schema.h"
#include "common/snapshot/publication.h"
#include "storage-node/src/scan/scan_scheduler.h"
#include "storage-node/src/version/table.h"
#include "storage-node/src/version/version_source.h"

namespace loam::bench {

/// A table with its page pool, log and index. All rows have version kLoaded, and the keys are 0, 1, 2, …. Threads: one
/// at a time for loading and writes; several passes may run at once.
class ScanTable {
 public:
  static constexpr TableId kTable{1};
  static constexpr Version kLoaded{1};
  struct Options {
    size_t rows = 0;
    size_t text_bytes = 0;  ///< bytes of the texts of a row, on average or more; determines the memory of the table
    bool columns = false;   ///< compact the table, so that every full page is a column page
  };

  /// Loads the table. `row(i)` returns the row with key i; the bytes must be valid until the next call.
  ScanTable(std::shared_ptr<const Schema> schema, const Options& options, const std::function<Bytes(size_t)>& row);

  const std::shared_ptr<const Schema>& schema() const { return schema_; }
  EpochDomain& epochs() { return epochs_; }
  storage::Table& table() { return *table_; }
  size_t rows() const { return rows_; }
  /// Bytes of all entries with their rows.
  size_t bytes() const { return bytes_; }
  /// The words of each page.
  std::span<const std::span<const uint64_t>> pages() const { return pages_; }
  size_t column_pages() const { return column_pages_; }

  std::shared_ptr<storage::PinnedPages> pin(EpochThread& thread);
  /// Calls `f` with each row of the table. For tables without column pages.
  void for_each_row(const std::function<void(const RowView&)>& f);

 private:
  void compact();

  const std::shared_ptr<const Schema> schema_;
  const size_t rows_;
  std::unique_ptr<PagePool> pool_;
  EpochDomain epochs_;
  EpochThread thread_{epochs_, "bench"};
  storage::ThreadContext thread_context_{thread_, 0};
  storage::VersionSource versions_{Incarnation(1)};
  std::shared_ptr<storage::Table> table_;
  std::vector<std::span<const uint64_t>> pages_;
  size_t column_pages_ = 0;
  size_t bytes_ = 0;
};

/// Several queries that the scheduler of one scan thread computes together. Aborts the program if a query fails.
/// Threads: one at a time; several passes over the same table may run at once.
class ScanPass {
 public:
  /// The pass reads every page whose index in the page list is `part` modulo `parts`: the share of one of `parts` scan
  /// threads.
  ScanPass(ScanTable& table, std::span<const Query> queries, size_t part = 0, size_t parts = 1);
  ~ScanPass();

  /// Adds query `i` to the pass.
  void join(size_t i);
  /// Adds all queries.
  void join_all();
  /// Processes the next piece of work. False when none is left.
  bool step();
  /// Calls step() until no work is left.
  void finish();
  /// The result of query `i`, as a client receives it.
  std::span<const std::shared_ptr<const Chunk>> result(size_t i) const;
  /// Number of entries that query `i` has examined.
  uint64_t records(size_t i) const;
  /// Share of the pages that query `i` skipped.
  double skipped(size_t i) const;
  size_t pages_read() const { return scans_.statistics().pages; }

 private:
  class Sink;

  ScanTable& table_;
  EpochThread thread_;
  const size_t part_, parts_;
  const Publication publication_;
  const std::vector<Query> queries_;
  std::vector<std::unique_ptr<Sink>> sinks_;
  storage::ScanScheduler scans_;
};

}  // namespace loam::bench
