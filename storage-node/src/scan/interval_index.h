// An index of ranges that computes aggregates over ranges of one field for many queries in one pass.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/expression/row_mask.h"
#include "common/result/aggregate.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"
#include "storage-node/src/scan/block_values.h"
#include "storage-node/src/scan/filter.h"
#include "storage-node/src/scan/kernels.h"

namespace loam::storage {

/// Receives the results of a query with groups.
class GroupSink {
 public:
  virtual ~GroupSink() = default;
  /// Returns the accumulators of a group, one for each aggregate; null if the query has ended. The query has memory for
  /// IntervalIndex::kMaxGroups groups.
  virtual Accumulator* accumulators(const BlockGroups::Keys& group) = 0;
};

/// A query that an interval index answers: aggregates of numbers over the rows in a range of one field, for all rows or
/// for each group.
struct RangeQuery {
  KeyRange range;
  std::span<const Aggregate> aggregates;
  Accumulator* into = nullptr;  ///< one accumulator for each aggregate; null for a query with groups
  uint64_t* rows = nullptr;     ///< flush() adds the number of selected rows here
  GroupSink* groups = nullptr;  ///< of a query with groups
};

/// Computes range aggregates of many queries with one addition per row.
///
/// Role: the bounds of all queries cut the keys of one field into intervals, and each interval lies wholly inside or
/// outside of a query. The index adds each row once, to its interval, for any number of queries. The result of a query
/// is the sum over its intervals, which flush() computes. Owner: a scan pass. Threads: one.
///
///     bounds      │     a.low │   b.low │    a.high │     b.high │
///     intervals 0 │         1 │       2 │         3 │          4 │ …      a: 1 and 2, b: 2 and 3
///
/// Cost. A row takes one look-up in a table of equal buckets, which gives its interval (IntervalBuckets), and one
/// addition for each measure. A row in a bucket with several bounds takes a binary search besides. If the queries ask
/// for a count and one sum of integers alone, the index packs them into one addition. A block that lies in one
/// interval, as in data that is ordered by time, is added as a whole. Groups multiply the intervals: each group that
/// the blocks have has all of them. Rows of groups beyond kMaxGroups are left to the queries.
class IntervalIndex {
 public:
  /// Upper bound on the groups of an index, and on the elements of all its arrays for groups.
  static constexpr size_t kMaxGroups = 64, kMaxGroupedElements = size_t{64} << 10;

  /// `values` gives the types of the columns, and outlives the index. `groups`: the groups of all its queries; null:
  /// its queries have none.
  IntervalIndex(const BlockValues& values, uint16_t field, BlockGroups* groups = nullptr);

  /// Adds a query. The query and the objects that it points to live until the last flush().
  void add(const RangeQuery& query);
  /// Builds the intervals. Call it after the last add() and before the first add_rows().
  void build();
  size_t intervals() const { return below_.size(); }

  /// Adds the rows to their intervals. Returns false, and adds none, if the block is not split into groups, if its keys
  /// do not tell all values of a measure apart, or if there are too many groups.
  bool add_rows(BlockValues& values, const RowMask& rows);
  /// Adds the results since the last flush() to the accumulators of the queries.
  void flush();

 private:
  /// The sums and extremes of one field for each interval. The last element of each array belongs to rows outside of
  /// all intervals.
  struct Measure {
    uint16_t field = 0;
    FieldType type{};
    bool nullable = false;
    bool sum = false, min = false, max = false;  // the aggregates that some query asks for
    std::vector<uint64_t> nulls;                 // rows whose field is NULL; for nullable fields
    std::vector<int64_t> sums;                   // sums of integers since the last fold_sums()
    std::vector<Int128> wide;                    // sums of integers that fold_sums() has moved here
    std::vector<double> reals;                   // sums of floats
    std::vector<int64_t> lowest;                 // lowest keys
    std::vector<int64_t> highest;                // highest keys

