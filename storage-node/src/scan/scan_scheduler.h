// Shared scans: one pass over the pages of a table serves all queries that wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/snapshot/publication.h"
#include "storage-node/src/scan/block.h"
#include "storage-node/src/scan/scan_query.h"
#include "storage-node/src/scan/shared_evaluation.h"

namespace loam::storage {

/// The work of a pass for all its queries together. A page counts once for each walk, however many queries read it.
struct ScanPassStatistics {
  uint64_t pages = 0;    ///< walks that began at the start of a page
  uint64_t entries = 0;  ///< entries read
  uint64_t queries = 0;  ///< queries that ended
};

/// The state of a query under way, for operators.
struct QueryState {
  ScanId id = 0;
  wire::ScanStatistics statistics{};  ///< so far, without the elapsed time
  uint64_t pages_left = 0;            ///< pages that are not finished
  bool started = false;               ///< the query has begun to read
  bool blocked = false;               ///< the query has a chunk to send, and no credit or no memory for it
  bool short_of_memory = false;       ///< with `blocked`: no memory
  uint64_t blocked_since_ns = 0;      ///< with `blocked`: since when
};

/// The shared scan of one table.
///
/// Role: holds the queries of the table and moves a cursor through the pages in the order of their numbers, and from
/// the last page to the first one. At each page one walk evaluates all queries that have the page pending and are not
/// blocked. A query that arrives joins at the cursor, and has read everything when the cursor returns to this place. A
/// query that was blocked reads the pages that it missed in the next round, and delays no other query. [Thesis 4.5;
/// R23, immutable page list]
///
/// Owner: ScanScheduler. Threads: one.
class ScanPass {
 public:
  /// `schemas` as in ScanSpec. It lives as long as a query of the pass.
  ScanPass(std::shared_ptr<const Schema> schema, const RowSchemas* schemas)
      : schema_(schema), schemas_(schemas), evaluation_(std::move(schema)) {}

  /// Gives the computed columns of a query their numbers in the pass (BlockValues::bind()). remove_query() releases
  /// them.
  Result<BlockValues::BoundQuery> bind(const Query& query) { return evaluation_.values().bind(query); }
  void join(std::unique_ptr<ScanQuery> query) { queries_.push_back(std::move(query)); }
  bool empty() const { return queries_.empty(); }

  /// Walks over about `budget_bytes` of entries. Returns false if no query is eligible, because all wait for credits.
  bool step(uint64_t now_ns, size_t budget_bytes);
  /// Returns whether, since the last call, a query has left a walk or has read its last page. Such a query may have a
  /// chunk to send or may be complete.
  bool take_changed() { return std::exchange(changed_, false); }
  /// Forgets a query. The caller calls it before it destroys the query.
  void remove_query(const ScanQuery* query);

  std::list<std::unique_ptr<ScanQuery>>& queries() { return queries_; }
  const ScanPassStatistics& statistics() const { return statistics_; }

 private:
  /// One walk over a page, in as many steps as it takes. Its members are fixed at its begin; another query reads the
  /// page in another round.
  struct Walk {
    uint64_t number = ScanQuery::kNoPage;  ///< number of the page
    const Page* page = nullptr;
    const Entry* at = nullptr;        ///< the next entry to read
    const Entry* end = nullptr;       ///< the fill mark, read once; the walk reads nothing above it (R22, fill mark)
    uint64_t entries = 0;             ///< entries read so far
    uint64_t busy_ns = 0;             ///< time that this took
    size_t member_count = 1;          ///< number of members at the begin
    std::vector<ScanQuery*> members;  ///< the queries that have not left the walk
  };

  /// Returns the next page at or behind the cursor that an eligible query has pending.
  uint64_t choose_page() const;
  /// Begins a walk. Returns false if no query is eligible.
  bool begin_walk(uint64_t now_ns);
  /// Makes the eligible queries that have the page pending the members of the walk. Returns the page; null if all of
  /// these queries could skip it.
  Page* gather_members(uint64_t number, uint64_t now_ns);
  void end_walk();
  /// Removes a query from the walk.
  void leave(ScanQuery* query);
  /// Converts the rows of the block that have another number of added fields than the pass.
  void convert_rows();

