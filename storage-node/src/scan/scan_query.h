// One query of a shared scan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"
#include "common/snapshot/publication.h"
#include "common/snapshot/snapshot.h"
#include "common/wire/storage.h"
#include "storage-node/src/log/page_list.h"
#include "storage-node/src/scan/block_values.h"
#include "storage-node/src/scan/filter.h"
#include "storage-node/src/scan/interval_index.h"
#include "storage-node/src/scan/output.h"
#include "storage-node/src/scan/query_memory.h"

namespace loam::storage {

/// Name of a query at one scheduler, given by its user.
using ScanId = uint64_t;

/// Takes what scans produce. Implemented by the driver (server, simulator, tests); outlives its queries. Called from
/// within ScanScheduler's functions, by their thread; must not call the scheduler back.
class ScanSink {
 public:
  virtual ~ScanSink() = default;
  /// One chunk of the query's partial schema; it used one credit. The bytes are valid during the call; a sink
  /// that keeps a copy keeps `memory` as long.
  virtual void chunk(ScanId id, Bytes bytes, ChunkMemory memory) = 0;
  /// How far the query has come, if it asked to be told.
  virtual void progress(ScanId id, const wire::ScanStatistics& statistics) = 0;
  /// The query's end, after its last chunk: ok, or why it was cut short. It does not exist any more.
  virtual void done(ScanId id, const Status& status, const wire::ScanStatistics& statistics) = 0;
};

/// What a query needs to run.
struct ScanSpec {
  TableId table;
  TableKind kind = TableKind::kTransactional;
  std::shared_ptr<const Schema> schema;
  /// Keeps the table's storage; may be null if something else does.
  std::shared_ptr<const void> storage{};
  /// The page list of the moment when the query joined (R23), pinned. Shared by the parts of one scan.
  std::shared_ptr<PinnedPages> pages;
  /// This query reads the pages with index % parts == part: several scan threads share one scan, each with a scheduler
  /// of its own. Their results are merged where those of several nodes are.
  size_t part = 0;
  size_t parts = 1;
  Snapshot snapshot{};  ///< ignored for non-transactional tables
  Query query;          ///< checked against the schema
  /// Which keys are served to this scan (R26); empty: all. Asked for selected rows only.
  std::function<bool(Key)> owns{};
  uint32_t credits = 0;     ///< chunks that may be sent at once
  uint64_t arrived_ns = 0;  ///< at the node; 0: when it joins
  uint64_t deadline_ns = std::numeric_limits<uint64_t>::max();
  uint64_t progress_interval_ns = 0;  ///< ScanSink::progress() no more often than this; 0: never
};

/// Role: one query under way: where it stands, what it has collected, what it may send. Owner: its ScanPass; one
/// thread. Life: from joining to done().
///
/// Invariants:
/// 1. Each of its pages is pinned and pending, or has been walked to its fill mark and is unpinned. Of a page that it
///    left half done the place is kept.
/// 2. It holds at most one chunk without a credit, and takes no row while it does.
/// 3. Everything that it holds was drawn from the node's memory for queries first; if it cannot draw, it ends with
///    kOverloaded. Only a chunk that is complete waits, as long as other chunks of this query are on their way: their
///    memory comes back.
class ScanQuery {
 public:
  /// `memory` may be null: no limit.
  ScanQuery(ScanId id, ScanSpec spec, ScanSink& sink, uint64_t now_ns, QueryMemory* memory);
  /// The caller calls this first. kOverloaded: the query may not run.
  Status admit();
  ScanQuery(const ScanQuery&) = delete;
  ScanQuery& operator=(const ScanQuery&) = delete;

  ScanId id() const { return id_; }
  const ScanSpec& spec() const { return spec_; }

  /// Has pages to read, and room for what they give.
  bool eligible() const { return !ended_ && more_rows() && !(output_->full() && (credits_ == 0 || short_of_memory_)); }
  /// Has read everything that it needs, and not ended yet.
  bool complete() const { return !ended_ && !more_rows(); }
  /// Has a chunk to send, and no credit or no memory for it; known since the last advance().
  bool waits() const { return waits_; }
  /// Waits for the network to take chunks of this query. The network does not tell when it has.
  bool short_of_memory() const { return short_of_memory_; }
  /// Since when; meaningful while it waits.
  uint64_t waits_since_ns() const { return waits_since_ns_; }
  bool ended() const { return ended_; }

