// One query of a shared scan.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"
#include "common/snapshot/publication.h"
#include "common/snapshot/snapshot.h"
#include "common/wire/storage.h"
#include "storage-node/src/log/page_list.h"
#include "storage-node/src/log/row_schemas.h"
#include "storage-node/src/scan/block_values.h"
#include "storage-node/src/scan/filter.h"
#include "storage-node/src/scan/interval_index.h"
#include "storage-node/src/scan/output.h"
#include "storage-node/src/scan/query_memory.h"

namespace loam::storage {

/// Identifies a query at one scheduler. The user of the scheduler chooses it.
using ScanId = uint64_t;

/// Receives the results of scans. The driver (server, simulator, tests) implements it; it outlives its queries. The
/// functions of ScanScheduler call it, in their thread. It must not call the scheduler.
class ScanSink {
 public:
  virtual ~ScanSink() = default;
  /// Receives one chunk of the query's partial schema; the chunk has used one credit. The bytes are valid during the
  /// call. A sink that copies them keeps `memory` as long as the copy.
  virtual void chunk(ScanId id, Bytes bytes, ChunkMemory memory) = 0;
  /// Receives the progress of a query that has asked for it (ScanSpec::progress_interval_ns).
  virtual void progress(ScanId id, const wire::ScanStatistics& statistics) = 0;
  /// Receives the end of a query, after its last chunk. `status` is kOk or says why the query ended early. The query no
  /// longer exists.
  virtual void done(ScanId id, const Status& status, const wire::ScanStatistics& statistics) = 0;
};

/// The input of a query.
struct ScanSpec {
  TableId table;
  TableKind kind = TableKind::kTransactional;
  std::shared_ptr<const Schema> schema;
  /// The schemas of rows with other numbers of added fields, in `storage`; null: all rows have `schema`.
  const RowSchemas* schemas = nullptr;
  /// Keeps the table's storage alive; may be null if another object does.
  std::shared_ptr<const void> storage{};
  /// The page list as of the moment when the query joined, pinned (R23, immutable page list). All parts of a scan share
  /// it.
  std::shared_ptr<PinnedPages> pages;
  /// This query reads the pages with index % parts == part. Several scan threads share one scan; each has a scheduler
  /// of its own. The client merges their results with those of the storage nodes.
  size_t part = 0;
  size_t parts = 1;     ///< number of scan threads that share the scan
  Snapshot snapshot{};  ///< ignored for non-transactional tables
  Query query;          ///< checked against the schema
  /// Says which keys the scan returns (R26, shards of a scan); empty: all keys. It is called for selected rows only.
  std::function<bool(Key)> owns{};
  /// Keys of records that the scan leaves out, ascending; null: none. All parts of a scan share them.
  std::shared_ptr<const std::vector<Key>> without{};
  uint32_t credits = 0;     ///< chunks that may be sent at once
  uint64_t arrived_ns = 0;  ///< when the scan arrived at the storage node; 0: when the query joins
  uint64_t deadline_ns = std::numeric_limits<uint64_t>::max();  ///< the query ends with kTimeout then
  uint64_t progress_interval_ns = 0;  ///< minimum time between two calls of ScanSink::progress(); 0: no calls
};

/// One query of a shared scan: its pending pages, its result so far, and its credits.
///
/// Role: the state of a query under way. Owner: its ScanPass. Threads: one. Life: from ScanScheduler::join() to
/// ScanSink::done().
///
/// Invariants:
/// 1. Each of its pages is pinned and pending, or has been walked to its fill mark and is unpinned. A page that the
///    query has left in its middle is pending, with the entry at which the query continues.
/// 2. The query holds at most one chunk without a credit, and consumes no row while it does.
/// 3. The query acquires all memory that it holds from QueryMemory first. If it cannot, it ends with kOverloaded. The
///    exception is a complete chunk while other chunks of the query are on their way: the chunk waits, because their
///    memory will be released.
class ScanQuery final : private GroupSink {
 public:
  /// `bound` is the query of `spec` with the numbers of the values that it will consume. `memory` null: no limit.
  ScanQuery(ScanId id, ScanSpec spec, BlockValues::BoundQuery bound, ScanSink& sink, uint64_t now_ns,
            QueryMemory* memory);
  /// Acquires the memory for the query itself. The caller calls it first. kOverloaded: there is no memory for it.
  Status admit();
  ScanQuery(const ScanQuery&) = delete;
  ScanQuery& operator=(const ScanQuery&) = delete;

  ScanId id() const { return id_; }
  const ScanSpec& spec() const { return spec_; }
  /// Returns whether the scan returns only some of the keys, so that each selected row is tested by returns().
  bool filters_keys() const { return spec_.owns != nullptr || spec_.without != nullptr; }
  /// Returns whether the scan returns the record of a key.
  bool returns(Key key) const {
    if (spec_.without != nullptr && std::ranges::binary_search(*spec_.without, key)) return false;
    return spec_.owns == nullptr || spec_.owns(key);
  }
  const BlockValues::BoundQuery& bound() const { return bound_; }

  /// Returns whether the query has pages to read and can consume rows.
  bool eligible() const { return !ended_ && more_rows() && !(output_->full() && (credits_ == 0 || short_of_memory_)); }
  /// Returns whether the query needs no further row and has not ended yet.
  bool complete() const { return !ended_ && !more_rows(); }
  /// Returns whether, at the last advance(), the query had a chunk to send and no credit or no memory for it.
  bool blocked() const { return blocked_; }
  /// Returns whether the query waits until the network has taken chunks of it. The network sends no notice of that, so
  /// the scheduler has to poll.
  bool short_of_memory() const { return short_of_memory_; }
  /// Returns the time at which the query became blocked. Undefined unless blocked().
  uint64_t blocked_since_ns() const { return blocked_since_ns_; }
  bool ended() const { return ended_; }
  /// Returns whether the query has begun to read.
  bool started() const { return started_; }
  /// Returns the number of pages that the query has not finished.
  size_t pages_left() const { return pending_.size(); }
  /// Returns the statistics so far, without the elapsed time.
  const wire::ScanStatistics& statistics() const { return statistics_; }

