// Layout, encoding and decoding of column pages.
#include "storage-node/src/log/columns.h"

#include <algorithm>
#include <new>

#include "common/base/assert.h"
#include "common/schema/order_key.h"
#include "common/schema/row.h"
#include "storage-node/src/log/thread_context.h"

namespace loam::storage {
namespace {

/// Loads a value without an alignment requirement.
template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

/// The integer that a column stores for a field: the value of the field, or the end offset of its text.
int64_t integer_of(const Schema& schema, size_t field, const std::byte* row) {
  const std::byte* const at = row + schema.layout(field).offset;
  const FieldType type = schema.field(field).type;
  if (is_variable(type)) return load<uint32_t>(at);
  return with_stored(type, [&]<class T>(T) { return static_cast<int64_t>(load<T>(at)); });
}

/// Decodes `count` stored integers: adds `base` to each. Unsigned arithmetic, since a difference may exceed int64.
template <class Stored>
void widen(const std::byte* from, int64_t base, size_t count, int64_t* out) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = static_cast<int64_t>(uint64_t{load<Stored>(from + i * sizeof(Stored))} + static_cast<uint64_t>(base));
  }
}

}  // namespace

ColumnWidths::ColumnWidths(const Schema& schema) : schema_(&schema), ranges_(schema.size()) {}

void ColumnWidths::add(Bytes row) {
  for (size_t field = 0; field < ranges_.size(); ++field) {
    if (stored_unchanged(schema_->field(field).type)) continue;
    // A NULL counts with its stored value, 0 or an empty text, because append() stores it in the same way.
    const int64_t value = integer_of(*schema_, field, row.data());
    ranges_[field].least = std::min(ranges_[field].least, value);
    ranges_[field].greatest = std::max(ranges_[field].greatest, value);
  }
}

size_t ColumnWidths::width(size_t field) const {
  const FieldType type = schema_->field(field).type;
  if (stored_unchanged(type)) return fixed_width(type);
  const Range& range = ranges_[field];
  if (range.least > range.greatest) return 1;  // no row was added
  const uint64_t span = static_cast<uint64_t>(range.greatest) - static_cast<uint64_t>(range.least);
  return span <= UINT8_MAX ? 1 : span <= UINT16_MAX ? 2 : span <= UINT32_MAX ? 4 : 8;
}

int64_t ColumnWidths::base(size_t field) const {
  // Eight bytes hold every value unchanged. With base 0, integers() returns the stored values without a copy.
  return stored_unchanged(schema_->field(field).type) || width(field) == sizeof(int64_t) ? 0 : ranges_[field].least;
}

size_t ColumnWidths::row_bytes() const {
  size_t bytes = sizeof(Entry) + schema_->null_bytes();
  if (!schema_->variable_fields().empty()) bytes += sizeof(uint32_t);
  for (size_t field = 0; field < ranges_.size(); ++field) bytes += width(field);
  return bytes;
}

size_t ColumnWidths::page_overhead(const Schema& schema) {
  const size_t arrays = schema.size() + 3;  // columns, entries, NULL bytes, begins of texts: each is aligned
  return Page::kHeaderBytes + sizeof(Columns) + schema.size() * sizeof(Column) + arrays * Columns::kAlignment;
}

Columns& Columns::lay_out(Page& page, const ColumnWidths& widths, size_t rows, size_t text_bytes) {
  const Schema& schema = widths.schema();
  const size_t bytes_a_row = rows == 0 ? 0 : widths.row_bytes() - sizeof(Entry) + text_bytes / rows;
  page.init_columns(rows * sizeof(Entry), bytes_a_row);
  auto* const made = new (page.columns()) Columns(schema, rows);
  size_t end = sizeof(Columns) + schema.size() * sizeof(Column);
  // Places the next array, aligned to a cache line, and returns its offset.
  const auto take = [&end](size_t bytes) {
    const size_t begin = round_up(end, kAlignment);
    end = begin + bytes;
    return static_cast<uint32_t>(begin);
  };
  // The arrays in their order: values of each field, NULL bytes, begins of texts. The texts take the rest of the
  // page.
  for (size_t field = 0; field < schema.size(); ++field) {
    const size_t width = widths.width(field);
    new (made->columns() + field)
        Column{.base = widths.base(field), .offset = take(rows * width), .width = static_cast<uint8_t>(width)};
  }
  if (schema.null_bytes() > 0) made->nulls_ = take(rows * schema.null_bytes());
  if (!schema.variable_fields().empty()) made->text_offsets_ = take(rows * sizeof(uint32_t));
  made->texts_ = made->texts_end_ = static_cast<uint32_t>(end);
  LOAM_CHECK(
      reinterpret_cast<uint64_t>(made) + end + text_bytes <= reinterpret_cast<uint64_t>(&page) + page.size_bytes(),
      "a column page is too small for its rows");
  return *made;
}

