// The outputs of projections and top-k queries; aggregate_output.cc has that of aggregates. scan_query.cc sends the
// chunks that they fill.
#include "storage-node/src/scan/output.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result/top_rows.h"
#include "storage-node/src/scan/aggregate_output.h"

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

  Result<bool> drain() override {
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

}  // namespace

bool Output::reserve_indexed_groups(size_t) { LOAM_CHECK(false, "a query without groups has no groups of an index"); }
Accumulator* Output::accumulators_of(const GroupRow&) {
  LOAM_CHECK(false, "a query without groups has no groups of an index");
}

std::unique_ptr<Output> Output::make(const Schema& schema, const Query& query, const BlockValues::BoundQuery& bound,
                                     MemoryAccount& account) {
  if (query.aggregating()) return make_aggregate_output(schema, query, bound, account);
  if (query.top_k) return std::make_unique<TopKOutput>(schema, query, bound.query, account);
  return std::make_unique<ProjectionOutput>(schema, query, bound.query);
}

}  // namespace loam::storage
