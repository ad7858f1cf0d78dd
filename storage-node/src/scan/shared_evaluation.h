// The shared evaluation of the queries that read a page together: equal parts of queries are evaluated once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/schema/schema.h"
#include "common/snapshot/snapshot.h"
#include "common/wire/catalog.h"
#include "storage-node/src/scan/block.h"
#include "storage-node/src/scan/block_values.h"
#include "storage-node/src/scan/filter.h"
#include "storage-node/src/scan/interval_index.h"
#include "storage-node/src/scan/scan_query.h"

namespace loam::storage {

/// Evaluates blocks for a set of queries together.
///
/// Role: three parts of the work are shared. The rows that a snapshot sees are computed once for all queries with equal
/// snapshots. Equal predicates are evaluated once (PredicateSet). Range aggregates over one field are computed together
/// if enough queries ask for them (IntervalIndex). Each query by itself combines row sets word by word and consumes the
/// rows that it selects. Owner: a scan pass. Threads: one.
///
/// Queries of one interval index may have different snapshots. The rows that all of them see go through the index. Rows
/// that only some of them see are evaluated for these queries one by one.
class SharedEvaluation {
 public:
  /// Lower bound on the queries of an interval index: the index takes as long as this many range sums one by one
  /// (loam-bench scan).
  static constexpr size_t kMinQueriesForIndex = 4;

  explicit SharedEvaluation(std::shared_ptr<const Schema> schema);

  /// The values of the blocks, to which queries bind their computed columns.
  BlockValues& values() { return values_; }

  /// A query that is evaluated.
  struct Member {
    ScanQuery* query = nullptr;
    /// The entry at which the query begins in the present page, if that is behind the begin of the walk; else null.
    const Entry* from = nullptr;

    bool operator==(const Member&) const = default;
  };

  /// Sets the queries to evaluate. Does nothing if they are the present ones; otherwise flushes first.
  void assign(std::span<const Member> members);
  /// Returns a version such that no query sees an entry with a valid-to up to it.
  uint64_t oldest_base() const { return oldest_base_; }
  /// Evaluates a block of page `number` for all queries; `next` is the entry behind the block. Queries that consume no
  /// further row (they are blocked, satisfied or ended) are removed and appended to `left`.
  void evaluate(const Block& block, uint64_t number, const Entry* next, std::vector<ScanQuery*>& left);
  /// Adds the results of the interval indexes to the queries.
  void flush();
  /// Forgets a query that ends.
  void remove_query(const ScanQuery* query);

 private:
  /// The rows that queries with equal snapshots see.
  struct View {
    TableKind kind{};
    const Snapshot* snapshot = nullptr;
    RowMask rows{};  // visible rows of the present block
  };
  /// The evaluation of one query.
  struct Plan {
    Member member;
    size_t view = 0;  // number of its view
    PredicateSet::BoundSelection selection;
  };
  /// The queries that one interval index answers.
  struct RangeGroup {
    std::unique_ptr<IntervalIndex> index;
    bool grouped = false;
    std::vector<Plan> plans;         // its queries
    std::vector<size_t> views;       // the numbers of their views, each once
    std::vector<uint16_t> computed;  // the computed columns that the index reads, each once
  };

  /// Builds views, predicates, plans and indexes for `members_`.
  void build();
  /// Returns the number of the query's view; adds the view if there is none.
  size_t view_of(const ScanQuery& query);
  /// Computes the visible rows of all views.
  void compute_visibility(const Block& block);
  void compute_visible_rows(View& view, const Block& block) const;
  /// `rebuild`: whether a query of the index leaves it and goes on later.
  void evaluate_ranges(RangeGroup& ranges, uint64_t number, const Entry* next, std::vector<ScanQuery*>& left,
                       bool& rebuild);
  bool evaluate_plan(const Plan& plan, RowMask rows, uint64_t number, const Entry* next);

  BlockValues values_;
  std::vector<Member> members_;
  uint64_t oldest_base_ = kPending;
  bool dirty_ = false;  // build() must run before the next block
  std::vector<View> views_;
  PredicateSet predicates_;
  std::vector<Plan> single_;  // queries without an index
  std::vector<RangeGroup> ranges_;
};

}  // namespace loam::storage
