// The fields of the rows of a block, as arrays.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/assert.h"
#include "common/expression/evaluator.h"
#include "common/expression/row_mask.h"
#include "common/schema/order_key.h"
#include "common/schema/query.h"
#include "common/schema/row.h"
#include "common/schema/schema.h"
#include "storage-node/src/scan/block.h"
#include "storage-node/src/scan/block_groups.h"

namespace loam::storage {

/// Provides the fields of the rows of a block as arrays, which vector instructions process (kernels.h).
///
/// Role: reads each field of a block at most once, for all queries. Owner: a scan pass. Threads: one. The memory is
/// reused from block to block.
///
/// An array has kBlockRows elements and is aligned to 64 bytes. Elements behind the block's rows are undefined. The
/// element of a row whose field is NULL is 0. If a column of a column page has the width of the array's elements, a
/// full block does not copy it: the array is the column in the page.
class BlockValues {
 public:
  explicit BlockValues(std::shared_ptr<const Schema> schema);

  /// Makes `block` the block whose values are read. The block must not change until the next call.
  void reset(const Block& block);

  /// A query whose computed columns have been added.
  struct BoundQuery {
    Query query;                    ///< without them, and with their numbers here
    std::vector<uint16_t> columns;  ///< their numbers here
    BlockGroups* groups = nullptr;  ///< the groups of its group-by; null without one
  };
  /// Adds the computed columns of a query. Equal columns of all queries have one number, and are computed once for a
  /// block. The caller releases the query when it ends. kOverloaded: too many columns are in use.
  Result<BoundQuery> bind(const Query& query);
  /// Removes the columns and groups of a query.
  void release(const BoundQuery& bound);
  /// Returns the type of a column.
  FieldType type(uint16_t column) const;
  /// Returns whether values of the column may be NULL.
  bool nullable(uint16_t column) const { return column >= kFirstComputed || schema_->field(column).nullable; }
  /// Returns the rows whose value of the column is an error. They are not present.
  RowMask failed(uint16_t column) { return column < kFirstComputed ? RowMask() : evaluator_.computed(column).failed; }
  /// Returns the error of a row in failed().
  Status error(uint16_t column, size_t row) const { return evaluator_.error(column, row); }

  const Schema& schema() const { return *schema_; }
  const Block& block() const { return *block_; }
  size_t size() const { return block_->size(); }
  /// Returns the set of all rows of the block.
  const RowMask& all() const { return all_; }

  /// Returns the order keys of a field (common/schema/order_key.h): the values of integers of up to 64 bits. Other
  /// types with is_long() have the keys of values beyond 64 bits in common.
  const int64_t* keys(uint16_t field);
  /// Returns the values of a float field, of either width, as doubles.
  const double* reals(uint16_t field);
  /// Returns an upper bound m on the magnitude of an integer field: every value is in [-m - 1, m].
  uint64_t magnitude(uint16_t field);
  /// Returns keys that differ where values differ; null if the keys of a type do not tell all values of the block
  /// apart.
  const int64_t* exact_keys(uint16_t column);
  /// Returns the sets of rows into which the groups of bound queries split the block; none if they do not.
  std::span<const BlockGroups::Set> split(BlockGroups& groups) { return groups.split(*this, number_); }
  /// Returns the rows whose field is not NULL.
  const RowMask& present(uint16_t field);
  /// Returns one value of a fixed-width column. T is the C++ type of the column, or an integer of its width, which then
  /// has the bytes of the value.
  template <class T>
  T value(uint16_t field, size_t row) const {
    if (field >= kFirstComputed) return computed_value<T>(field, row);
    if (const Columns* const columns = block_->columns()) return columns->get<T>(field, block_->first_row() + row);
    T value;
    std::memcpy(&value, block_->row(row) + schema_->layout(field).offset, sizeof value);
    return value;
  }
  bool is_null(uint16_t field, size_t row) const;
  /// Returns the bytes of a text or blob field.
  std::string_view text(uint16_t field, size_t row) const;
  /// Returns one value of any column.
  Value any_value(uint16_t column, size_t row) const;
  /// Returns the head key of each text: its first eight bytes as a number in the order of the bytes (order_key.h).
  const int64_t* heads(uint16_t field);
  /// Returns the tail key of each text: the head key of the text read backwards.
  const int64_t* tails(uint16_t field);

