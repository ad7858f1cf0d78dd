#include "storage-node/src/scan/output.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "common/schema/aggregate.h"
#include "common/schema/top_rows.h"

namespace loam::storage {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

bool null_at(const std::byte* row, const Schema& schema, uint16_t bit) {
  return ((static_cast<uint8_t>(row[schema.null_offset() + bit / 8]) >> (bit % 8)) & 1) != 0;
}

/// Rows go into the chunk as they come, column by column.
class Projection final : public Output {
 public:
  Projection(const Schema& schema, const Query& query)
      : Output(query.partial_schema(schema)),
        schema_(schema),
        select_(query.select),
        with_key_(query.with_key),
        with_version_(query.with_version),
        left_(query.limit == 0 ? std::numeric_limits<uint64_t>::max() : query.limit) {
    for (const uint16_t field : select_) {
      fixed_ = fixed_ && !is_variable(schema.field(field).type);
      row_bytes_ += sizeof(uint64_t);
    }
  }

  Result<size_t> take(const Block& block, const uint16_t* rows, size_t n) override {
    size_t take = static_cast<size_t>(std::min<uint64_t>(n, left_));
    if (!fixed_) {
      // Rows differ in length: stop when the chunk is full.
      for (size_t i = 0; i < take; ++i) {
        append(block, rows + i, 1);
        if (full()) take = i + 1;
      }
    } else if (take * row_bytes_ > kScanChunkBytes) {
      take = 1 + kScanChunkBytes / row_bytes_;
      append(block, rows, take);
    } else {
      append(block, rows, take);
    }
    left_ -= take;
    return take;
  }

  bool satisfied() const override { return left_ == 0; }

 private:
  void append(const Block& block, const uint16_t* rows, size_t n) {
    size_t column = 0;
    if (with_key_) fill<uint64_t>(column++, n, [&](size_t i) { return block.entry(rows[i]).key; });
    if (with_version_) fill<uint64_t>(column++, n, [&](size_t i) { return block.valid_from(rows[i]); });
    for (const uint16_t field : select_) append_field(column++, field, block, rows, n);
    chunk_.end_rows(n);
  }

