// Rows of values as a batch that an evaluator of expressions reads. For tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "common/expression/evaluator.h"
#include "common/schema/schema.h"
#include "common/schema/value.h"

namespace loam::testing {

/// A batch of up to kBlockRows rows with a value for each field of a schema, which outlives it.
class ValueRows final : public FieldSource {
 public:
  /// `bounded`: the magnitude of each field is known, as that of a column page is.
  ValueRows(const Schema& schema, std::vector<std::vector<Value>> rows, bool bounded = false)
      : schema_(schema), rows_(std::move(rows)), all_(RowMask::first(rows_.size())), columns_(schema.size()) {
    for (size_t field = 0; field < schema.size(); ++field) fill(field);
    for (Column& column : columns_) {
      if (bounded && column.lanes.keys != nullptr) column.lanes.magnitude = magnitude_of(column.lanes);
    }
  }

  const RowMask& all() const override { return all_; }
  FieldType type(uint16_t field) const override { return schema_.field(field).type; }
  const ColumnLanes& lanes(uint16_t field) override { return columns_[field].lanes; }

 private:
  struct Column {
    std::array<int64_t, kBlockRows> keys{};
    std::array<double, kBlockRows> reals{};
    std::array<Int128, kBlockRows> longs{};
    std::array<std::string_view, kBlockRows> texts{};
    ColumnLanes lanes;
  };

  static uint64_t magnitude_of(const ColumnLanes& lanes) {
    uint64_t magnitude = 0;
    lanes.present.for_each([&](size_t row) {
      magnitude = std::max(magnitude, ColumnLanes::magnitude_of(lanes.keys[row], lanes.keys[row]));
    });
    return magnitude;
  }

  void fill(size_t field) {
    const FieldType type = schema_.field(field).type;
    Column& column = columns_[field];
    ColumnLanes& lanes = column.lanes;
    if (is_variable(type)) {
      lanes.texts = column.texts.data();
    } else if (is_float(type)) {
      lanes.reals = column.reals.data();
    } else if (is_long(type)) {
      lanes.longs = column.longs.data();
    } else if (type != FieldType::kBoolean) {
      lanes.keys = column.keys.data();
    }
    for (size_t row = 0; row < rows_.size(); ++row) {
      const Value& value = rows_[row][field];
      if (value.is_null()) continue;
      lanes.present.set(row);
      if (is_variable(type)) {
        column.texts[row] = value.as_text();
      } else if (is_float(type)) {
        column.reals[row] = value.as_float64();
      } else if (is_long(type)) {
        column.longs[row] = value.as_decimal();
      } else if (type != FieldType::kBoolean) {
        column.keys[row] = value.as_int64();
      } else if (value.as_boolean()) {
        lanes.truths.set(row);
      }
    }
  }

  const Schema& schema_;
  const std::vector<std::vector<Value>> rows_;
  const RowMask all_;
  std::vector<Column> columns_;
};

/// The value of a column of this type at a row that is no error, which may be NULL.
inline Value value_at(const ColumnLanes& lanes, FieldType type, size_t row) {
  if (!lanes.present.test(row)) return Value::null();
  if (type == FieldType::kBoolean) return Value::boolean(lanes.truths.test(row));
  if (type == FieldType::kText) return Value::text(lanes.texts[row]);
  if (type == FieldType::kBlob) return Value::blob(as_bytes(lanes.texts[row]));
  if (is_float(type)) return Value::stored(type, lanes.reals[row]);
  return Value::stored(type, lanes.whole(row));
}

}  // namespace loam::testing
