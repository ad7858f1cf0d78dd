// The fields of a block's rows, column by column.
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

/// Role: reads each field of a block's rows at most once, however many queries ask for it, into an array that vector
/// instructions go over (kernels.h). Owner: a scan pass; one thread. Keeps its memory from block to block.
///
/// Arrays have kBlockRows elements and are aligned to 64 bytes; those behind the block's rows are anything. A row where
/// the field is NULL has 0. Columns of a column page that are as wide as the array's elements are read where they lie.
class BlockValues {
 public:
  explicit BlockValues(std::shared_ptr<const Schema> schema);

  /// From now on the values of this block, which stays as it is until the next call.
  void reset(const Block& block);

  const Schema& schema() const { return *schema_; }
  const Block& block() const { return *block_; }
  size_t size() const { return block_->size(); }
  const RowMask& all() const { return all_; }

  /// Of integers the values, of floats their order keys.
  const int64_t* keys(uint16_t field);
  /// Of floats, float32 too.
  const double* reals(uint16_t field);
  /// No integer of the field has a larger magnitude than this, but by one for negative ones.
  uint64_t magnitude(uint16_t field);
  /// Rows where the field is not NULL.
  const RowMask& present(uint16_t field);
  /// One value of a fixed-width field, of the field's type.
  template <class T>
  T value(uint16_t field, size_t row) const {
    if (const Columns* const columns = block_->columns()) return columns->get<T>(field, block_->first_row() + row);
    T value;
    std::memcpy(&value, block_->row(row) + schema_->layout(field).offset, sizeof value);
    return value;
  }
  bool is_null(uint16_t field, size_t row) const;
  /// Of text and blobs.
  std::string_view text(uint16_t field, size_t row) const;
  /// A row of which these fields may be read. Of a column page they are put together; valid until the next call.
  RowView view(size_t row, std::span<const uint16_t> fields);
  const int64_t* heads(uint16_t field);
  const int64_t* tails(uint16_t field);

 private:
  /// Of numbers keys and reals, of texts heads and tails.
  struct alignas(64) Lanes {
    int64_t keys[kBlockRows];
    union {
      double reals[kBlockRows];
      int64_t tails[kBlockRows];
    };
  };
  struct Column {
    // Numbers of the blocks that the members below were read from.
    uint64_t keys_of = 0;   // heads too
    uint64_t reals_of = 0;  // tails too
    uint64_t magnitude_of = 0;
    uint64_t present_of = 0;
    uint64_t magnitude = 0;
    RowMask present;
    const int64_t* keys = nullptr;  // heads too; in the lanes or in the page
    const double* reals = nullptr;
    std::unique_ptr<Lanes> lanes;
  };

  Lanes& lanes(Column& column);
  const int64_t* load_keys(uint16_t field, Column& column);
  const double* load_reals(uint16_t field, Column& column);

  const std::shared_ptr<const Schema> schema_;
  const Block* block_ = nullptr;
  uint64_t number_ = 0;  // of the block
  RowMask all_;
  std::vector<Column> columns_;  // by field
  Buffer row_;                   // of view()
};

}  // namespace loam::storage
