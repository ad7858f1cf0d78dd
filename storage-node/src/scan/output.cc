// The three kinds of output: projection, top-k, aggregates. scan_query.cc sends the chunks that they fill.
#include "storage-node/src/scan/output.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/schema/top_rows.h"
#include "storage-node/src/scan/kernels.h"

namespace loam::storage {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// The output of a projection. It appends rows to the chunk as they arrive, column by column.
class ProjectionOutput final : public Output {
 public:
  ProjectionOutput(const Schema& schema, const Query& query, const Query& bound)
      : Output(query.partial_schema(schema)),
        schema_(schema),
        select_(bound.select),
        with_key_(query.with_key),
        with_version_(query.with_version),
        left_(query.limit == 0 ? std::numeric_limits<uint64_t>::max() : query.limit) {
    for (const Field& column : chunk_.schema().columns) {
      fixed_ = fixed_ && !is_variable(column.type);
      row_bytes_ += std::max(sizeof(uint64_t), fixed_width(column.type));
    }
  }

  Result<size_t> consume(BlockValues& values, RowMask& rows) override {
    RowNumbers numbers;
    const size_t n = rows.numbers(numbers.data());
    size_t take = static_cast<size_t>(std::min<uint64_t>(n, left_));
    if (!fixed_) {
      // Rows have different lengths: append one at a time until the chunk is full.
      for (size_t i = 0; i < take; ++i) {
        append(values, numbers.data() + i, 1);
        if (full()) take = i + 1;
      }
    } else {
      // As many rows as fit into the rest of the chunk, and one more, which makes it full.
      take = std::min(take, 1 + (chunk_bytes_ - std::min(chunk_bytes_, chunk_.bytes())) / row_bytes_);
      append(values, numbers.data(), take);
    }
    left_ -= take;
    if (take == n) {
      rows = {};
    } else {
      for (size_t i = 0; i < take; ++i) rows.reset(numbers[i]);
    }
    return take;
  }

  bool satisfied() const override { return left_ == 0; }

 private:
  void append(const BlockValues& values, const uint16_t* rows, size_t n) {
    const Block& block = values.block();
    size_t column = 0;
    if (with_key_) fill<uint64_t>(column++, n, [&](size_t i) { return block.entry(rows[i]).key; });
    if (with_version_) fill<uint64_t>(column++, n, [&](size_t i) { return block.valid_from(rows[i]); });
    for (const uint16_t field : select_) append_field(column++, field, values, rows, n);
    chunk_.end_rows(n);
  }

  void append_field(size_t column, uint16_t field, const BlockValues& values, const uint16_t* rows, size_t n) {
    switch (fixed_width(chunk_.schema().columns[column].type)) {
      case 1:
        return append_fixed<uint8_t>(column, field, values, rows, n);
      case 2:
        return append_fixed<int16_t>(column, field, values, rows, n);
      case 4:
        return append_fixed<int32_t>(column, field, values, rows, n);
      case 8:
        return append_fixed<int64_t>(column, field, values, rows, n);
      case 16:
        return append_fixed<Int128>(column, field, values, rows, n);
      default:
        for (size_t i = 0; i < n; ++i) {
          if (values.is_null(field, rows[i])) {
            chunk_.append_null(column);
          } else {
            chunk_.append_text(column, values.text(field, rows[i]));
          }
        }
    }
  }

  template <class T, class Get>
  void fill(size_t column, size_t n, Get get) {
    std::byte* at = chunk_.extend(column, n);
    for (size_t i = 0; i < n; ++i, at += sizeof(T)) {
      const T value = get(i);
      std::memcpy(at, &value, sizeof value);
    }
  }