void Columns::put(Column& column, size_t row, int64_t value) {
  const uint64_t stored = static_cast<uint64_t>(value) - static_cast<uint64_t>(column.base);
  // Little-endian: the low bytes come first.
  std::memcpy(at(column.offset + row * column.width), &stored, column.width);
}

void Columns::update_bounds(Column& column, int64_t key) {
  column.least = std::min(column.least, key);
  column.greatest = std::max(column.greatest, key);
}

void Columns::append(Bytes bytes) {
  LOAM_CHECK(rows_ < capacity_, "a column page has room for the rows that it was laid out for");
  const RowView row(*schema_, bytes);
  const size_t number = rows_++;
  for (size_t field = 0; field < schema_->size(); ++field) {
    Column& column = columns()[field];
    const FieldType type = schema_->field(field).type;
    const bool null = row.is_null(field);
    column.has_null |= null;
    // A NULL is stored like a value (zero, or an empty text), but does not count for the bounds.
    if (!stored_unchanged(type)) {
      const int64_t value = integer_of(*schema_, field, bytes.data());
      put(column, number, value);
      if (!null) update_bounds(column, is_variable(type) ? head_key(row.text(field)) : value);
      continue;
    }
    std::memcpy(at(column.offset + number * column.width), bytes.data() + schema_->layout(field).offset, column.width);
    if (null) continue;
    update_bounds(column, is_long(type)                 ? order_key(row.get<Int128>(field))
                          : type == FieldType::kFloat32 ? order_key(row.get<float>(field))
                                                        : order_key(row.get<double>(field)));
  }
  for (size_t byte = 0; byte < schema_->null_bytes(); ++byte) {
    *at(nulls_ + byte * capacity_ + number) = bytes[schema_->null_offset() + byte];
  }
  if (text_offsets_ == 0) return;
  // The texts of the row follow its fixed part in one piece.
  std::memcpy(at(text_offsets_ + number * sizeof texts_end_), &texts_end_, sizeof texts_end_);
  const Bytes texts = bytes.subspan(schema_->fixed_size());
  if (!texts.empty()) std::memcpy(at(texts_end_), texts.data(), texts.size());
  texts_end_ += static_cast<uint32_t>(texts.size());
}

std::string_view Columns::text(size_t field, size_t row) const {
  if (!has(field)) return "";  // has an address, as stored texts have
  // Text ends are offsets within the row. A text begins where the previous text of the row ends.
  const uint16_t variable = schema_->layout(field).variable_index;
  const uint32_t begin = variable == 0 ? schema_->fixed_size() : text_end(variable - size_t{1}, row);
  const uint32_t end = text_end(variable, row);
  return {reinterpret_cast<const char*>(at(text_offset(row) + begin - schema_->fixed_size())), end - begin};
}

