// Aggregates over ranges of one field, for all queries at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/schema/aggregate.h"
#include "common/schema/query.h"
#include "common/schema/schema.h"
#include "storage-node/src/scan/block_values.h"
#include "storage-node/src/scan/filter.h"
#include "storage-node/src/scan/kernels.h"
#include "storage-node/src/scan/row_mask.h"

namespace loam::storage {

/// A query that an interval index answers: aggregates of numbers over the rows in a range.
struct RangeQuery {
  KeyRange range;
  std::span<const Aggregate> aggregates;
  Accumulator* into = nullptr;  ///< one for each aggregate
  uint64_t* rows = nullptr;     ///< how many rows were selected
};

/// Role: the bounds of all queries cut the keys of one field into intervals, and each interval is wholly inside or
/// outside of a query. So each row is counted once, into its interval, whatever the number of queries; what a query
/// asks for is the sum of its intervals, taken when flush() is called. Owner: a scan pass; one thread.
///
///     bounds      │     a.low │   b.low │    a.high │     b.high │
///     intervals 0 │         1 │       2 │         3 │          4 │ …      a: 1 and 2, b: 2 and 3
///
/// Cost: a row takes one look at a table of equal buckets, which leads to its interval (IntervalBuckets) unless bounds
/// crowd there (then by binary search), and one addition a measure; count and sum together are one addition if there
/// is nothing else. Blocks that lie in one interval, as in data in order of time, are added up as a whole.
class IntervalIndex {
 public:
  IntervalIndex(const Schema& schema, uint16_t field);

  /// The query and what it points to stay until flush() has been called for the last time.
  void add(const RangeQuery& query);
  /// After the last add().
  void build();
  size_t intervals() const { return below_.size(); }

  /// Counts rows in, for every query.
  void take(BlockValues& values, const RowMask& rows);
  /// Gives the queries what was counted since the last time.
  void flush();

 private:
  /// What is counted of one field besides the rows: by interval, the last element for rows of no interval.
  struct Measure {
    uint16_t field = 0;
    FieldType type{};
    bool nullable = false;
    bool sum = false, min = false, max = false;
    std::vector<uint64_t> nulls;  // rows where it is NULL; of nullable fields
    std::vector<int64_t> sums;    // of integers
    std::vector<Int128> wide;     // what left `sums` so far
    std::vector<double> reals;    // sums of floats
    std::vector<int64_t> lowest;  // keys
    std::vector<int64_t> highest;

    /// The sum over an interval and the number of its rows are all that is asked for. Decided by the schema and the
    /// queries alone, never by what has been counted so far.
    bool plain_sum() const { return sum && !min && !max && !nullable && !is_float(type); }
  };
  struct Entry {
    RangeQuery query;
    size_t first = 0, last = 0;    // its intervals, the last one not included
    std::vector<size_t> measures;  // by aggregate; of counts of rows no matter what
  };
  using Intervals = std::array<uint64_t, kBlockRows>;

  size_t search(int64_t key, size_t first, size_t count) const;
  void build_buckets();
  void locate(BlockValues& values);
  bool take_whole(BlockValues& values, const RowMask& rows);
  bool take_sum(BlockValues& values, const RowMask& rows);
  void take_measure(Measure& measure, BlockValues& values, const RowMask& rows, const Intervals& at);
  void spill_cells();
  void spill();
  void give(const Entry& entry) const;
  void reset();
  size_t measure_of(const Aggregate& aggregate);

  const Schema& schema_;
  const uint16_t field_;
  std::vector<Entry> queries_;
  std::vector<Measure> measures_;

  // Interval i: keys above below_[i - 1] and not above below_[i]. The last element is the highest key.
  std::vector<int64_t> below_;
  std::vector<uint64_t> elements_;
  IntervalBuckets buckets_;  // over elements_
  size_t most_in_bucket_ = 0;

  std::vector<uint64_t> counts_;  // as a measure's
  size_t unspilled_rows_ = 0;
  std::vector<uint64_t> cells_;  // counts and sums together, kCellsEach an interval; empty if that is not all there is
  size_t rows_in_cells_ = 0;
  alignas(64) Intervals at_{};  // of the block at hand
};

}  // namespace loam::storage