  template <class T>
  void append_fixed(size_t column, uint16_t field, const BlockValues& values, const uint16_t* rows, size_t n) {
    if (!chunk_.schema().columns[column].nullable) {
      // Without NULLs one loop copies the values to the chunk, from the columns or directly from the rows.
      if (values.block().columns() != nullptr || field >= kFirstComputed) {
        return fill<T>(column, n, [&](size_t i) { return values.value<T>(field, rows[i]); });
      }
      const Block& block = values.block();
      return fill<T>(column, n, [&, offset = schema_.layout(field).offset](size_t i) {
        return load<T>(block.row(rows[i]) + offset);
      });
    }
    for (size_t i = 0; i < n; ++i) {
      if (values.is_null(field, rows[i])) {
        chunk_.append_null(column);
      } else {
        chunk_.append(column, values.value<T>(field, rows[i]));
      }
    }
  }

  const Schema& schema_;
  const std::vector<uint16_t> select_;
  const bool with_key_, with_version_;
  bool fixed_ = true;  // every column has a fixed width
  size_t row_bytes_ = 2 * sizeof(uint64_t);
  uint64_t left_;
};

/// The output of a top-k query. It keeps the k best rows as values and writes them after the last page.
class TopKOutput final : public Output {
 public:
  TopKOutput(const Schema& schema, const Query& query, const Query& bound, MemoryAccount& account)
      : Output(query.partial_schema(schema)), query_(bound), top_(*bound.top_k, kMaxTopBytes, &account) {}

  Result<size_t> consume(BlockValues& values, RowMask& rows) override {
    const Block& block = values.block();
    const size_t n = rows.count();
    RowNumbers numbers;
    rows.numbers(numbers.data());
    for (size_t i = 0; i < n; ++i) {
      Value by = values.any_value(query_.top_k->field, numbers[i]);
      // Most rows end here, before their other fields are read.
      if (!top_.qualifies(by)) continue;
      std::vector<Value> kept;
      // Keep values instead of a place in the page: the query unpins the page before it ends.
      kept.reserve(chunk_.schema().size());
      if (query_.with_key) kept.push_back(Value::uint64(block.entry(numbers[i]).key));
      if (query_.with_version) kept.push_back(Value::uint64(block.valid_from(numbers[i])));
      for (const uint16_t column : query_.select) kept.push_back(values.any_value(column, numbers[i]));
      kept.push_back(by);
      LOAM_RETURN_IF_ERROR(top_.add(std::move(by), std::move(kept)));
    }
    rows = {};
    return n;
  }

  bool drain() override {
    // The first call sorts the rows. Later calls continue with the next chunk.
    if (sorted_.empty() && next_ == 0) sorted_ = top_.release_sorted();
    for (; next_ < sorted_.size() && !full(); ++next_) chunk_.append_row(sorted_[next_].values);
    return next_ == sorted_.size();
  }

 private:
  const Query query_;
  TopRows top_;
  std::vector<TopRows::Row> sorted_;
  size_t next_ = 0;
};

/// A row of a block, for the groups of a query.
class BlockRow final : public GroupRow {
 public:
  /// `numbers` maps the numbers of the query's computed columns to those of the values.
  BlockRow(const BlockValues& values, std::span<const uint16_t> numbers) : values_(values), numbers_(numbers) {}

  void move_to(size_t row) { row_ = row; }
  bool is_null(size_t column) const override { return values_.is_null(number(column), row_); }
  Int128 whole(size_t column) const override {
    const uint16_t at = number(column);
    return with_stored(values_.type(at), [&]<class T>(T) { return static_cast<Int128>(values_.value<T>(at, row_)); });
  }
  double real(size_t column) const override {
    const uint16_t at = number(column);
    if (values_.type(at) == FieldType::kFloat32) return static_cast<double>(values_.value<float>(at, row_));
    return values_.value<double>(at, row_);
  }
  std::string_view text(size_t column) const override { return values_.text(number(column), row_); }

 private:
  uint16_t number(size_t column) const {
    return column < kFirstComputed ? static_cast<uint16_t>(column) : numbers_[column - kFirstComputed];
  }

