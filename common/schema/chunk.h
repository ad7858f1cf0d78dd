// Result chunks: some rows of a query's result, column by column, in the buffers of the Arrow columnar format.
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

/// Largest number of rows of a chunk.
inline constexpr size_t kMaxChunkRows = 65'536;
/// Largest size of an encoded chunk in bytes. It has room for the usual size of a scan's chunks (256 KiB) and one row
/// of the largest size.
inline constexpr size_t kMaxChunkBytes = 4 << 20;

/// Builds chunks of one result schema. A row is appended column by column from left to right: first any append to
/// column 0, then exactly one value for each other column.
///
/// Owner: one thread. The builder keeps its memory from chunk to chunk.
///
/// Encoding of a chunk: little-endian, with offsets from its first byte, which must lie at a multiple of 8 for a
/// reader in place.
///
///     u32 rows, u32 columns
///     per column: u32 type, u32 null count, u64 bytes of values
///     per column, each buffer padded with zeros to 8 bytes, and before the values of a long column to 16:
///         validity bitmap, least significant bit first, 1 = present: only if null count > 0
///         text and blob: int32 offsets, rows + 1 of them, the first 0
///         values; of a boolean column a bitmap like the validity bitmap, 1 = true
///
/// The buffers are those of Arrow's C data interface; arrow.h exports them without a copy.
class ChunkBuilder {
 public:
  /// Begins an empty chunk.
  explicit ChunkBuilder(ResultSchema schema);

  /// The columns, as given to the constructor.
  const ResultSchema& schema() const { return schema_; }
  /// Number of complete rows.
  size_t rows() const { return rows_; }
  /// Size of the encoded chunk so far, exact to 8 bytes for each buffer. A boolean counts as a byte.
  size_t bytes() const { return bytes_; }

  /// Appends NULL to a column.
  void append_null(size_t column);
  /// Appends a value to a fixed-width column. T must be the type of the column; development builds check its width.
  template <Scalar T>
  void append(size_t column, T value) {
    Column& c = columns_[column];
    LOAM_DCHECK(c.width == sizeof(T), "the value's type is not the column's");
    const size_t at = c.values.size();
    c.values.resize(at + sizeof(T));
    std::memcpy(c.values.data() + at, &value, sizeof(T));
    note_present(c, sizeof(T));
  }
  /// Appends `count` values that are not NULL to a fixed-width column, and returns the memory for them. The caller
  /// writes the values before it appends anything else. This takes 1 ns for each value, append() 3 ns.
  std::byte* extend(size_t column, size_t count);
  /// Appends a value to a text or blob column.
  void append_text(size_t column, std::string_view value);
  /// Appends a value that is NULL or has the type of the column.
  void append_value(size_t column, const Value& value);
  /// Appends a field of a row, whose type is that of the column.
  void append_field(size_t column, const RowView& row, size_t field);
  /// Ends a row, after each column has its value.
  void end_row() { ++rows_; }
  /// Ends `count` rows whose values were appended one whole column after another.
  void end_rows(size_t count) { rows_ += count; }
  /// Appends a whole row, and ends it.
  void append_row(std::span<const Value> values);

  /// Appends the encoded chunk to `out` and begins an empty one. For readers in place, `out` should be empty or end
  /// at a multiple of 8. kInvalidArgument: the chunk may exceed kMaxChunkBytes; its rows are dropped, and nothing is
  /// appended. A caller that ends each chunk at 256 KiB gets this only for a single row that is too large.
  Status finish(Buffer& out);
  /// Drops all rows, and begins an empty chunk.
  void clear();

 private:
  struct Column {
    FieldType type;
    size_t width;  // 0 for text and blob
    Buffer values;
    std::vector<int32_t> ends;   // text and blob: ends of the values
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

/// Reads an encoded chunk in place. decode() validates the bytes once; the accessors check nothing, except that
/// development builds check types and bounds. The bytes outlive the view.
class ChunkView {
 public:
  /// The buffers of one column.
  struct Column {
    FieldType type = FieldType::kNull;  ///< the type of the values, which is that of the result schema
    uint32_t null_count = 0;            ///< number of NULLs
    const uint8_t* validity = nullptr;  ///< the validity bitmap; null: no value is NULL
    const int32_t* offsets = nullptr;   ///< the offsets of a text or blob column; null for other types
    const std::byte* values = nullptr;  ///< boolean: bitmap; fixed-width: one value a row, 0 for NULL; others: bytes
  };

