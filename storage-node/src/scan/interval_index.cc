// Building of intervals, addition of rows to intervals, and the sums of queries over their intervals. The kernel
// locate() (kernels.h) finds the intervals of the rows of a block.
#include "storage-node/src/scan/interval_index.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "storage-node/src/scan/aggregate_output.h"

namespace loam::storage {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
constexpr uint64_t kSignBit = uint64_t{1} << 63;

/// Integers of a magnitude below kNarrow are added in 64 bits, for up to kMaxUnfoldedRows rows: 2^40 · 2^22 < 2^63.
constexpr uint64_t kNarrow = uint64_t{1} << 40;
constexpr size_t kMaxUnfoldedRows = size_t{1} << 22;

/// A cell holds a sum times 2^kCellCountBits plus the number of its rows, so that one addition updates both. With
/// integers of a magnitude below kCellNarrow it cannot overflow before its count does.
constexpr unsigned kCellCountBits = 15;
constexpr size_t kMaxRowsInCells = (size_t{1} << kCellCountBits) - 1;
constexpr uint64_t kCellNarrow = uint64_t{1} << (63 - 2 * kCellCountBits);
/// Cells of one interval. Rows use them in turn, so that an addition need not wait for the one of the row before if
/// both rows lie in the same interval.
constexpr size_t kCellsEach = 2;

/// Buckets for each bound, up to kCachedBuckets, which leave room for other data in the first-level cache.
constexpr size_t kBucketsEach = 16;
constexpr size_t kCachedBuckets = 4096;  // 32 KiB
/// Lower bound on the buckets for each interval. With it no sum of IntervalBuckets reaches bit 63 by a carry.
constexpr size_t kMinBucketsPerInterval = 4;

}  // namespace

IntervalIndex::IntervalIndex(const BlockValues& values, uint16_t field, BlockGroups* groups)
    : values_(values), field_(field), groups_(groups) {}

size_t IntervalIndex::measure_of(const Aggregate& aggregate) {
  const auto found = std::ranges::find(measures_, aggregate.field, &Measure::field);
  Measure& measure = found != measures_.end() ? *found : measures_.emplace_back();
  measure.field = aggregate.field;
  measure.type = values_.type(aggregate.field);
  measure.nullable = values_.nullable(aggregate.field);
  measure.sum |= aggregate.op == AggregateOp::kSum || aggregate.op == AggregateOp::kAvg;
  measure.min |= aggregate.op == AggregateOp::kMin;
  measure.max |= aggregate.op == AggregateOp::kMax;
  return static_cast<size_t>(&measure - measures_.data());
}

void IntervalIndex::add(const RangeQuery& query) {
  IndexedQuery& entry = queries_.emplace_back();
  entry.query = query;
  for (const Aggregate& aggregate : query.aggregates) {
    entry.measures.push_back(aggregate.op == AggregateOp::kCountAll ? 0 : measure_of(aggregate));
  }
}

// The search has no branch that depends on a key, because the processor could not predict it.
size_t IntervalIndex::search(int64_t key, size_t first, size_t count) const {
  const int64_t* from = below_.data() + first;
  while (count > 1) {
    const size_t half = count / 2;
    from += from[half - 1] < key ? half : 0;
    count -= half;
  }
  return static_cast<size_t>(from - below_.data());
}

void IntervalIndex::build() {
  // `below_` holds the highest key of each interval. A range [low, high] ends one interval at low - 1 and one at high.
  below_.assign(1, kHighest);
  for (const IndexedQuery& entry : queries_) {
    const KeyRange& range = entry.query.range;
    if (range.low > range.high) continue;
    if (range.low != kLowest) below_.push_back(range.low - 1);
    if (range.high != kHighest) below_.push_back(range.high);
  }
  std::ranges::sort(below_);
  below_.erase(std::ranges::unique(below_).begin(), below_.end());
  for (IndexedQuery& entry : queries_) {
    const KeyRange& range = entry.query.range;
    entry.first = search(range.low, 0, intervals());
    entry.last = range.low > range.high ? entry.first : search(range.high, 0, intervals()) + 1;
  }
  build_buckets();
  if (groups_ != nullptr) return;
  extend(stride());
  if (measures_.size() == 1 && measures_.front().plain_sum()) cells_.assign(stride() * kCellsEach, 0);
}