  const BlockValues& values_;
  const std::span<const uint16_t> numbers_;
  size_t row_ = 0;
};

/// The output of aggregates. It keeps accumulators for each group and writes the groups after the last page.
class AggregateOutput final : public Output {
 public:
  AggregateOutput(const Schema& schema, const Query& query, const BlockValues::BoundQuery& bound,
                  MemoryAccount& account)
      : Output(query.partial_schema(schema)),
        aggregates_(bound.query.aggregates),
        split_(bound.groups),
        columns_(bound.columns),
        sums_(aggregates_.size()),
        groups_(schema, query, kMaxGroups, kMaxGroupBytes, &account) {
    for (size_t i = 0; i < aggregates_.size(); ++i) {
      const auto same = [&](const Aggregate& a) { return adds(a) && a.field == aggregates_[i].field; };
      sums_[i].of = static_cast<size_t>(std::ranges::find_if(aggregates_, same) - aggregates_.begin());
    }
  }

  Result<size_t> consume(BlockValues& values, RowMask& rows) override {
    const size_t n = rows.count();
    if (split_ == nullptr) {
      accumulate_all(values, rows, 0);
      LOAM_RETURN_IF_ERROR(groups_.check_texts());
    } else if (const auto sets = values.split(*split_); !sets.empty()) {
      LOAM_RETURN_IF_ERROR(add_sets(values, sets, rows));
    } else {
      // Each row takes a lookup in a hash table.
      BlockRow row(values, columns_);
      RowNumbers numbers;
      rows.numbers(numbers.data());
      for (size_t i = 0; i < n; ++i) {
        row.move_to(numbers[i]);
        LOAM_RETURN_IF_ERROR(groups_.add(row));
      }
    }
    rows = {};
    return n;
  }

  Accumulator* accumulators() override { return split_ == nullptr ? groups_.accumulators(0) : nullptr; }

  bool drain() override {
    for (; next_ < groups_.groups() && !full(); ++next_) groups_.append_partial(next_, chunk_);
    return next_ == groups_.groups();
  }

 private:
  /// The sum of one aggregate over the last set of rows.
  struct Sum {
    size_t of = 0;  // the first aggregate that adds the same column
    int64_t count = 0;
    Int128 whole = 0;
    double real = 0;
    bool wide = false;  // it may not fit `whole`
  };

  static bool adds(const Aggregate& aggregate) {
    return aggregate.op == AggregateOp::kSum || aggregate.op == AggregateOp::kAvg;
  }

  /// Adds the rows of each set to its group.
  Status add_sets(BlockValues& values, std::span<const BlockGroups::Set> sets, const RowMask& rows) {
    if (std::exchange(epoch_, split_->epoch()) != split_->epoch()) known_.clear();
    for (const BlockGroups::Set& set : sets) {
      const RowMask of_set = rows & set.rows;
      if (!of_set.any()) continue;
      if (set.number >= known_.size()) known_.resize(set.number + size_t{1});
      uint32_t& group = known_[set.number];
      if (group == 0) {
        BlockRow row(values, columns_);
        row.move_to(of_set.front());
        LOAM_ASSIGN_OR_RETURN(const size_t number, groups_.group_of(row));
        group = static_cast<uint32_t>(number + 1);
      }
      accumulate_all(values, of_set, group - 1);
    }
    return groups_.check_texts();
  }

  /// Updates all aggregates of a group by rows of a block. Each runs over whole columns.
  void accumulate_all(BlockValues& values, const RowMask& rows, size_t group) {
    const auto n = static_cast<int64_t>(rows.count());
    for (size_t i = 0; i < aggregates_.size(); ++i) {
      Accumulator& into = groups_.accumulators(group)[i];
      const Aggregate& aggregate = aggregates_[i];
      if (aggregate.op == AggregateOp::kCountAll) {
        into.count += n;
      } else if (adds(aggregate)) {
        add_sum(i, values, rows, into);
      } else if (const RowMask present = rows & values.present(aggregate.field); present.any()) {
        if (aggregate.op != AggregateOp::kCount) update(i, values, present, group, into);
        into.count += static_cast<int64_t>(present.count());
      }
    }
  }