  std::list<std::unique_ptr<ScanQuery>> queries_;
  Walk walk_;  // a walk is under way while it has members
  uint64_t cursor_ = 0;
  bool changed_ = false;
  const std::shared_ptr<const Schema> schema_;
  const RowSchemas* const schemas_;
  Block block_;
  std::vector<Buffer> converted_;  // rows of the block that convert_rows() has made, and memory for later ones
  SharedEvaluation evaluation_;
  std::vector<ScanQuery*> leaving_;                    // the queries that leave after the present block
  std::vector<SharedEvaluation::Member> new_members_;  // the members of a walk that begins
  ScanPassStatistics statistics_;
};

/// Runs all shared scans of one scan thread.
///
/// Role: a state machine without I/O and threads, which serves the tables in turn with a budget for each. Owner: the
/// driver. Threads: one.
///
///     ScanScheduler scans({.max_queries = 256});
///     Status s = scans.join(id, {.table = …, .schema = …, .pages = pinned, .snapshot = …, .query = …}, sink, now);
///     for (;;) {                                       // the scan thread
///       EpochGuard guard(thread);                      // one guard for each step
///       bool more = scans.step(now, newest_publication, 256 << 10);
///     }                                                // credit(), cancel(), drop_table() in between
class ScanScheduler {
 public:
  struct Options {
    /// Upper bound on the queries under way; further ones get kOverloaded.
    size_t max_queries = 256;
    /// A query that waits for credits for longer than this ends with kTimeout (R25, limit for stalled queries).
    uint64_t stall_limit_ns = 30'000'000'000;
    /// The memory of all queries of the storage node; null: no limit. It outlives the scheduler.
    QueryMemory* memory = nullptr;
  };

  explicit ScanScheduler(const Options& options) : options_(options) {}

  /// Adds a query. The caller has checked the query and the snapshot (R14, refusal of old snapshots), and has pinned
  /// the pages inside the epoch guard in which it did so. If the result is kOk, sink.done() is called exactly once.
  /// Otherwise the query was not added:
  ///   kOverloaded: there are too many queries, or there is no memory for another one.
  ///   kInvalidArgument: the id is in use.
  Status join(ScanId id, ScanSpec spec, ScanSink& sink, uint64_t now_ns);
  /// Lets a query send `credits` more chunks. Ignores unknown ids, because the query may just have ended.
  void credit(ScanId id, uint32_t credits);
  /// Ends a query with this status. Ignores unknown ids.
  void cancel(ScanId id, Status status, uint64_t now_ns);
  /// Ends all queries with this status.
  void cancel_all(const Status& status, uint64_t now_ns);
  /// Ends the queries of a dropped table with kNoSuchTable (R30, table creation and drop).
  void drop_table(TableId table, uint64_t now_ns);
  /// Ends the queries that have been blocked for at least `at_least_ns`; the caller uses it when memory is short (R25).
  /// Returns their number.
  size_t cancel_blocked(uint64_t at_least_ns, uint64_t now_ns);

  /// Walks over about `budget_bytes` of entries for one table. Ends the queries whose deadline or stall limit has
  /// passed (kTimeout), and those whose snapshot `publication` does not cover (kSnapshotTooOld, R14).
  ///
  /// `publication` is the newest one. The caller has read it inside an epoch guard and holds this guard during the
  /// step: the compactor collects by a publication only after such guards have ended (R13, atomic publication).
  ///
  /// Returns false if there is nothing to do until the next join() or credit(), or until time has passed.
  bool step(uint64_t now_ns, const Publication& publication, size_t budget_bytes);

  /// Returns the number of queries under way.
  size_t queries() const { return by_id_.size(); }
  /// Returns the states of all queries under way, in no order.
  std::vector<QueryState> states() const;
  ScanPassStatistics statistics() const;

 private:
  /// Queries with different schemas of one table form different passes: by table and number of fields.
  using PassKey = std::pair<TableId, size_t>;
  using Passes = std::map<PassKey, ScanPass>;

  /// Ends each query for which why(query) returns an error, with this error.
  void end_where(const std::function<Status(ScanQuery&)>& why);
  /// Advances all queries and ends those that have reached a limit.
  void check_queries(uint64_t now_ns, const Publication& publication);
  /// Reports and destroys the queries that have ended, and the passes without queries.
  void remove_ended(uint64_t now_ns);

  const Options options_;
  Passes passes_;
  PassKey last_pass_{};  // the pass that was served last
  std::unordered_map<ScanId, ScanQuery*> by_id_;
  uint64_t checked_epoch_ = 0, checked_number_ = 0;  // the publication by which all queries were last checked
  bool changed_ = false;         // a query joined, got credits or left a walk: the next step checks all queries
  uint64_t next_check_ns_ = 0;   // when a step checks them at the latest: the first deadline, limit or progress report
  ScanPassStatistics finished_;  // the statistics of passes that were destroyed
};

}  // namespace loam::storage