    /// Returns whether the field is an integer without NULL of which the queries ask for nothing but sums and counts.
    /// The schema and the queries alone decide that, and never the rows that were added.
    bool plain_sum() const { return sum && !min && !max && !nullable && !is_float(type); }
    /// Number of arrays.
    size_t arrays() const { return size_t{nullable} + min + max + (sum ? is_float(type) ? 1 : 2 : 0); }
    /// Adds elements to all arrays, up to this number.
    void extend(size_t size);
    void clear();
  };
  /// A query with its intervals.
  struct IndexedQuery {
    RangeQuery query;
    size_t first = 0, last = 0;    // the intervals [first, last)
    std::vector<size_t> measures;  // for each aggregate its measure; undefined for a count of rows
  };
  using Intervals = std::array<uint64_t, kBlockRows>;

  /// Returns the interval of a key among the `count` intervals from `first` on, by binary search.
  size_t search(int64_t key, size_t first, size_t count) const;
  void build_buckets();
  /// Sets `at_` to the interval of each row.
  void locate(BlockValues& values);
  /// Adds the rows if all of them lie in one interval. Returns false if they do not.
  bool add_whole_block(BlockValues& values, const RowMask& rows);
  /// Adds the rows to the cells. Returns false if there are no cells, if some rows of the block are not selected, or if
  /// a value is too large for a cell.
  bool add_to_cells(BlockValues& values, const RowMask& rows);
  void add_to_measure(Measure& measure, BlockValues& values, const RowMask& rows, const Intervals& at);
  /// Returns the number of intervals of a group, with one for the rows outside of all intervals.
  size_t stride() const { return intervals() + 1; }
  /// Moves `at_` to the intervals of the rows' groups. Returns false if that is not possible.
  bool locate_groups(BlockValues& values);
  /// Adds elements to all arrays, up to this number.
  void extend(size_t size);
  /// Adds the intervals of one group from `offset` on to the accumulators of a query.
  void emit(const IndexedQuery& entry, size_t offset, Accumulator* into, uint64_t rows) const;
  uint64_t rows_of(const IndexedQuery& entry, size_t offset) const;
  /// Moves the cells to the counts and sums before a cell can overflow.
  void fold_cells();
  /// Moves the 64-bit sums to the 128-bit sums before a sum can overflow.
  void fold_sums();
  /// Adds the intervals of one query to its accumulators.
  void emit(const IndexedQuery& entry) const;
  /// Sets all counts, sums and extremes to those of no row.
  void reset();
  /// Returns the number of the measure for the aggregate's field; adds it if there is none.
  size_t measure_of(const Aggregate& aggregate);

  const BlockValues& values_;
  const uint16_t field_;
  BlockGroups* const groups_;
  uint64_t epoch_ = 0;                                          // in which groups have their numbers; 0: no group
  std::shared_ptr<const std::vector<BlockGroups::Keys>> keys_;  // keys of the groups of that epoch
  std::vector<uint32_t> slots_;    // by number of a group: its place in the arrays + 1, or 0
  std::vector<uint32_t> numbers_;  // by place: the number of the group
  std::vector<IndexedQuery> queries_;
  std::vector<Measure> measures_;

  // Interval i holds the keys above below_[i - 1] up to below_[i]. The last element is the highest key.
  std::vector<int64_t> below_;
  std::vector<uint64_t> elements_;
  IntervalBuckets buckets_;  // refers to elements_
  size_t max_in_bucket_ = 0;

  std::vector<uint64_t> counts_;  // rows of each interval; the last element for rows outside of all intervals
  size_t unfolded_rows_ = 0;
  // Counts and sums packed together, kCellsEach for each interval. Empty if the queries ask for other aggregates too.
  std::vector<uint64_t> cells_;
  size_t rows_in_cells_ = 0;
  alignas(64) Intervals at_{};  // the interval of each row of the present block
};

}  // namespace loam::storage