  void add_sum(size_t i, BlockValues& values, const RowMask& rows, Accumulator& into) {
    Sum& sum = sums_[sums_[i].of];
    const uint16_t field = aggregates_[i].field;
    const bool real = is_float(values.type(field));
    if (sums_[i].of == i) {
      const RowMask present = rows & values.present(field);
      sum.count = static_cast<int64_t>(present.count());
      if (sum.count == 0) return;
      if (real) {
        sum.real = sum_of_reals(values.reals(field), present);
      } else {
        sum.wide = !sum_integers(values, field, present, sum.whole);
      }
    }
    if (sum.count == 0) return;
    into.count += sum.count;
    if (real) {
      into.real += sum.real;
    } else if (!sum.wide) {
      into.add(sum.whole);
    } else {
      (rows & values.present(field)).for_each([&](size_t row) { into.add(values.value<Int128>(field, row)); });
    }
  }

  /// Updates the extreme of one aggregate by rows that are not NULL.
  void update(size_t i, BlockValues& values, const RowMask& rows, size_t group, Accumulator& into) {
    const auto [op, field] = aggregates_[i];
    const bool min = op == AggregateOp::kMin, first = into.count == 0;
    const FieldType type = values.type(field);
    if (is_variable(type)) {
      std::string_view best = values.text(field, rows.front());
      rows.for_each([&](size_t row) {
        const std::string_view text = values.text(field, row);
        if (min ? text < best : text > best) best = text;
      });
      groups_.update_text(group, i, best, first);
    } else if (is_long(type) && values.exact_keys(field) == nullptr) {
      const auto value = [&](size_t row) { return values.value<Int128>(field, row); };
      if (first) into.whole = value(rows.front());
      rows.for_each(
          [&](size_t row) { into.whole = min ? std::min(into.whole, value(row)) : std::max(into.whole, value(row)); });
    } else {
      const int64_t* const keys = values.keys(field);
      const int64_t key = min ? kernels().min(keys, rows) : kernels().max(keys, rows);
      update_extreme(op, type, key, into);
    }
  }

  static double sum_of_reals(const double* values, const RowMask& rows) {
    double sum = 0;
    rows.for_each([&](size_t row) { sum += values[row]; });
    return sum;
  }

  /// Adds the integers of some rows. Returns whether the sum is sure to fit.
  static bool sum_integers(BlockValues& values, uint16_t field, const RowMask& rows, Int128& sum) {
    const int64_t* const numbers = values.exact_keys(field);
    if (numbers == nullptr) return false;
    // The sum of kBlockRows integers of this magnitude fits 64 bits.
    if (values.magnitude(field) < static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / kBlockRows) {
      sum = kernels().sum(numbers, rows);
      return true;
    }
    sum = 0;
    rows.for_each([&](size_t row) { sum += numbers[row]; });
    return true;
  }

  const std::vector<Aggregate> aggregates_;  // with the numbers of the values
  BlockGroups* const split_;                 // null without group-by
  const std::vector<uint16_t> columns_;      // the numbers of the computed columns
  std::vector<Sum> sums_;                    // by aggregate
  GroupTable groups_;
  uint64_t epoch_ = 0;           // the epoch of known_
  std::vector<uint32_t> known_;  // by the number of a set: its group + 1, or 0
  size_t next_ = 0;
};

}  // namespace

void update_extreme(AggregateOp op, FieldType type, int64_t key, Accumulator& into) {
  // The caller adds to the count afterwards, so 0 says that `into` has no value yet.
  const bool first = into.count == 0;
  if (!is_float(type)) {
    const auto present = static_cast<int64_t>(into.whole);
    if (first || (op == AggregateOp::kMin ? key < present : key > present)) into.whole = key;
  } else {
    const int64_t present = order_key(into.real);
    if (first || (op == AggregateOp::kMin ? key < present : key > present)) into.real = float_of_key(key);
  }
}

std::unique_ptr<Output> Output::make(const Schema& schema, const Query& query, const BlockValues::BoundQuery& bound,
                                     MemoryAccount& account) {
  if (query.aggregating()) return std::make_unique<AggregateOutput>(schema, query, bound, account);
  if (query.top_k) return std::make_unique<TopKOutput>(schema, query, bound.query, account);
  return std::make_unique<ProjectionOutput>(schema, query, bound.query);
}

}  // namespace loam::storage