  /// Smallest number of a pending page that is at least `from`; kNoPage if there is none.
  static constexpr uint64_t kNoPage = std::numeric_limits<uint64_t>::max();
  uint64_t next_page(uint64_t from) const {
    const auto next = pending_.lower_bound(from);
    return next == pending_.end() ? kNoPage : next->first;
  }
  /// The page, if it is pending; else null.
  Page* page(uint64_t number) const {
    const auto found = pending_.find(number);
    return found == pending_.end() ? nullptr : (*spec_.pages)[found->second.index];
  }
  /// Where it goes on in a pending page; null: at its beginning.
  const Entry* place_in(uint64_t number) const { return pending_.at(number).place; }

  const CompiledSelection& selection() const { return selection_; }
  /// If an interval index may count for it: aggregates of numbers over one range of one field, all keys.
  std::optional<RangeQuery> range_query();
  /// Which range that is.
  static std::optional<KeyRange> index_range(const Schema& schema, const Query& query,
                                             const CompiledSelection& selection);

  /// If no row of this pending page can be selected, it is done with.
  bool skips(uint64_t number, uint64_t now_ns);
  /// A walk over this pending page begins or goes on.
  void start_page(uint64_t number, uint64_t now_ns);
  /// Takes rows that it selects of one block of page `number`; `next` is the entry behind the block. Sends what becomes
  /// full. False if it takes no more (blocked, satisfied, ended); its place is kept then.
  bool take(uint64_t number, BlockValues& values, RowMask rows, const Entry* next);
  /// It was part of a walk over so many entries; `busy_ns` is its share of the time.
  void passed(uint64_t entries, uint64_t busy_ns) {
    statistics_.records += entries - std::exchange(not_mine_, 0);
    statistics_.busy_ns += busy_ns;
  }
  /// So many entries of the walk under way lie before its place.
  void not_mine(uint64_t entries) { not_mine_ += entries; }
  /// The page was walked to the fill mark that was read when the walk began: nothing behind it is visible. Unpins it.
  void finish_page(uint64_t number);

  /// Sends what may be sent; ends the query if nothing is left to do.
  void advance(uint64_t now_ns);
  void add_credits(uint32_t credits);
  /// Tells how far it has come, if that is due; returns when it is due next.
  uint64_t tell_progress(uint64_t now_ns);
  /// Ends it, drops what it collected, unpins everything.
  void end(Status status);

  /// To be called once, by the pass, when ended() turns true.
  void report(uint64_t now_ns);

 private:
  struct Pending {
    size_t index = 0;              // in spec_.pages
    const Entry* place = nullptr;  // where to go on; null: at the beginning
  };

  void start(uint64_t now_ns);
  bool more_rows() const { return !pending_.empty() && !output_->satisfied(); }
  /// False: no credit or no memory yet, or the query ended.
  bool send_chunk();
  /// False: there is no memory for what the chunk under construction has grown to, and the query ended.
  bool hold_chunk();
  /// Ends it because memory ran out, and gives back its memory at once: other queries of the same step may need it.
  void end_without_memory(Status status);

  // Constant after construction.
  const ScanId id_;
  ScanSpec spec_;
  ScanSink& sink_;
  const CompiledSelection selection_;
  const uint64_t arrived_ns_;
  QueryMemory* const memory_;
  const std::shared_ptr<ChunkMemory::Counter> chunks_on_their_way_;
  // The owner's thread.
  QueryAccount account_;
  std::unique_ptr<Output> output_;       // null after end_without_memory()
  std::map<uint64_t, Pending> pending_;  // by page number
  uint64_t credits_;
  bool waits_ = false;
  uint64_t waits_since_ns_ = 0;
  size_t chunk_bytes_ = 0;  // taken for the chunk under construction
  bool short_of_memory_ = false;
  bool drained_ = false;
  bool ended_ = false;
  Status status_;
  bool started_ = false;
  uint64_t not_mine_ = 0;
  uint64_t progress_due_ns_;
  wire::ScanStatistics statistics_;
};

}  // namespace loam::storage
