// Rows of any kind as the fields of a batch, for an evaluator outside of a scan.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/assert.h"
#include "common/expression/evaluator.h"
#include "common/schema/field_type.h"
#include "common/schema/value.h"

namespace loam {

/// Collects up to kBlockRows rows, whose texts stay where they are.
///
/// Role: gives groups at a client, or the rows that a transaction has written, to an evaluator. Owner: one thread. The
/// memory is kept from batch to batch.
class FieldBatch final : public FieldSource {
 public:
  /// The rows have columns of these types.
  explicit FieldBatch(std::vector<FieldType> types) : types_(std::move(types)), columns_(types_.size()) {}

  /// Number of rows.
  size_t size() const { return size_; }
  /// Whether there is no place for another row.
  bool full() const { return size_ == kBlockRows; }
  /// Removes all rows.
  void clear() {
    size_ = 0;
    all_ = {};
    for (Column& column : columns_) {
      column.lanes.present = {};
      column.lanes.truths = {};
    }
  }

  /// Adds a row of a source, such as a RowView or a row of a ChunkView, whose functions is_null, get and text take the
  /// number of a column and then `at`. The texts of the source outlive the batch.
  template <class Source, class... At>
  void add(const Source& source, At... at) {
    LOAM_CHECK(!full(), "a batch has a place for each row");
    for (size_t column = 0; column < types_.size(); ++column) {
      if (!source.is_null(column, at...)) set(column, source, at...);
    }
    all_.set(size_++);
  }

  const RowMask& all() const override { return all_; }
  FieldType type(uint16_t field) const override { return types_[field]; }
  const ColumnLanes& lanes(uint16_t field) override {
    Column& column = columns_[field];
    ensure(column, types_[field]);
    return column.lanes;
  }

 private:
  struct Arrays {
    union {
      std::array<int64_t, kBlockRows> keys;
      std::array<double, kBlockRows> reals;
      std::array<Int128, kBlockRows> longs;
    };
    std::array<std::string_view, kBlockRows> texts;
    Arrays() : longs{} {}
  };
  struct Column {
    std::unique_ptr<Arrays> arrays;
    ColumnLanes lanes;
  };

  static void ensure(Column& column, FieldType type) {
    if (column.arrays != nullptr) return;
    column.arrays = std::make_unique<Arrays>();
    if (is_variable(type)) {
      column.lanes.texts = column.arrays->texts.data();
    } else if (is_float(type)) {
      column.lanes.reals = column.arrays->reals.data();
    } else if (is_long(type)) {
      column.lanes.longs = column.arrays->longs.data();
    } else if (type != FieldType::kBoolean) {
      column.lanes.keys = column.arrays->keys.data();
    }
  }

  template <class Source, class... At>
  void set(size_t number, const Source& source, At... at) {
    const FieldType type = types_[number];
    Column& column = columns_[number];
    ensure(column, type);
    column.lanes.present.set(size_);
    if (is_variable(type)) {
      column.arrays->texts[size_] = source.text(number, at...);
      return;
    }
    with_stored(type, [&]<class T>(T) {
      const T value = source.template get<T>(number, at...);
      if constexpr (std::is_floating_point_v<T>) {
        column.arrays->reals[size_] = static_cast<double>(value);
      } else if (type == FieldType::kBoolean) {
        if (value != 0) column.lanes.truths.set(size_);
      } else if (is_long(type)) {
        column.arrays->longs[size_] = static_cast<Int128>(value);
      } else {
        column.arrays->keys[size_] = static_cast<int64_t>(value);
      }
    });
  }

  const std::vector<FieldType> types_;
  std::vector<Column> columns_;
  size_t size_ = 0;
  RowMask all_;
};

}  // namespace loam