// Cuts the keys from the first bound to the last into equal buckets. IntervalBuckets describes their elements.
void IntervalIndex::build_buckets() {
  const size_t bounds = below_.size() - 1;
  const int64_t lowest = below_.front(), highest = bounds == 0 ? lowest : below_[bounds - 1] + 1;
  const auto origin = static_cast<uint64_t>(lowest);
  const uint64_t width = static_cast<uint64_t>(highest) - origin;
  const size_t wanted = std::max(std::min(bounds * kBucketsEach, kCachedBuckets), intervals() * kMinBucketsPerInterval);
  elements_.resize(std::bit_ceil(wanted));
  unsigned shift = 0;
  while ((width >> shift) >= elements_.size()) ++shift;
  const uint64_t one = uint64_t{1} << shift;
  size_t bound = 0;
  max_in_bucket_ = 0;
  for (uint64_t number = 0; number < elements_.size(); ++number) {
    const size_t first = bound;
    const auto distance = [&] { return static_cast<uint64_t>(below_[bound]) - origin; };
    uint64_t room = 0;
    for (; bound < bounds && distance() >> shift == number; ++bound) room = one - 1 - (distance() & (one - 1));
    max_in_bucket_ = std::max(max_in_bucket_, bound - first);
    const uint64_t start = origin + number * one;
    elements_[number] = first * one - start + (bound - first > 1 ? kSignBit : room);
  }
  buckets_ = {elements_.data(), lowest, highest, shift};
}

// The kernel finds the interval of each row, except in buckets with several bounds. There it gives the first candidate.
void IntervalIndex::locate(BlockValues& values) {
  const int64_t* const keys = values.keys(field_);
  const RowMask crowded = values.all() & kernels().locate(keys, buckets_, at_.data());
  crowded.for_each([&](size_t row) {
    const size_t first = at_[row] - (kSignBit >> buckets_.shift);
    at_[row] = search(keys[row], first, std::min(max_in_bucket_ + 1, intervals() - first));
  });
}

bool IntervalIndex::add_whole_block(BlockValues& values, const RowMask& rows) {
  const int64_t* const keys = values.keys(field_);
  const size_t at = search(keys[rows.front()], 0, intervals());
  const auto outside = [&](int64_t key) { return key > below_[at] || (at != 0 && key <= below_[at - 1]); };
  // Test the last row first, selected or not: in most blocks it lies in another interval, and the search ends here.
  if (outside(keys[values.size() - 1]) || outside(kernels().min(keys, rows)) || outside(kernels().max(keys, rows))) {
    return false;
  }
  counts_[at] += rows.count();
  for (Measure& measure : measures_) {
    const RowMask present = rows & values.present(measure.field);
    if (measure.nullable) measure.nulls[at] += rows.count() - present.count();
    if (measure.min || measure.max) {
      const int64_t* const by = values.keys(measure.field);
      if (measure.min) measure.lowest[at] = std::min(measure.lowest[at], kernels().min(by, present));
      if (measure.max) measure.highest[at] = std::max(measure.highest[at], kernels().max(by, present));
    }
    if (!measure.sum) continue;
    if (is_float(measure.type)) {
      const double* const reals = values.reals(measure.field);
      double sum = 0;
      present.for_each([&](size_t row) { sum += reals[row]; });
      measure.reals[at] += sum;
    } else if (values.magnitude(measure.field) < kNarrow) {
      measure.sums[at] += kernels().sum(values.keys(measure.field), present);
    } else {
      const int64_t* const numbers = values.keys(measure.field);
      present.for_each([&](size_t row) { measure.wide[at] += numbers[row]; });
    }
  }
  return true;
}

void IntervalIndex::add_to_measure(Measure& measure, BlockValues& values, const RowMask& rows, const Intervals& at) {
  const size_t n = values.size();
  if (measure.nullable) {
    (rows - values.present(measure.field)).for_each([&](size_t row) { ++measure.nulls[at[row]]; });
  }
  if (measure.min || measure.max) {
    const int64_t* const keys = values.keys(measure.field);
    (rows & values.present(measure.field)).for_each([&](size_t row) {
      if (measure.min) measure.lowest[at[row]] = std::min(measure.lowest[at[row]], keys[row]);
      if (measure.max) measure.highest[at[row]] = std::max(measure.highest[at[row]], keys[row]);
    });
  }
  if (!measure.sum) return;
  if (is_float(measure.type)) {  // all rows: the last element takes unselected ones, and NULL adds 0
    const double* const reals = values.reals(measure.field);
    for (size_t i = 0; i < n; ++i) measure.reals[at[i]] += reals[i];
  } else if (values.magnitude(measure.field) < kNarrow) {
    const int64_t* const numbers = values.keys(measure.field);
    int64_t* const sums = measure.sums.data();
    for (size_t i = 0; i < n; ++i) sums[at[i]] += numbers[i];
  } else {
    const int64_t* const numbers = values.keys(measure.field);
    for (size_t i = 0; i < n; ++i) measure.wide[at[i]] += numbers[i];
  }
}