  static constexpr uint64_t kNoPage = std::numeric_limits<uint64_t>::max();
  /// Returns the lowest number, from `from` on, of a pending page; kNoPage if there is none.
  uint64_t next_page(uint64_t from) const {
    const auto next = pending_.lower_bound(from);
    return next == pending_.end() ? kNoPage : next->first;
  }
  /// Returns the page if it is pending; null otherwise.
  Page* page(uint64_t number) const {
    const auto found = pending_.find(number);
    return found == pending_.end() ? nullptr : (*spec_.pages)[found->second.index];
  }
  /// Returns the entry at which the query continues in a pending page; null: the first entry.
  const Entry* resume_entry(uint64_t number) const { return pending_.at(number).resume_at; }

  const CompiledSelection& selection() const { return selection_; }
  /// Returns the query in the form for an interval index, if an index can answer it: aggregates of numbers over one
  /// range of one field, with groups or without, and without a filter of keys. Returns nullopt otherwise, and if there
  /// is no memory for the groups of an index.
  std::optional<RangeQuery> range_query();
  /// Returns the range of such a query; nullopt if an interval index cannot answer it.
  static std::optional<KeyRange> index_range(const Schema& schema, const Query& query,
                                             const CompiledSelection& selection);
  /// Returns the rows for which a column of the result is an error.
  RowMask failed(BlockValues& values) const;
  /// Returns the error of such a row.
  Status error(BlockValues& values, size_t row) const;

  /// Finishes a pending page without reading it if no row of it can be selected. Returns whether it did.
  bool skip_if_excluded(uint64_t number, uint64_t now_ns);
  /// Notes that a walk over this pending page begins or continues for the query.
  void start_page(uint64_t number, uint64_t now_ns);
  /// Consumes the selected rows of one block of page `number`; `next` is the entry behind the block. Sends chunks that
  /// become full. Returns false if the query consumes no further row (it is blocked, satisfied or ended), and records
  /// the place at which it continues.
  bool consume(uint64_t number, BlockValues& values, RowMask rows, const Entry* next);
  /// Adds the entries of a walk in which the query took part to its statistics; `busy_ns` is its share of the time.
  void add_cost(uint64_t entries, uint64_t busy_ns) {
    statistics_.records += entries - std::exchange(excluded_entries_, 0);
    statistics_.busy_ns += busy_ns;
  }
  /// Excludes entries of the walk under way that lie before the query's place from the next add_cost().
  void exclude_entries(uint64_t entries) { excluded_entries_ += entries; }
  /// Unpins a page that was walked to the fill mark as of the begin of the walk. The query's snapshot sees no entry
  /// behind that mark.
  void finish_page(uint64_t number);

  /// Sends the chunks that credits and memory allow; ends the query if it is complete.
  void advance(uint64_t now_ns);
  void add_credits(uint32_t credits);
  /// Reports the progress to the sink if that is due. Returns when the next report is due.
  uint64_t report_progress(uint64_t now_ns);
  /// Ends the query, drops its result, and unpins its pages.
  void end(Status status);

  /// Reports the end to the sink. The pass calls it once, when ended() has become true.
  void report_end(uint64_t now_ns);

 private:
  struct Pending {
    size_t index = 0;                  // index of the page in spec_.pages
    const Entry* resume_at = nullptr;  // the entry at which the query continues; null: the first entry
  };

  Accumulator* accumulators(const BlockGroups::Keys& group) override;
  void start(uint64_t now_ns);
  bool more_rows() const { return !pending_.empty() && !output_->satisfied(); }
  /// Sends the chunk under construction. Returns false if there is no credit or no memory yet, or the query ended.
  bool send_chunk();
  /// Charges the growth of the chunk under construction to the account. Without memory it ends the query and returns
  /// false.
  bool charge_chunk();
  /// Ends the query because memory ran out. Releases its memory at once, because other queries of the same step may
  /// need it.
  void end_out_of_memory(Status status);

  // Constant after construction.
  const ScanId id_;
  ScanSpec spec_;
  const BlockValues::BoundQuery bound_;
  std::vector<uint16_t> computed_;  // the computed columns of the result
  const bool indexable_;            // an interval index can answer the query if its selection is one range
  ScanSink& sink_;
  const CompiledSelection selection_;
  const bool computes_;  // the selection has predicates of computed columns
  const uint64_t arrived_ns_;
  QueryMemory* const memory_;
  const std::shared_ptr<ChunkMemory::InFlightCount> chunks_in_flight_;
  // Used by the owner's thread.
  QueryAccount account_;
  std::unique_ptr<Output> output_;       // null after end_out_of_memory()
  std::map<uint64_t, Pending> pending_;  // by page number
  uint64_t credits_;
  bool blocked_ = false;
  uint64_t blocked_since_ns_ = 0;
  size_t chunk_bytes_ = 0;  // bytes charged for the chunk under construction
  bool short_of_memory_ = false;
  bool drained_ = false;
  bool ended_ = false;
  Status status_;
  bool started_ = false;
  uint64_t excluded_entries_ = 0;
  uint64_t progress_due_ns_;
  wire::ScanStatistics statistics_;
};

}  // namespace loam::storage
