// The rows of a column page, stored field by field. [R24, all-visible mark; decision 0013]
//
//   ┌ page header ┬ entries without rows, 48 B each ┬ Columns ┬ Column … ┬ values of field 0 │ 1 │ … ┬ NULLs ┬ texts ┐
//
// Row i of a page belongs to entry i. The fixed part of a row (schema.h) is divided into its values: the value of a
// fixed-width field, or the end offset of a text. A column stores integers as differences from the least one, in as few
// bytes as the largest difference needs (frame of reference), and floats and integers of 128 bits unchanged. The texts
// of one row stay together, as in the row.
//
// A page has the schema with which it was made. A field that was added to the table later is NULL in all its rows
// (decision 0027): the functions that read one field accept its number.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/bytes.h"
#include "common/schema/schema.h"
#include "storage-node/src/log/page.h"

namespace loam::storage {

/// Computes how many bytes each field needs in a column page, from the rows that the page will hold.
///
/// Owner: a job of the compactor, which adds every row before it lays out pages. Threads: one.
class ColumnWidths {
 public:
  /// The schema must outlive the object.
  explicit ColumnWidths(const Schema& schema);

  /// Takes a row into account. A page may hold any of the rows that were added.
  void add(Bytes row);

  const Schema& schema() const { return *schema_; }
  /// Bytes of one row and its entry in a page, without the texts of the row.
  size_t row_bytes() const;
  /// Upper bound of the bytes of a page that belong to no row: headers and alignment.
  static size_t page_overhead(const Schema& schema);
  /// The number that a reader adds to each stored integer or text end of the field. 0 if values are unchanged.
  int64_t base(size_t field) const;
  /// Bytes of one stored value of the field: 1, 2, 4 or 8, or 16 for integers of 128 bits.
  size_t width(size_t field) const;

 private:
  struct Range {
    int64_t least = INT64_MAX;
    int64_t greatest = INT64_MIN;
  };

  const Schema* schema_;
  std::vector<Range> ranges_;  // by field; unused if values are unchanged
};

/// Whether a column stores the values of this type as they are in rows.
constexpr bool stored_unchanged(FieldType type) { return is_float(type) || is_long(type); }

/// The header of one column: the values of one field in a page.
struct Column {
  // Least and greatest order key (order_key.h; for texts the key of the head) of the values that are not NULL. If there
  // are none, least > greatest.
  int64_t least = INT64_MAX;
  int64_t greatest = INT64_MIN;
  int64_t base = 0;       ///< value = stored integer + base
  uint32_t offset = 0;    ///< offset of the first value from the Columns
  uint8_t width = 0;      ///< bytes of one value
  bool has_null = false;  ///< some value is NULL
};

/// The rows of one column page. The object lies in the page, behind its entries.
///
/// Life: the same as the page. Threads: the compactor writes the rows before any other thread can reach an entry of the
/// page; from then on they are constant.
class Columns {
 public:
  static constexpr size_t kAlignment = 64;

  /// Makes an empty page a column page for `rows` rows, whose texts have `text_bytes` bytes together.
  ///
  /// The page has at least page_overhead() + rows · row_bytes() + text_bytes bytes. The all-visible mark is set; the
  /// caller clears it if a row is not visible to all.
  static Columns& lay_out(Page& page, const ColumnWidths& widths, size_t rows, size_t text_bytes);
  /// The columns of a column page.
  static Columns& of(Page& page) { return *reinterpret_cast<Columns*>(page.columns()); }
  static const Columns& of(const Page& page) { return *reinterpret_cast<const Columns*>(page.columns()); }
  /// The columns of the page in which the entry lies.
  static const Columns& of(const Entry& entry) { return of(*Page::of(&entry)); }
  /// The number of the entry's row in its page. All entries of a column page have the size of the header.
  static size_t row_of(const Entry& entry) { return row_of(entry, *Page::of(&entry)); }
  /// The number of an entry in this page. The entry itself is not read, because that would often be a cache miss.
  static size_t row_of(const Entry& entry, const Page& page) {
    return (reinterpret_cast<uint64_t>(&entry) - reinterpret_cast<uint64_t>(&page) - Page::kHeaderBytes) /
           sizeof(Entry);
  }

  /// Stores the next row. It must be a valid row of the schema, within the ranges of the ColumnWidths.
  void append(Bytes row);

  size_t rows() const { return rows_; }
  /// True if the page has all the rows that it was laid out for.
  bool full() const { return rows_ == capacity_; }
  const Schema& schema() const { return *schema_; }
  /// The header of the field's column.
  const Column& column(size_t field) const { return has(field) ? columns()[field] : kAllNull; }
  /// False: the field was added to the table after the page was made, so it is NULL in every row.
  bool has(size_t field) const { return field < schema_->size(); }

  /// The value of a fixed-width field, or the end offset of a text. Zero if the value is NULL.
  template <class T>
  T get(size_t field, size_t row) const;
  bool is_null(size_t field, size_t row) const {
    if (!has(field)) return true;
    const uint16_t bit = schema_->layout(field).null_bit;
    if (bit == FieldLayout::kNone) return false;
    return ((static_cast<unsigned>(null_bytes(bit / 8)[row]) >> (bit % 8)) & 1) != 0;
  }
  /// A text. It points into the page.
  std::string_view text(size_t field, size_t row) const;