bool IntervalIndex::add_rows(BlockValues& values, const RowMask& rows) {
  const RowMask counted = rows & values.present(field_);
  if (!counted.any()) return true;
  const auto exact = [&](const Measure& m) { return !is_long(m.type) || values.exact_keys(m.field) != nullptr; };
  if (!std::ranges::all_of(measures_, exact)) return false;
  // Fold before a 64-bit sum could overflow. Then use the cheapest way that suits the block: as a whole, by cells, or
  // measure by measure.
  if (unfolded_rows_ + kBlockRows > kMaxUnfoldedRows) fold_sums();
  unfolded_rows_ += kBlockRows;
  if (groups_ == nullptr && add_whole_block(values, counted)) return true;
  locate(values);
  if (groups_ == nullptr && add_to_cells(values, counted)) return true;
  if (groups_ != nullptr && !locate_groups(values)) return false;
  // Send the rows that are not selected to the last element of the first group, so that the loops below need no test.
  (values.all() - counted).for_each([&](size_t row) { at_[row] = intervals(); });
  for (size_t i = 0; i < values.size(); ++i) ++counts_[at_[i]];
  for (Measure& measure : measures_) add_to_measure(measure, values, counted, at_);
  return true;
}

bool IntervalIndex::locate_groups(BlockValues& values) {
  const auto sets = values.split(*groups_);
  if (sets.empty()) return false;
  if (epoch_ == 0) {
    epoch_ = groups_->epoch();
    keys_ = groups_->keys();
  }
  if (epoch_ != groups_->epoch()) return false;  // the groups have got other numbers
  std::array<uint64_t, BlockGroups::kMaxSets> offsets{};
  for (size_t i = 0; i < sets.size(); ++i) {
    const uint32_t number = sets[i].number;
    if (number >= slots_.size()) slots_.resize(number + size_t{1});
    if (slots_[number] == 0) {
      size_t arrays = 1;
      for (const Measure& measure : measures_) arrays += measure.arrays();
      const size_t size = (numbers_.size() + 1) * stride();
      if (numbers_.size() == kMaxGroups || size * arrays > kMaxGroupedElements) return false;
      numbers_.push_back(number);
      slots_[number] = static_cast<uint32_t>(numbers_.size());
      extend(size);
    }
    offsets[i] = (slots_[number] - size_t{1}) * stride();
  }
  const auto& set_of = groups_->set_of();
  for (size_t row = 0; row < values.size(); ++row) at_[row] += offsets[set_of[row]];
  return true;
}

// The common case: all rows are selected, and the queries ask for counts and one sum of integers.
bool IntervalIndex::add_to_cells(BlockValues& values, const RowMask& rows) {
  if (cells_.empty() || rows != values.all()) return false;
  if (values.magnitude(measures_.front().field) >= kCellNarrow) return false;
  if (rows_in_cells_ + kBlockRows > kMaxRowsInCells) fold_cells();
  rows_in_cells_ += kBlockRows;
  const int64_t* const numbers = values.keys(measures_.front().field);
  uint64_t* const cells = cells_.data();
  const auto add = [&](size_t row, size_t turn) {
    cells[at_[row] * kCellsEach + turn] += (static_cast<uint64_t>(numbers[row]) << kCellCountBits) + 1;
  };
  const size_t n = values.size();
  size_t row = 0;
  for (; row + kCellsEach <= n; row += kCellsEach) {
    for (size_t turn = 0; turn < kCellsEach; ++turn) add(row + turn, turn);
  }
  for (; row < n; ++row) add(row, 0);
  return true;
}

