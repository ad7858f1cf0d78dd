// Rows of a page that lie column by column. [Architecture 5; R24; decision 0013]
//
//   ┌ page header ┬ entries without rows, 48 B each ┬ Columns ┬ Column … ┬ values of field 0 │ 1 │ … ┬ NULLs ┬ texts ┐
//
// Row i of a page belongs to its i-th entry. The fixed part of a row (schema.h) is cut into its values: a field's
// value, or where its text ends. Integers lie as differences from the least one of their column, in as few bytes as the
// largest difference needs (frame of reference); floats as they are. A row's texts stay together, as they do in the
// row.
#pragma once

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

/// How many bytes the values of each field take in column pages whose rows are among those that were added. Owner: the
/// compactor's job.
class ColumnWidths {
 public:
  /// The schema outlives it.
  explicit ColumnWidths(const Schema& schema);

  void add(Bytes row);

  const Schema& schema() const { return *schema_; }
  /// Bytes of one row with its entry, but without its texts.
  size_t row_bytes() const;
  /// Bytes of a page that are no rows, at most.
  static size_t page_overhead(const Schema& schema);
  /// What is added to each stored value of an integer field or of ends of texts; of floats 0.
  int64_t base(size_t field) const;
  /// Bytes of a stored value: 1, 2, 4 or 8.
  size_t width(size_t field) const;

 private:
  struct Range {
    int64_t least = INT64_MAX;
    int64_t greatest = INT64_MIN;
  };

  const Schema* schema_;
  std::vector<Range> ranges_;  // by field; of floats unused
};

/// One field's values in a page.
struct Column {
  // Least and greatest order key (order_key.h; of texts the head's) of the values that are not NULL; least > greatest
  // if there are none.
  int64_t least = INT64_MAX;
  int64_t greatest = INT64_MIN;
  int64_t base = 0;     ///< added to each stored integer
  uint32_t offset = 0;  ///< of the first value, from the Columns
  uint8_t width = 0;    ///< bytes a value
  bool has_null = false;
};

/// Role: the rows of one column page. Lies in the page, behind its entries. Life: the page's. Threads: the compactor
/// writes it before any of the page's entries can be reached; constant from then on.
class Columns {
 public:
  static constexpr size_t kAlignment = 64;

  /// Makes an empty page one of columns, with room for so many rows whose texts have `text_bytes` in all. The caller
  /// has chosen a page of at least page_overhead() + rows · row_bytes() + text_bytes. Every row is all-visible until
  /// cleared.
  static Columns& lay_out(Page& page, const ColumnWidths& widths, size_t rows, size_t text_bytes);
  /// Of a page that is one of columns.
  static Columns& of(Page& page) { return *reinterpret_cast<Columns*>(page.columns()); }
  static const Columns& of(const Page& page) { return *reinterpret_cast<const Columns*>(page.columns()); }
  /// Of an entry's page, and which of its rows the entry has.
  static const Columns& of(const Entry& entry) { return of(*Page::of(&entry)); }
  static size_t row_of(const Entry& entry) {
    return (reinterpret_cast<uint64_t>(&entry) - reinterpret_cast<uint64_t>(Page::of(&entry)) - Page::kHeaderBytes) /
           sizeof(Entry);
  }

  /// Writes the next row, a valid one of the schema.
  void append(Bytes row);

  size_t rows() const { return rows_; }
  bool full() const { return rows_ == capacity_; }
  const Schema& schema() const { return *schema_; }
  const Column& column(size_t field) const { return columns()[field]; }

  /// A value of a fixed-width field, or where a text ends; zero if NULL.
  template <class T>
  T get(size_t field, size_t row) const;
  bool is_null(size_t field, size_t row) const {
    const uint16_t bit = schema_->layout(field).null_bit;
    if (bit == FieldLayout::kNone) return false;
    return ((static_cast<unsigned>(null_bytes(bit / 8)[row]) >> (bit % 8)) & 1) != 0;
  }
  std::string_view text(size_t field, size_t row) const;

  /// Values of integers from row `first` on, widened; returns `out`, or where they lie if that is as good.
  const int64_t* integers(size_t field, size_t first, size_t count, int64_t* out) const;
  /// First stored value of a field, for loops over columns.
  const std::byte* values(size_t field) const { return at(column(field).offset); }
  /// One byte of the NULL bitmap (schema.h) of every row.
  const std::byte* null_bytes(size_t byte) const { return at(nulls_ + byte * capacity_); }

  size_t row_bytes(size_t row) const;
  /// Writes the row as it was appended; room for row_bytes(row).
  void gather(size_t row, std::byte* out) const;
  /// The same of some fixed-width fields and the NULL bitmap; nothing else of the row is written.
  void gather(size_t row, std::span<const uint16_t> fields, std::byte* out) const;
  /// Fetches what gather() reads.
  void prefetch(size_t row) const;

 private:
  void gather_value(size_t field, size_t row, std::byte* out) const;
  void gather_nulls(size_t row, std::byte* out) const;
  Columns(const Schema& schema, size_t capacity) : schema_(&schema), capacity_(static_cast<uint32_t>(capacity)) {}

  Column* columns() { return reinterpret_cast<Column*>(this + 1); }
  const Column* columns() const { return reinterpret_cast<const Column*>(this + 1); }
  std::byte* at(size_t offset) { return reinterpret_cast<std::byte*>(this) + offset; }
  const std::byte* at(size_t offset) const { return reinterpret_cast<const std::byte*>(this) + offset; }
  uint32_t place(size_t row) const {
    uint32_t place;
    std::memcpy(&place, at(places_ + row * sizeof place), sizeof place);
    return place;
  }
  uint32_t text_end(size_t variable, size_t row) const {
    return static_cast<uint32_t>(stored(columns()[schema_->variable_fields()[variable]], row));
  }
  int64_t stored(const Column& column, size_t row) const;
  void put(Column& column, size_t row, int64_t value);
  static void note(Column& column, int64_t key);

  const Schema* schema_;
  uint32_t capacity_;
  uint32_t rows_ = 0;
  uint32_t nulls_ = 0;   // offset of the NULL bytes
  uint32_t places_ = 0;  // offset of where each row's texts begin; 0: no field has any
  uint32_t texts_ = 0;   // offset of the texts
  uint32_t texts_end_ = 0;
};

class ThreadContext;
/// A row that lies in columns, put together in the thread's memory.
Bytes gather_row(const Entry& entry, ThreadContext& thread);
/// The row of an entry, wherever it lies: valid as long as the epoch guard that the thread is in.
inline Bytes row_of(const Entry& entry, ThreadContext& thread) {
  return entry.kind != EntryKind::kColumns ? entry.row() : gather_row(entry, thread);
}
/// Its bytes.
inline size_t row_bytes(const Entry& entry) {
  return entry.kind == EntryKind::kColumns ? Columns::of(entry).row_bytes(Columns::row_of(entry)) : entry.row().size();
}

template <class T>
T Columns::get(size_t field, size_t row) const {
  const Column& c = column(field);
  T value;
  if (is_float(schema_->field(field).type)) {
    std::memcpy(&value, at(c.offset + row * sizeof(T)), sizeof value);
  } else {
    const int64_t integer = stored(c, row);
    std::memcpy(&value, &integer, sizeof value);  // little-endian, as rows are
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