 private:
  /// The arrays of one field: keys and reals of a number, heads (in `keys`) and tails of a text.
  struct alignas(64) Lanes {
    int64_t keys[kBlockRows];
    union {
      double reals[kBlockRows];
      int64_t tails[kBlockRows];
    };
  };
  /// The cached arrays of one field.
  struct Column {
    // The number of the block from which each array was read. An array is valid if the number is that of the present
    // block.
    uint64_t keys_of = 0;   // for heads too
    uint64_t reals_of = 0;  // for tails too
    uint64_t magnitude_of = 0;
    uint64_t present_of = 0;
    uint64_t argument_of = 0;
    uint64_t magnitude = 0;
    bool short_texts = false;  // the heads tell the texts apart
    RowMask present;
    const int64_t* keys = nullptr;  // or heads; in the lanes or in the page
    const double* reals = nullptr;
    std::unique_ptr<Lanes> lanes;
    ColumnLanes argument;                                             // the field for expressions
    std::unique_ptr<std::array<std::string_view, kBlockRows>> texts;  // for expressions
    std::unique_ptr<std::array<Int128, kBlockRows>> longs;            // for expressions
  };

  /// The fields as arguments of computed columns.
  class Fields final : public FieldSource {
   public:
    explicit Fields(BlockValues& values) : values_(values) {}
    const RowMask& all() const override { return values_.all_; }
    FieldType type(uint16_t field) const override { return values_.schema_->field(field).type; }
    const ColumnLanes& lanes(uint16_t field) override { return values_.field_lanes(field); }

   private:
    BlockValues& values_;
  };

  template <class T>
  T computed_value(uint16_t column, size_t row) const {
    const ColumnLanes& lanes = evaluator_.computed(column);
    if (!lanes.present.test(row)) return T{};
    const FieldType of = type(column);
    if constexpr (std::is_floating_point_v<T>) {
      return static_cast<T>(lanes.reals[row]);
    } else {
      if (of == FieldType::kBoolean) return static_cast<T>(lanes.truths.test(row));
      if (!is_float(of)) return static_cast<T>(lanes.whole(row));
      if constexpr (sizeof(T) == sizeof(float)) return std::bit_cast<T>(static_cast<float>(lanes.reals[row]));
      if constexpr (sizeof(T) == sizeof(double)) return std::bit_cast<T>(lanes.reals[row]);
      LOAM_CHECK(false, "the type asked for has the width of the column's");
    }
  }
  /// A magnitude below this one is small enough for every use, so that no closer bound is sought.
  static constexpr uint64_t kSmallMagnitude = uint64_t{1} << 33;

  const ColumnLanes& field_lanes(uint16_t field);
  void load_field_lanes(uint16_t field, ColumnLanes& out);
  /// A bound on the magnitudes of a column of integers that needs no look at the values of the block.
  uint64_t known_magnitude(uint16_t column);
  Column& column_of(uint16_t field);
  Lanes& lanes(Column& column);
  const int64_t* load_computed_keys(uint16_t field, Column& column);
  const int64_t* load_keys(uint16_t field, Column& column);
  const double* load_reals(uint16_t field, Column& column);

  const std::shared_ptr<const Schema> schema_;
  const Block* block_ = nullptr;
  uint64_t number_ = 0;  // number of the present block
  RowMask all_;
  std::vector<Column> columns_;  // by field
  std::deque<Column> computed_;  // by computed column: its arrays, if a query reads them as such
  Fields fields_;
  mutable ExpressionEvaluator evaluator_;  // computes a column when it is first read
  struct SharedGroups {
    std::unique_ptr<BlockGroups> groups;
    size_t uses = 0;
  };
  std::vector<SharedGroups> groups_;  // the groups of each group-by of a bound query
};

}  // namespace loam::storage
