// Shared scans: any number of queries read each page together.
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

/// What a pass did, over all its queries; each page is counted once however many queries read it.
struct ScanPassStatistics {
  uint64_t pages = 0;    ///< page walks begun at a page's start
  uint64_t entries = 0;  ///< entries looked at
  uint64_t queries = 0;  ///< queries finished
};

/// Role: the queries of one table. The cursor moves through the pages in the order of their numbers, round and round;
/// at each page all queries that have it pending and are not blocked are evaluated in one walk. So a query that arrives
/// joins at the cursor and has read everything when the cursor has come round once; one that was blocked picks up what
/// it missed in the next round, and holds nobody up. [Thesis 4.5; R23]
///
/// Owner: ScanScheduler; one thread.
class ScanPass {
 public:
  explicit ScanPass(std::shared_ptr<const Schema> schema) : evaluation_(std::move(schema)) {}

  void join(std::unique_ptr<ScanQuery> query) { queries_.push_back(std::move(query)); }
  bool empty() const { return queries_.empty(); }

  /// Walks up to about `budget_bytes` of entries. False if no query is eligible: all wait for credits.
  bool step(uint64_t now_ns, size_t budget_bytes);
  /// Since the last call, a query has left a walk or read its last page: it has something to send, to wait for, or to
  /// end with.
  bool take_news() { return std::exchange(news_, false); }
  /// Before a query is destroyed.
  void forget(const ScanQuery* query);

  std::list<std::unique_ptr<ScanQuery>>& queries() { return queries_; }
  const ScanPassStatistics& statistics() const { return statistics_; }

 private:
  /// A page that is being read, over as many steps as it takes. Who is not among its members when it begins reads the
  /// page in another round.
  struct Walk {
    uint64_t number = ScanQuery::kNoPage;
    const Page* page = nullptr;
    const Entry* at = nullptr;
    const Entry* end = nullptr;  ///< the fill mark, read once: nothing above it is touched (R22)
    uint64_t entries = 0;        ///< looked at so far
    uint64_t busy_ns = 0;        ///< what that took
    size_t sharers = 1;          ///< members at the beginning
    std::vector<ScanQuery*> members;
  };

  uint64_t choose_page() const;
  bool begin_walk(uint64_t now_ns);
  Page* gather_members(uint64_t number, uint64_t now_ns);
  void end_walk();
  void leave(ScanQuery* query);

  std::list<std::unique_ptr<ScanQuery>> queries_;
  Walk walk_;  // under way while it has members
  uint64_t cursor_ = 0;
  bool news_ = false;
  Block block_;
  SharedEvaluation evaluation_;
  std::vector<ScanQuery*> left_;                    // of one block
  std::vector<SharedEvaluation::Member> together_;  // of a walk that begins
  ScanPassStatistics statistics_;
};

/// Role: all shared scans of one scan thread, as a state machine without I/O and threads. Owner: the driver; one
/// thread. Tables take turns, a budget each.
///
///     ScanScheduler scans({.max_queries = 256});
///     Status s = scans.join(id, {.table = …, .schema = …, .pages = pinned, .snapshot = …, .query = …}, sink, now);
///     for (;;) {                                       // the scan thread
///       EpochGuard guard(thread);                      // one a step
///       bool more = scans.step(now, newest_publication, 256 << 10);
///     }                                                // credit(), cancel(), drop_table() in between
class ScanScheduler {
 public:
  struct Options {
    /// More get kOverloaded.
    size_t max_queries = 256;
    /// A query that waited so long for credits is ended with kTimeout (R25).
    uint64_t stall_limit_ns = 30'000'000'000;
    /// What all queries of the node draw their memory from; null: no limit. Outlives the scheduler.
    QueryMemory* memory = nullptr;
  };

  explicit ScanScheduler(const Options& options) : options_(options) {}

  /// Takes a query up; sink.done() will be called exactly once. An error means that it was not taken: kOverloaded (too
  /// many queries, or no memory for one more), or
  /// kInvalidArgument for an id in use. The caller has checked the query and the snapshot (R14), and pinned the pages
  /// in the epoch guard in which it did.
  Status join(ScanId id, ScanSpec spec, ScanSink& sink, uint64_t now_ns);
  /// The client takes so many chunks more. Unknown ids are ignored: the query may just have ended.
  void credit(ScanId id, uint32_t credits);
  /// Ends a query with this status. Unknown ids are ignored.
  void cancel(ScanId id, Status status, uint64_t now_ns);
  /// Ends all queries with this status.
  void cancel_all(const Status& status, uint64_t now_ns);
  /// Ends the table's queries with kNoSuchTable (R30).
  void drop_table(TableId table, uint64_t now_ns);
  /// Ends queries that have waited for credits for at least so long, because memory is short (R25); returns how many.
  size_t cancel_blocked(uint64_t at_least_ns, uint64_t now_ns);

  /// Walks up to about `budget_bytes` of entries for one table, and ends queries whose time is up (kTimeout) or whose
  /// snapshot `publication`, the newest one, does not cover (kSnapshotTooOld, R14). Inside an epoch guard that began
  /// before `publication` was read: the compactor collects by a publication only after such guards have ended (R13).
  /// False if there is nothing to do before join() or credit() is called, or time passes.
  bool step(uint64_t now_ns, const Publication& publication, size_t budget_bytes);

  size_t queries() const { return by_id_.size(); }
  ScanPassStatistics statistics() const;

 private:
  using Passes = std::map<TableId, ScanPass>;

  void end_where(const std::function<Status(ScanQuery&)>& why);
  void look_at_queries(uint64_t now_ns, const Publication& publication);
  void sweep(uint64_t now_ns);

  const Options options_;
  Passes passes_;
  TableId turn_;  // the table that was served last
  std::unordered_map<ScanId, ScanQuery*> by_id_;
  uint64_t checked_epoch_ = 0, checked_number_ = 0;  // the publication that every query was checked against
  bool news_ = false;            // a query joined or got credits, or a pass has news: all queries are looked at
  uint64_t look_at_ns_ = 0;      // when they are looked at anyway: the first deadline or stall limit
  ScanPassStatistics finished_;  // of passes that are gone
};

}  // namespace loam::storage