bool Columns::heads(size_t field, size_t first, size_t count, int64_t* out) const {
  if (!has(field)) {
    std::fill_n(out, count, head_key(""));
    return true;
  }
  const uint16_t variable = schema_->layout(field).variable_index;
  const auto end_of = [&](size_t number) -> const Column& { return columns()[schema_->variable_fields()[number]]; };
  const Column& ends = end_of(variable);
  const Column* const begins = variable == 0 ? nullptr : &end_of(variable - size_t{1});
  const uint32_t fixed = schema_->fixed_size();
  bool distinct = true;
  for (size_t i = 0; i < count; ++i) {
    const size_t row = first + i;
    const auto begin = begins == nullptr ? fixed : static_cast<uint32_t>(stored(*begins, row));
    const auto length = static_cast<uint32_t>(stored(ends, row)) - begin;
    const std::byte* const text = at(text_offset(row) + begin - fixed);
    uint64_t bytes = 0;
    if (length >= sizeof bytes) {
      std::memcpy(&bytes, text, sizeof bytes);
    } else if (length != 0) {
      // The eight bytes up to the end of the text, all of which lie in the page, without those before the text.
      std::memcpy(&bytes, text + length - sizeof bytes, sizeof bytes);
      bytes >>= 8 * (sizeof bytes - length);
    }
    out[i] = head_key_of(bytes);
    distinct = distinct && (length == 0 || (length <= sizeof bytes && text[length - 1] != std::byte{0}));
  }
  return distinct;
}

const int64_t* Columns::integers(size_t field, size_t first, size_t count, int64_t* out) const {
  if (!has(field)) {
    std::fill_n(out, count, 0);
    return out;
  }
  const Column& c = column(field);
  const std::byte* const from = at(c.offset + first * c.width);
  switch (c.width) {
    case 1:
      widen<uint8_t>(from, c.base, count, out);
      break;
    case 2:
      widen<uint16_t>(from, c.base, count, out);
      break;
    case 4:
      widen<uint32_t>(from, c.base, count, out);
      break;
    default:
      return reinterpret_cast<const int64_t*>(from);
  }
  return out;
}

size_t Columns::row_bytes(size_t row) const {
  // The end of the last text is the end of the row.
  const size_t texts = schema_->variable_fields().size();
  return texts == 0 ? schema_->fixed_size() : text_end(texts - 1, row);
}

void Columns::gather_value(size_t field, size_t row, std::byte* out) const {
  const Column& c = column(field);
  const FieldType type = schema_->field(field).type;
  std::byte* const to = out + schema_->layout(field).offset;
  if (stored_unchanged(type)) {
    std::memcpy(to, at(c.offset + row * c.width), c.width);
    return;
  }
  const int64_t value = stored(c, row);
  // Little-endian: the low bytes come first, so a narrow field is a prefix of the 8 bytes.
  std::memcpy(to, &value, is_variable(type) ? sizeof(uint32_t) : fixed_width(type));
}

void Columns::gather_nulls(size_t row, std::byte* out) const {
  for (size_t byte = 0; byte < schema_->null_bytes(); ++byte)
    out[schema_->null_offset() + byte] = null_bytes(byte)[row];
}

void Columns::gather(size_t row, std::byte* out) const {
  for (size_t field = 0; field < schema_->size(); ++field) gather_value(field, row, out);
  gather_nulls(row, out);
  if (text_offsets_ == 0) return;
  if (const size_t bytes = row_bytes(row) - schema_->fixed_size(); bytes != 0) {
    std::memcpy(out + schema_->fixed_size(), at(text_offset(row)), bytes);
  }
}

void Columns::gather(size_t row, std::span<const uint16_t> fields, std::byte* out) const {
  for (const uint16_t field : fields) gather_value(field, row, out);
  gather_nulls(row, out);
}

void Columns::prefetch(size_t row) const {
  for (size_t field = 0; field < schema_->size(); ++field) {
    const Column& c = column(field);
    __builtin_prefetch(at(c.offset + row * c.width));
  }
  for (size_t byte = 0; byte < schema_->null_bytes(); ++byte) __builtin_prefetch(null_bytes(byte) + row);
  if (text_offsets_ != 0) __builtin_prefetch(at(text_offsets_ + row * sizeof(uint32_t)));
}

Bytes gather_row(const Entry& entry, ThreadContext& thread) {
  const Columns& columns = Columns::of(entry);
  const size_t row = Columns::row_of(entry);
  const size_t bytes = columns.row_bytes(row);
  std::byte* const out = thread.row_memory(bytes);
  columns.gather(row, out);
  return {out, bytes};
}

}  // namespace loam::storage