  /// A view without rows and columns.
  ChunkView() = default;
  /// Validates a chunk. kMalformed: wrong sizes, types, offsets or null counts, a NULL in a column that is not
  /// nullable, text that is not UTF-8, or an exceeded limit. kInvalidArgument: `bytes` does not begin at a multiple
  /// of 8; Chunk accepts such bytes and copies them.
  static Result<ChunkView> decode(Bytes bytes, const ResultSchema& schema);

  /// Number of rows.
  size_t rows() const { return rows_; }
  /// Number of columns.
  size_t columns() const { return columns_.size(); }
  /// The buffers of a column, by its number in the result schema. They point into the decoded bytes.
  const Column& column(size_t index) const { return columns_[index]; }

  /// Whether a value is NULL.
  bool is_null(size_t column, size_t row) const {
    const uint8_t* validity = columns_[column].validity;
    return validity != nullptr && ((validity[row / 8] >> (row % 8)) & 1) == 0;
  }
  /// A value of a fixed-width column; T must be the type of the column. 0 if it is NULL.
  template <Scalar T>
  T get(size_t column, size_t row) const {
    const Column& c = columns_[column];
    LOAM_DCHECK(fixed_width(c.type) == sizeof(T) && row < rows_,
                "the type asked for is not the column's, or no such row");
    if constexpr (sizeof(T) == 1) return static_cast<T>((static_cast<uint8_t>(c.values[row / 8]) >> (row % 8)) & 1);
    T value;
    std::memcpy(&value, c.values + row * sizeof(T), sizeof(T));
    return value;
  }
  /// All values of a fixed-width column that is not boolean and not long (is_long()); T must be the type of the column.
  /// A NULL is 0.
  template <Scalar T>
    requires(sizeof(T) > 1 && sizeof(T) <= sizeof(int64_t))
  std::span<const T> values(size_t column) const {
    const Column& c = columns_[column];
    LOAM_DCHECK(fixed_width(c.type) == sizeof(T), "the type asked for is not the column's");
    return {reinterpret_cast<const T*>(c.values), rows_};  // the buffer is 8-byte aligned
  }
  /// A value of a text or blob column. Empty if it is NULL.
  std::string_view text(size_t column, size_t row) const {
    const Column& c = columns_[column];
    LOAM_DCHECK(c.offsets != nullptr && row < rows_, "not a text or blob column, or no such row");
    return {reinterpret_cast<const char*>(c.values) + c.offsets[row],
            static_cast<size_t>(c.offsets[row + 1] - c.offsets[row])};
  }
  /// A value of any column. Copies text.
  Value value(size_t column, size_t row) const;

 private:
  std::vector<Column> columns_;
  size_t rows_ = 0;
};

/// A chunk that owns its bytes, as applications receive it. Immutable. Threads: any; they share it by shared_ptr.
class Chunk {
 public:
  /// Copies `bytes`, of any alignment, and validates them. Errors as ChunkView::decode().
  static Result<std::shared_ptr<const Chunk>> decode(Bytes bytes, std::shared_ptr<const ResultSchema> schema);
  /// Takes over a buffer without a copy, and validates it. Errors as ChunkView::decode().
  static Result<std::shared_ptr<const Chunk>> adopt(Buffer bytes, std::shared_ptr<const ResultSchema> schema);

  /// The columns, which all chunks of one result share.
  const ResultSchema& schema() const { return *schema_; }
  /// The columns of schema(), for a caller that keeps them longer than the chunk.
  const std::shared_ptr<const ResultSchema>& shared_schema() const { return schema_; }
  /// The values by row and column. The view and what it returns are valid while the chunk lives.
  const ChunkView& view() const { return view_; }
  /// Number of rows, at most kMaxChunkRows.
  size_t rows() const { return view_.rows(); }
  /// The encoded chunk (ChunkBuilder). Valid while the chunk lives.
  Bytes bytes() const { return bytes_; }

 private:
  Chunk(Buffer bytes, std::shared_ptr<const ResultSchema> schema)
      : bytes_(std::move(bytes)), schema_(std::move(schema)) {}

  Buffer bytes_;
  std::shared_ptr<const ResultSchema> schema_;
  ChunkView view_;  // reads bytes_
};

}  // namespace loam
