// The fields of the rows of a block, as arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "common/schema/order_key.h"
#include "common/schema/row.h"
#include "common/schema/schema.h"
#include "storage-node/src/scan/block.h"
#include "storage-node/src/scan/row_mask.h"

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
  /// Returns the rows whose field is not NULL.
  const RowMask& present(uint16_t field);
  /// Returns one value of a fixed-width field; T is the C++ type of the field.
  template <class T>
  T value(uint16_t field, size_t row) const {
    if (const Columns* const columns = block_->columns()) return columns->get<T>(field, block_->first_row() + row);
    T value;
    std::memcpy(&value, block_->row(row) + schema_->layout(field).offset, sizeof value);
    return value;
  }
  bool is_null(uint16_t field, size_t row) const;
  /// Returns the bytes of a text or blob field.
  std::string_view text(uint16_t field, size_t row) const;
  /// Returns a row view in which these fields may be read. For a row of a column page it assembles the fields in a
  /// buffer, which is valid until the next call.
  RowView view(size_t row, std::span<const uint16_t> fields);
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
    uint64_t magnitude = 0;
    RowMask present;
    const int64_t* keys = nullptr;  // or heads; in the lanes or in the page
    const double* reals = nullptr;
    std::unique_ptr<Lanes> lanes;
  };

  Lanes& lanes(Column& column);
  const int64_t* load_keys(uint16_t field, Column& column);
  const double* load_reals(uint16_t field, Column& column);

  const std::shared_ptr<const Schema> schema_;
  const Block* block_ = nullptr;
  uint64_t number_ = 0;  // number of the present block
  RowMask all_;
  std::vector<Column> columns_;  // by field
  Buffer row_;                   // the buffer of view()
};

}  // namespace loam::storage