void IntervalIndex::fold_cells() {
  rows_in_cells_ = 0;
  for (size_t i = 0; i < cells_.size(); ++i) {
    // The low bits hold the count. Without them an arithmetic shift restores the sum with its sign.
    const uint64_t rows = cells_[i] & kMaxRowsInCells;
    counts_[i / kCellsEach] += rows;
    measures_.front().sums[i / kCellsEach] += static_cast<int64_t>(cells_[i] - rows) >> kCellCountBits;
    cells_[i] = 0;
  }
}

void IntervalIndex::fold_sums() {
  fold_cells();
  unfolded_rows_ = 0;
  for (Measure& measure : measures_) {
    for (size_t i = 0; i < measure.sums.size(); ++i) {
      measure.wide[i] += measure.sums[i];
      measure.sums[i] = 0;
    }
  }
}

uint64_t IntervalIndex::rows_of(const IndexedQuery& entry, size_t offset) const {
  const auto from = counts_.begin() + static_cast<ptrdiff_t>(offset);
  return std::accumulate(from + static_cast<ptrdiff_t>(entry.first), from + static_cast<ptrdiff_t>(entry.last),
                         uint64_t{0});
}

void IntervalIndex::emit(const IndexedQuery& entry) const {
  if (groups_ == nullptr) {
    const uint64_t rows = rows_of(entry, 0);
    *entry.query.rows += rows;
    if (rows != 0) emit(entry, 0, entry.query.into, rows);
    return;
  }
  for (size_t group = 0; group < numbers_.size(); ++group) {
    const size_t offset = group * stride();
    const uint64_t rows = rows_of(entry, offset);
    if (rows == 0) continue;
    Accumulator* const into = entry.query.groups->accumulators((*keys_)[numbers_[group]]);
    if (into == nullptr) return;
    *entry.query.rows += rows;
    emit(entry, offset, into, rows);
  }
}

void IntervalIndex::emit(const IndexedQuery& entry, size_t offset, Accumulator* into_all, uint64_t rows) const {
  const auto from = static_cast<ptrdiff_t>(offset + entry.first), to = static_cast<ptrdiff_t>(offset + entry.last);
  const auto total = [&](const auto& of, auto sum) { return std::accumulate(of.begin() + from, of.begin() + to, sum); };
  for (size_t i = 0; i < entry.measures.size(); ++i) {
    const AggregateOp op = entry.query.aggregates[i].op;
    Accumulator& into = into_all[i];
    uint64_t counted = rows;
    if (op != AggregateOp::kCountAll) {
      const Measure& measure = measures_[entry.measures[i]];
      if (measure.nullable) counted -= total(measure.nulls, uint64_t{0});
      if (counted == 0) continue;
      if (op == AggregateOp::kMin) {
        update_extreme(op, measure.type, *std::min_element(measure.lowest.begin() + from, measure.lowest.begin() + to),
                       into);
      } else if (op == AggregateOp::kMax) {
        update_extreme(op, measure.type,
                       *std::max_element(measure.highest.begin() + from, measure.highest.begin() + to), into);
      } else if (op != AggregateOp::kCount && is_float(measure.type)) {
        into.real += total(measure.reals, 0.0);
      } else if (op != AggregateOp::kCount) {
        into.add(total(measure.wide, Int128{0}));
      }
    }
    into.count += static_cast<int64_t>(counted);
  }
}

void IntervalIndex::flush() {
  fold_sums();
  for (const IndexedQuery& entry : queries_) emit(entry);
  reset();
}

void IntervalIndex::reset() {
  const size_t size = counts_.size();
  counts_.clear();
  for (Measure& measure : measures_) measure.clear();
  extend(size);
  unfolded_rows_ = 0;
  std::ranges::fill(cells_, 0);
  rows_in_cells_ = 0;
}

void IntervalIndex::extend(size_t size) {
  counts_.resize(size, 0);
  for (Measure& measure : measures_) measure.extend(size);
}

void IntervalIndex::Measure::extend(size_t size) {
  if (nullable) nulls.resize(size, 0);
  if (min) lowest.resize(size, kHighest);
  if (max) highest.resize(size, kLowest);
  if (!sum) return;
  if (is_float(type)) {
    reals.resize(size, 0);
  } else {
    sums.resize(size, 0);
    wide.resize(size, 0);
  }
}

void IntervalIndex::Measure::clear() {
  for (auto* const array : {&sums, &lowest, &highest}) array->clear();
  nulls.clear();
  wide.clear();
  reals.clear();
}

}  // namespace loam::storage