  /// Decodes `count` integers of a field from row `first` on into `out`. Returns `out`; if the column stores full
  /// 8-byte values, returns their address in the page and leaves `out` unwritten.
  const int64_t* integers(size_t field, size_t first, size_t count, int64_t* out) const;
  /// Writes the head keys (order_key.h) of `count` texts from row `first` on. Returns whether they tell the texts
  /// apart: no text is longer than a head, and none ends with a zero byte.
  bool heads(size_t field, size_t first, size_t count, int64_t* out) const;
  /// The first stored value of a field that the page has. Loops over a column start here.
  const std::byte* values(size_t field) const { return at(column(field).offset); }
  /// One byte of the NULL bitmap (schema.h), as an array over all rows.
  const std::byte* null_bytes(size_t byte) const { return at(nulls_ + byte * capacity_); }

  /// Bytes of the row as append() received it.
  size_t row_bytes(size_t row) const;
  /// Writes the row to `out` as append() received it. `out` has row_bytes(row) bytes.
  void gather(size_t row, std::byte* out) const;
  /// Writes some fixed-width fields of the row and its NULL bitmap to their places in `out`. The other bytes of `out`
  /// stay as they are.
  void gather(size_t row, std::span<const uint16_t> fields, std::byte* out) const;
  /// Prefetches the values that gather() reads: one cache line for each field.
  void prefetch(size_t row) const;

 private:
  void gather_value(size_t field, size_t row, std::byte* out) const;
  void gather_nulls(size_t row, std::byte* out) const;
  Columns(const Schema& schema, size_t capacity) : schema_(&schema), capacity_(static_cast<uint32_t>(capacity)) {}

  static constexpr Column kAllNull{.has_null = true};

  Column* columns() { return reinterpret_cast<Column*>(this + 1); }
  const Column* columns() const { return reinterpret_cast<const Column*>(this + 1); }
  std::byte* at(size_t offset) { return reinterpret_cast<std::byte*>(this) + offset; }
  const std::byte* at(size_t offset) const { return reinterpret_cast<const std::byte*>(this) + offset; }
  uint32_t text_offset(size_t row) const {
    uint32_t text_offset;
    std::memcpy(&text_offset, at(text_offsets_ + row * sizeof text_offset), sizeof text_offset);
    return text_offset;
  }
  uint32_t text_end(size_t variable, size_t row) const {
    return static_cast<uint32_t>(stored(columns()[schema_->variable_fields()[variable]], row));
  }
  int64_t stored(const Column& column, size_t row) const;
  void put(Column& column, size_t row, int64_t value);
  static void update_bounds(Column& column, int64_t key);

  const Schema* schema_;
  uint32_t capacity_;
  uint32_t rows_ = 0;
  // Offsets from this object.
  uint32_t nulls_ = 0;         // the NULL bytes
  uint32_t text_offsets_ = 0;  // the array of the begins of each row's texts; 0: no field is a text
  uint32_t texts_ = 0;         // the texts
  uint32_t texts_end_ = 0;     // the place for the texts of the next row
};

class ThreadContext;
/// Assembles a row that lies in columns, in memory of the thread. Valid until the thread's epoch guard ends.
Bytes gather_row(const Entry& entry, ThreadContext& thread);
/// The row of an entry of any kind. Valid until the thread's epoch guard ends. Copies only a row that lies in columns.
inline Bytes row_of(const Entry& entry, ThreadContext& thread) {
  return entry.kind != EntryKind::kColumns ? entry.row() : gather_row(entry, thread);
}
/// The size of the row of an entry of any kind, in bytes.
inline size_t row_bytes(const Entry& entry) {
  return entry.kind == EntryKind::kColumns ? Columns::of(entry).row_bytes(Columns::row_of(entry)) : entry.row().size();
}

template <class T>
T Columns::get(size_t field, size_t row) const {
  if (!has(field)) return T{};
  const Column& c = column(field);
  T value;
  if (stored_unchanged(schema_->field(field).type)) {
    std::memcpy(&value, at(c.offset + row * sizeof(T)), sizeof value);
  } else {
    const int64_t integer = stored(c, row);
    std::memcpy(&value, &integer, std::min(sizeof value, sizeof integer));  // little-endian, as rows are
  }
  return value;
}

inline int64_t Columns::stored(const Column& column, size_t row) const {
  uint64_t value = 0;
  const std::byte* const from = at(column.offset + row * column.width);
  switch (column.width) {
    case 1:
      value = static_cast<uint8_t>(*from);
      break;
    case 2:
      std::memcpy(&value, from, 2);
      break;
    case 4:
      std::memcpy(&value, from, 4);
      break;
    default:
      std::memcpy(&value, from, 8);
  }
  return static_cast<int64_t>(value + static_cast<uint64_t>(column.base));
}

}  // namespace loam::storage
