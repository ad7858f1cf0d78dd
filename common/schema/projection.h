// Some of a schema's fields: rows that hold only them, and rows that are changed by them.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/schema/schema.h"

namespace loam {

/// Field numbers as they travel: a view of 2-byte numbers at any address. Two words, pass by value; whoever made it
/// keeps the bytes. An empty list names no field in particular: the whole row.
class FieldNumbers {
 public:
  FieldNumbers() = default;
  explicit FieldNumbers(std::span<const uint16_t> numbers) : bytes_(std::as_bytes(numbers)) {}

  size_t size() const { return bytes_.size() / sizeof(uint16_t); }
  bool empty() const { return bytes_.empty(); }
  uint16_t operator[](size_t i) const {
    uint16_t number;
    std::memcpy(&number, bytes_.data() + i * sizeof number, sizeof number);
    return number;
  }
  bool operator==(const FieldNumbers& other) const { return equal(bytes_, other.bytes_); }

  /// varint count, then the numbers. Whether a schema has them is Projection::make's to say.
  void encode(ByteWriter& out) const;
  static Result<FieldNumbers> decode(ByteReader& in);

 private:
  Bytes bytes_;
};

/// Some fields of a schema, in any order, each once. A row of the projection has the layout that Schema::make() gives
/// to these fields in this order (schema.h), so whoever has made that schema reads it with RowView and builds it with
/// RowBuilder. The projection itself follows from the numbers as it is walked: making one allocates nothing and costs
/// some nanoseconds a field, which is what a node does for each request.
///
/// Value type of a few words; refers to the schema and to the bytes of the numbers, which outlive it. Immutable.
/// "Row" is a valid row of the whole schema, "part" a valid row of the projection (validate_row(projection, part)).
class Projection {
 public:
  /// kInvalidArgument: no field, more of them than there are, a number that no field has, one named twice.
  static Result<Projection> make(const Schema& schema, FieldNumbers numbers);

  const Schema& schema() const { return *schema_; }
  FieldNumbers numbers() const { return numbers_; }

  // A part's layout, as of Schema.
  uint32_t fixed_size() const { return fixed_size_; }
  uint32_t null_offset() const { return null_offset_; }
  size_t nullable_count() const { return nullable_count_; }
  /// Calls f(number, layout) for each field in the order of the list: its number in the schema, its layout in a part.
  template <class F>
  void for_each(F&& f) const;

  /// Bytes of the part that project() makes of the row.
  size_t projected_size(Bytes row) const;
  /// Writes the named fields of the row to `out`, which has room for projected_size(row).
  void project(Bytes row, std::byte* out) const;

  /// Bytes of the row that compose() makes. May be over kMaxRowBytes: the caller looks.
  size_t composed_size(Bytes row, Bytes part) const { return row.size() + part.size() - projected_size(row); }
  /// Writes the row with the part's values in the named fields to `out`, which has room for composed_size(row, part).
  void compose(Bytes row, Bytes part, std::byte* out) const;

 private:
  Projection() = default;
  void compose_variable(Bytes row, Bytes part, std::byte* out) const;

  const Schema* schema_ = nullptr;
  FieldNumbers numbers_;
  // Of a part: where each kind of fields begins.
  uint32_t four_ = 0;  // bytes wide
  uint32_t end_offsets_ = 0;
  uint32_t two_ = 0;
  uint32_t null_offset_ = 0;
  uint32_t fixed_size_ = 0;
  uint16_t nullable_count_ = 0;
};

/// What becomes a stored row: a whole one, or one that changes some fields of the row before it.
struct NewRow {
  Bytes bytes;                         ///< the row, or the part of `fields`
  const Projection* fields = nullptr;  ///< null: all

  /// Bytes of the stored row that follows `before`, which a whole row does not look at.
  size_t size(Bytes before) const { return fields == nullptr ? bytes.size() : fields->composed_size(before, bytes); }
  void write(Bytes before, std::byte* out) const {
    if (fields != nullptr) {
      fields->compose(before, bytes, out);
    } else if (!bytes.empty()) {
      std::memcpy(out, bytes.data(), bytes.size());
    }
  }
};

template <class F>
void Projection::for_each(F&& f) const {
  uint32_t eight = 0, four = four_, end_offset = end_offsets_, two = two_;
  uint16_t null_bit = 0, variable = 0;
  const auto take = [](uint32_t& at, uint32_t width) { return std::exchange(at, at + width); };
  for (size_t i = 0; i < numbers_.size(); ++i) {
    const uint16_t number = numbers_[i];
    const Field& field = schema_->field(number);
    FieldLayout layout;
    switch (fixed_width(field.type)) {
      case 8:
        layout.offset = take(eight, 8);
        break;
      case 4:
        layout.offset = take(four, 4);
        break;
      case 2:
        layout.offset = take(two, 2);
        break;
      default:
        layout.offset = take(end_offset, sizeof(uint32_t));
        layout.variable_index = variable++;
    }
    if (field.nullable) layout.null_bit = null_bit++;
    f(number, layout);
  }
}

}  // namespace loam
