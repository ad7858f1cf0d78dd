// The three kinds of output: projection, top-k, aggregates. scan_query.cc sends the chunks that they fill.
#include "storage-node/src/scan/output.h"

#include <algorithm>
#include <cstring>
#include <limits>
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
  ProjectionOutput(const Schema& schema, const Query& query)
      : Output(query.partial_schema(schema)),
        schema_(schema),
        select_(query.select),
        with_key_(query.with_key),
        with_version_(query.with_version),
        left_(query.limit == 0 ? std::numeric_limits<uint64_t>::max() : query.limit) {
    for (const uint16_t field : select_) {
      fixed_ = fixed_ && !is_variable(schema.field(field).type);
      row_bytes_ += std::max(sizeof(uint64_t), fixed_width(schema.field(field).type));
    }
    row_bytes_ += sizeof(uint64_t) * (size_t{with_key_} + size_t{with_version_});
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
    switch (fixed_width(schema_.field(field).type)) {
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
    if (!schema_.field(field).nullable) {
      // Without NULLs one loop copies the values to the chunk, from the columns or directly from the rows.
      if (values.block().columns() != nullptr) {
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
  TopKOutput(const Schema& schema, const Query& query, MemoryAccount& account)
      : Output(query.partial_schema(schema)), query_(query), top_(*query.top_k, kMaxTopBytes, &account) {}

  Result<size_t> consume(BlockValues& values, RowMask& rows) override {
    const Block& block = values.block();
    const size_t n = rows.count();
    RowNumbers numbers;
    rows.numbers(numbers.data());
    for (size_t i = 0; i < n; ++i) {
      Value by = values.view(numbers[i], {&query_.top_k->field, 1}).value(query_.top_k->field);
      // Most rows end here, before their other fields are read.
      if (!top_.qualifies(by)) continue;
      const RowView row = values.view(numbers[i], query_.select);
      std::vector<Value> kept;
      // Keep values instead of a place in the page: the query unpins the page before it ends.
      kept.reserve(chunk_.schema().size());
      if (query_.with_key) kept.push_back(Value::uint64(block.entry(numbers[i]).key));
      if (query_.with_version) kept.push_back(Value::uint64(block.valid_from(numbers[i])));
      for (const uint16_t field : query_.select) kept.push_back(row.value(field));
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

/// The output of aggregates. It keeps accumulators for each group and writes the groups after the last page.
class AggregateOutput final : public Output {
 public:
  AggregateOutput(const Schema& schema, const Query& query, MemoryAccount& account)
      : Output(query.partial_schema(schema)),
        schema_(schema),
        aggregates_(query.aggregates),
        grouped_(!query.group_by.empty()),
        fields_(query.group_by),
        account_(account),
        groups_(schema, query, kMaxGroups, kMaxGroupBytes, &account) {
    for (size_t i = 0; i < aggregates_.size(); ++i) {
      // The field of a count of rows is not used and may be any number, also one that the schema does not have.
      if (aggregates_[i].op == AggregateOp::kCountAll) continue;
      fields_.push_back(aggregates_[i].field);
      if (is_variable(schema.field(aggregates_[i].field).type)) texts_.push_back(i);
    }
  }

  Result<size_t> consume(BlockValues& values, RowMask& rows) override {
    const size_t n = rows.count();
    // With groups, each row takes a lookup in a hash table. Without groups, each aggregate runs over whole columns.
    if (grouped_) {
      RowNumbers numbers;
      rows.numbers(numbers.data());
      for (size_t i = 0; i < n; ++i) LOAM_RETURN_IF_ERROR(groups_.add(values.view(numbers[i], fields_)));
    } else {
      for (size_t i = 0; i < aggregates_.size(); ++i) {
        accumulate(aggregates_[i], values, rows, groups_.accumulators(0)[i]);
      }
      LOAM_RETURN_IF_ERROR(charge_texts());
    }
    rows = {};
    return n;
  }

  Accumulator* accumulators() override { return grouped_ ? nullptr : groups_.accumulators(0); }

  bool drain() override {
    for (; next_ < groups_.groups() && !full(); ++next_) groups_.append_partial(next_, chunk_);
    return next_ == groups_.groups();
  }

 private:
  /// Updates one aggregate of a query without group-by by the selected rows of a block.
  void accumulate(const Aggregate& aggregate, BlockValues& values, RowMask rows, Accumulator& into) {
    if (aggregate.op != AggregateOp::kCountAll) rows &= values.present(aggregate.field);
    const auto n = static_cast<int64_t>(rows.count());
    if (n == 0) return;
    if (aggregate.op != AggregateOp::kCountAll && aggregate.op != AggregateOp::kCount) {
      const FieldType type = schema_.field(aggregate.field).type;
      if (is_variable(type)) {
        accumulate_text(aggregate, values, rows, into);
      } else if (is_long(type)) {
        accumulate_long(aggregate, values, rows, into);
      } else if (aggregate.op == AggregateOp::kMin || aggregate.op == AggregateOp::kMax) {
        const int64_t* const keys = values.keys(aggregate.field);
        update_extreme(aggregate.op, type,
                       aggregate.op == AggregateOp::kMin ? kernels().min(keys, rows) : kernels().max(keys, rows), into);
      } else if (is_float(type)) {
        into.real += sum_of_reals(values.reals(aggregate.field), rows);
      } else {
        into.whole += sum_of_integers(values, aggregate.field, rows);
      }
    }
    into.count += n;
  }

  /// Charges the growth of the MIN and MAX texts of the only group to the account.
  Status charge_texts() {
    size_t bytes = 0;
    for (const size_t i : texts_) bytes += groups_.accumulators(0)[i].text.capacity();
    if (bytes <= text_bytes_) return ok_status();
    const size_t more = bytes - std::exchange(text_bytes_, bytes);
    return account_.acquire(more);
  }

  static void accumulate_text(const Aggregate& aggregate, const BlockValues& values, const RowMask& rows,
                              Accumulator& into) {
    const auto better = [&](std::string_view a, std::string_view b) {
      return aggregate.op == AggregateOp::kMin ? a < b : a > b;
    };
    std::string_view best = values.text(aggregate.field, rows.front());
    rows.for_each([&](size_t row) {
      const std::string_view text = values.text(aggregate.field, row);
      if (better(text, best)) best = text;
    });
    if (into.count == 0 || better(best, std::string_view(into.text))) into.text = best;
  }

  static void accumulate_long(const Aggregate& aggregate, const BlockValues& values, const RowMask& rows,
                              Accumulator& into) {
    const auto value = [&](size_t row) { return values.value<Int128>(aggregate.field, row); };
    if (aggregate.op == AggregateOp::kSum || aggregate.op == AggregateOp::kAvg) {
      rows.for_each([&](size_t row) { into.add(value(row)); });
      return;
    }
    const bool min = aggregate.op == AggregateOp::kMin;
    if (into.count == 0) into.whole = value(rows.front());
    rows.for_each(
        [&](size_t row) { into.whole = min ? std::min(into.whole, value(row)) : std::max(into.whole, value(row)); });
  }

  static double sum_of_reals(const double* values, const RowMask& rows) {
    double sum = 0;
    rows.for_each([&](size_t row) { sum += values[row]; });
    return sum;
  }

  static Int128 sum_of_integers(BlockValues& values, uint16_t field, const RowMask& rows) {
    const int64_t* const numbers = values.keys(field);
    // The sum of kBlockRows integers of this magnitude fits 64 bits.
    if (values.magnitude(field) < static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / kBlockRows) {
      return kernels().sum(numbers, rows);
    }
    Int128 sum = 0;
    rows.for_each([&](size_t row) { sum += numbers[row]; });
    return sum;
  }

  const Schema& schema_;
  const std::vector<Aggregate> aggregates_;
  const bool grouped_;
  std::vector<uint16_t> fields_;  // fields that the group table reads
  std::vector<size_t> texts_;     // positions in aggregates_ of MIN and MAX over texts
  MemoryAccount& account_;
  GroupTable groups_;
  size_t text_bytes_ = 0;  // bytes charged for the texts of the only group
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

std::unique_ptr<Output> Output::make(const Schema& schema, const Query& query, MemoryAccount& account) {
  if (query.aggregating()) return std::make_unique<AggregateOutput>(schema, query, account);
  if (query.top_k) return std::make_unique<TopKOutput>(schema, query, account);
  return std::make_unique<ProjectionOutput>(schema, query);
}

}  // namespace loam::storage