  void append_field(size_t column, uint16_t field, const Block& block, const uint16_t* rows, size_t n) {
    switch (fixed_width(schema_.field(field).type)) {
      case 2:
        return append_fixed<int16_t>(column, field, block, rows, n);
      case 4:
        return append_fixed<int32_t>(column, field, block, rows, n);
      case 8:
        return append_fixed<int64_t>(column, field, block, rows, n);
      default:
        for (size_t i = 0; i < n; ++i) chunk_.append_field(column, block.view(schema_, rows[i]), field);
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
  void append_fixed(size_t column, uint16_t field, const Block& block, const uint16_t* rows, size_t n) {
    const FieldLayout& layout = schema_.layout(field);
    if (layout.null_bit == FieldLayout::kNone) {
      return fill<T>(column, n, [&, offset = layout.offset](size_t i) { return load<T>(block.row(rows[i]) + offset); });
    }
    for (size_t i = 0; i < n; ++i) {
      const std::byte* const row = block.row(rows[i]);
      if (null_at(row, schema_, layout.null_bit)) {
        chunk_.append_null(column);
      } else {
        chunk_.append(column, load<T>(row + layout.offset));
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

/// Keeps the k best rows, and their columns as values.
class TopOutput final : public Output {
 public:
  TopOutput(const Schema& schema, const Query& query)
      : Output(query.partial_schema(schema)), schema_(schema), query_(query), top_(*query.top_k) {}

  Result<size_t> take(const Block& block, const uint16_t* rows, size_t n) override {
    for (size_t i = 0; i < n; ++i) {
      const RowView row = block.view(schema_, rows[i]);
      Value by = row.value(query_.top_k->field);
      if (!top_.wants(by)) continue;
      std::vector<Value> values;
      values.reserve(chunk_.schema().size());
      if (query_.with_key) values.push_back(Value::uint64(block.entry(rows[i]).key));
      if (query_.with_version) values.push_back(Value::uint64(block.valid_from(rows[i])));
      for (const uint16_t field : query_.select) values.push_back(row.value(field));
      values.push_back(by);
      LOAM_RETURN_IF_ERROR(top_.add(std::move(by), std::move(values)));
    }
    return n;
  }

  bool drain() override {
    if (sorted_.empty() && next_ == 0) sorted_ = top_.take();
    for (; next_ < sorted_.size() && !full(); ++next_) chunk_.append_row(sorted_[next_].values);
    return next_ == sorted_.size();
  }

 private:
  const Schema& schema_;
  const Query query_;
  TopRows top_;
  std::vector<TopRows::Row> sorted_;
  size_t next_ = 0;
};

/// Counts up, and puts the groups into chunks at the end.
class Aggregation final : public Output {
 public:
  Aggregation(const Schema& schema, const Query& query)
      : Output(query.partial_schema(schema)),
        schema_(schema),
        aggregates_(query.aggregates),
        grouped_(!query.group_by.empty()),
        groups_(schema, query) {}

  Result<size_t> take(const Block& block, const uint16_t* rows, size_t n) override {
    if (grouped_) {
      for (size_t i = 0; i < n; ++i) LOAM_RETURN_IF_ERROR(groups_.add(block.view(schema_, rows[i])));
      return n;
    }
    for (size_t i = 0; i < aggregates_.size(); ++i) {
      accumulate(aggregates_[i], block, rows, n, groups_.accumulators(0)[i]);
    }
    return n;
  }

  bool drain() override {
    for (; next_ < groups_.groups() && !full(); ++next_) groups_.append_partial(next_, chunk_);
    return next_ == groups_.groups();
  }

 private:
  /// The loop of queries without group-by: one aggregate over the selected rows of a block.
  void accumulate(const Aggregate& aggregate, const Block& block, const uint16_t* rows, size_t n, Accumulator& into) {
    if (aggregate.op == AggregateOp::kCountAll) {
      into.count += static_cast<int64_t>(n);
      return;
    }
    const FieldLayout& layout = schema_.layout(aggregate.field);
    RowNumbers present;
    if (layout.null_bit != FieldLayout::kNone) {
      size_t kept = 0;
      for (size_t i = 0; i < n; ++i) {
        present[kept] = rows[i];
        kept += null_at(block.row(rows[i]), schema_, layout.null_bit) ? 0 : 1;
      }
      rows = present.data();
      n = kept;
    }
    if (n == 0) return;
    if (aggregate.op == AggregateOp::kCount) {
      into.count += static_cast<int64_t>(n);
      return;
    }
    switch (schema_.field(aggregate.field).type) {
      case FieldType::kInt16:
        return accumulate_as<int16_t>(aggregate.op, layout.offset, block, rows, n, into);
      case FieldType::kInt32:
        return accumulate_as<int32_t>(aggregate.op, layout.offset, block, rows, n, into);
      case FieldType::kInt64:
        return accumulate_as<int64_t>(aggregate.op, layout.offset, block, rows, n, into);
      case FieldType::kFloat32:
        return accumulate_as<float>(aggregate.op, layout.offset, block, rows, n, into);
      case FieldType::kFloat64:
        return accumulate_as<double>(aggregate.op, layout.offset, block, rows, n, into);
      default:
        return accumulate_text(aggregate, block, rows, n, into);
    }
  }

  template <class T>
  static void accumulate_as(AggregateOp op, uint32_t offset, const Block& block, const uint16_t* rows, size_t n,
                            Accumulator& into) {
    const auto value = [&](size_t i) { return load<T>(block.row(rows[i]) + offset); };
    if (op == AggregateOp::kSum || op == AggregateOp::kAvg) {
      if constexpr (std::is_floating_point_v<T>) {
        double sum = 0;
        for (size_t i = 0; i < n; ++i) sum += static_cast<double>(value(i));
        into.real += sum;
      } else {
        // 256 numbers of 32 bits cannot leave 64.
        std::conditional_t<sizeof(T) == 8, Int128, int64_t> sum = 0;
        for (size_t i = 0; i < n; ++i) sum += value(i);
        into.whole += sum;
      }
    } else {
      T best = value(0);
      for (size_t i = 1; i < n; ++i) best = better(op, value(i), best) ? value(i) : best;
      if constexpr (std::is_floating_point_v<T>) {
        if (into.count == 0 || better(op, static_cast<double>(best), into.real)) into.real = static_cast<double>(best);
      } else {
        if (into.count == 0 || better(op, int64_t{best}, static_cast<int64_t>(into.whole))) into.whole = best;
      }
    }
    into.count += static_cast<int64_t>(n);
  }

  void accumulate_text(const Aggregate& aggregate, const Block& block, const uint16_t* rows, size_t n,
                       Accumulator& into) const {
    std::string_view best = block.view(schema_, rows[0]).text(aggregate.field);
    for (size_t i = 1; i < n; ++i) {
      const std::string_view text = block.view(schema_, rows[i]).text(aggregate.field);
      if (better(aggregate.op, text, best)) best = text;
    }
    if (into.count == 0 || better(aggregate.op, best, std::string_view(into.text))) into.text = best;
    into.count += static_cast<int64_t>(n);
  }

  template <class T>
  static bool better(AggregateOp op, T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
      return op == AggregateOp::kMin ? compare_floats(a, b) < 0 : compare_floats(a, b) > 0;
    } else {
      return op == AggregateOp::kMin ? a < b : a > b;
    }
  }

  const Schema& schema_;
  const std::vector<Aggregate> aggregates_;
  const bool grouped_;
  GroupTable groups_;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Output> Output::make(const Schema& schema, const Query& query) {
  if (query.aggregating()) return std::make_unique<Aggregation>(schema, query);
  if (query.top_k) return std::make_unique<TopOutput>(schema, query);
  return std::make_unique<Projection>(schema, query);
}

}  // namespace loam::storage
