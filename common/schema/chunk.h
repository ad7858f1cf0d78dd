// Result chunks: some rows of a result, column by column, in the buffers of the Arrow columnar format.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/assert.h"
#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/schema/query.h"
#include "common/schema/row.h"

namespace loam {

inline constexpr size_t kMaxChunkRows = 65'536;
/// Bytes of an encoded chunk: the aim of scans (256 KiB) and one row of the largest size fit with room.
inline constexpr size_t kMaxChunkBytes = 4 << 20;

/// Bytes of a chunk (little-endian, offsets from its first byte, which must lie on a multiple of 8 to be read):
///
///     u32 rows, u32 columns
///     per column: u32 type, u32 null count, u64 bytes of values
///     per column, each buffer padded with zeros to 8 bytes:
///         validity bitmap, least significant bit first, 1 = present: only if null count > 0
///         text and blob: int32 offsets, rows + 1 of them, the first 0
///         values
///
/// The buffers are those of Arrow's C data interface; arrow.h hands them out without a copy.
///
/// Collects rows of one result schema. Owned by one thread; keeps its memory from chunk to chunk. A row is appended
/// column by column from left to right: begin with any append to column 0, and give each column exactly one value a
/// row.
class ChunkBuilder {
 public:
  explicit ChunkBuilder(ResultSchema schema);

  const ResultSchema& schema() const { return schema_; }
  size_t rows() const { return rows_; }
  /// Size that encode() will have, within 8 bytes a buffer.
  size_t bytes() const { return bytes_; }

  void append_null(size_t column);
  /// T has the column's width and kind (development builds check the width).
  template <Scalar T>
  void append(size_t column, T value) {
    Column& c = columns_[column];
    LOAM_DCHECK(c.width == sizeof(T), "the value's type is not the column's");
    const size_t at = c.values.size();
    c.values.resize(at + sizeof(T));
    std::memcpy(c.values.data() + at, &value, sizeof(T));
    note_present(c, sizeof(T));
  }
  /// Room for the next `count` values of a fixed-width column, none of them NULL, to be filled in before anything else
  /// is appended: 1 ns a value, where append() takes 3.
  std::byte* extend(size_t column, size_t count);
  /// Of text and blob columns.
  void append_text(size_t column, std::string_view value);
  /// `value` is NULL or has the column's type.
  void append_value(size_t column, const Value& value);
  /// A field of a row whose type is the column's.
  void append_field(size_t column, const RowView& row, size_t field);
  /// Ends a row after each column got its value.
  void end_row() { ++rows_; }
  /// Rows whose columns were appended whole, one after another.
  void end_rows(size_t count) { rows_ += count; }
  /// A whole row.
  void append_row(std::span<const Value> values);

  /// Appends the encoded chunk to `out` and begins an empty one. `out` should be empty or end on a multiple of 8 for
  /// the chunk to be readable in place. kInvalidArgument, and nothing is appended, if it is over kMaxChunkBytes: who
  /// ends a chunk at 256 KiB meets that only with a result row that is too large by itself.
  Status finish(Buffer& out);
  void clear();

 private:
  struct Column {
    FieldType type;
    size_t width;  // 0 for text and blob
    Buffer values;
    std::vector<int32_t> ends;   // of text and blob
    std::vector<uint8_t> valid;  // empty until the first NULL
    uint32_t nulls = 0;
    uint32_t count = 0;
  };
  void note_present(Column& column, size_t bytes);

  ResultSchema schema_;
  std::vector<Column> columns_;
  size_t rows_ = 0;
  size_t bytes_ = 0;
};

/// Reads an encoded chunk in place. The bytes and the schema outlive it. Validated once by decode(); accessors check
/// nothing but, in development builds, types and bounds.
class ChunkView {
 public:
  struct Column {
    FieldType type = FieldType::kNull;
    uint32_t null_count = 0;
    const uint8_t* validity = nullptr;  // null if nothing is NULL
    const int32_t* offsets = nullptr;   // of text and blob
    const std::byte* values = nullptr;
  };

  ChunkView() = default;
  /// kMalformed: sizes, types, offsets, null counts, NULL in a column that has none, text that is not UTF-8, or limits.
  /// kInvalidArgument if `bytes` does not begin on a multiple of 8 (use Chunk, which copies).
  static Result<ChunkView> decode(Bytes bytes, const ResultSchema& schema);

  size_t rows() const { return rows_; }
  size_t columns() const { return columns_.size(); }
  const Column& column(size_t index) const { return columns_[index]; }

  bool is_null(size_t column, size_t row) const {
    const uint8_t* validity = columns_[column].validity;
    return validity != nullptr && ((validity[row / 8] >> (row % 8)) & 1) == 0;
  }
  template <Scalar T>
  T get(size_t column, size_t row) const {
    const Column& c = columns_[column];
    LOAM_DCHECK(fixed_width(c.type) == sizeof(T) && row < rows_,
                "the type asked for is not the column's, or no such row");
    T value;
    std::memcpy(&value, c.values + row * sizeof(T), sizeof(T));
    return value;
  }
  /// All values of a fixed-width column; NULLs are zero.
  template <Scalar T>
  std::span<const T> values(size_t column) const {
    const Column& c = columns_[column];
    LOAM_DCHECK(fixed_width(c.type) == sizeof(T), "the type asked for is not the column's");
    return {reinterpret_cast<const T*>(c.values), rows_};  // the buffer is 8-byte aligned
  }
  std::string_view text(size_t column, size_t row) const {
    const Column& c = columns_[column];
    LOAM_DCHECK(c.offsets != nullptr && row < rows_, "not a text or blob column, or no such row");
    return {reinterpret_cast<const char*>(c.values) + c.offsets[row],
            static_cast<size_t>(c.offsets[row + 1] - c.offsets[row])};
  }
  /// Any value (copies text).
  Value value(size_t column, size_t row) const;

 private:
  std::vector<Column> columns_;
  size_t rows_ = 0;
};

/// A chunk that owns its bytes: what applications get. Immutable; share it by shared_ptr.
class Chunk {
 public:
  /// Copies `bytes` (they may lie anywhere) and validates them; errors as ChunkView::decode.
  static Result<std::shared_ptr<const Chunk>> decode(Bytes bytes, std::shared_ptr<const ResultSchema> schema);
  /// Takes the buffer without a copy.
  static Result<std::shared_ptr<const Chunk>> adopt(Buffer bytes, std::shared_ptr<const ResultSchema> schema);

  const ResultSchema& schema() const { return *schema_; }
  const std::shared_ptr<const ResultSchema>& shared_schema() const { return schema_; }
  const ChunkView& view() const { return view_; }
  size_t rows() const { return view_.rows(); }
  Bytes bytes() const { return bytes_; }

 private:
  Chunk(Buffer bytes, std::shared_ptr<const ResultSchema> schema)
      : bytes_(std::move(bytes)), schema_(std::move(schema)) {}

  Buffer bytes_;
  std::shared_ptr<const ResultSchema> schema_;
  ChunkView view_;  // into bytes_
};

}  // namespace loam
