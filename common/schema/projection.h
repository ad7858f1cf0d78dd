// Projections: rows that contain only some fields of a schema, and updates of only some fields.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/schema/schema.h"

namespace loam {

/// A list of field numbers as a message has it: a view of 2-byte numbers of any alignment. Two words, passed by
/// value. Its creator keeps the bytes alive. The empty list means the whole row.
class FieldNumbers {
 public:
  /// The empty list.
  FieldNumbers() = default;
  /// A view of `numbers`, which the caller keeps alive.
  explicit FieldNumbers(std::span<const uint16_t> numbers) : bytes_(std::as_bytes(numbers)) {}

  /// Number of fields.
  size_t size() const { return bytes_.size() / sizeof(uint16_t); }
  /// True if the list means the whole row.
  bool empty() const { return bytes_.empty(); }
  /// The number at place `i`, which must be below size().
  uint16_t operator[](size_t i) const {
    uint16_t number;
    std::memcpy(&number, bytes_.data() + i * sizeof number, sizeof number);
    return number;
  }
  /// True for the same numbers in the same order.
  bool operator==(const FieldNumbers& other) const { return equal(bytes_, other.bytes_); }

  /// Appends a varint count and then the numbers.
  void encode(ByteWriter& out) const;
  /// Reads a list in place. kMalformed: the bytes end early. Neither the count nor the numbers have a limit here;
  /// Projection::make() checks both against a schema.
  static Result<FieldNumbers> decode(ByteReader& in);

 private:
  Bytes bytes_;
};

/// Some fields of a schema, in any order, each once.
///
/// A row of the projection has the layout that Schema::make() gives to these fields in this order (schema.h). So a
/// client that makes this schema reads such a row with RowView and builds it with RowBuilder. A storage node makes a
/// Projection for each request; that allocates nothing and takes some nanoseconds for each field, because the layout
/// is computed from the numbers whenever it is needed.
///
/// A value type of a few words, immutable. It refers to the schema and to the bytes of the numbers, which outlive it.
/// Below, "row" means a valid row of the whole schema, and "part" a valid row of the projection
/// (validate_row(projection, part)).
class Projection {
 public:
  /// Makes a projection. kInvalidArgument: there is no field, there are more fields than the schema has, a number is
  /// not that of a field, or a field is named twice.
  static Result<Projection> make(const Schema& schema, FieldNumbers numbers);

  /// The schema of the whole row.
  const Schema& schema() const { return *schema_; }
  /// The fields by their numbers in schema(), in the order in which they lie in a part.
  FieldNumbers numbers() const { return numbers_; }

  /// Size of a part before its text and blob bytes: the smallest size of a part.
  uint32_t fixed_size() const { return fixed_size_; }
  /// Offset of the null bitmap in a part.
  uint32_t null_offset() const { return null_offset_; }
  /// Number of nullable fields among numbers().
  size_t nullable_count() const { return nullable_count_; }
  /// Calls f(number, layout) for each field in the order of the list, with its number in the schema and its layout in
  /// a part.
  template <class F>
  void for_each(F&& f) const;

  /// Size of the part that project() makes of the row.
  size_t projected_size(Bytes row) const;
  /// Writes the named fields of the row to `out`, which has room for projected_size(row).
  void project(Bytes row, std::byte* out) const;

  /// Size of the row that compose() makes. It may exceed kMaxRowBytes, which the caller checks.
  size_t composed_size(Bytes row, Bytes part) const { return row.size() + part.size() - projected_size(row); }
  /// Writes the row, with the values of the part in the named fields, to `out`, which has room for composed_size(row,
  /// part).
  void compose(Bytes row, Bytes part, std::byte* out) const;

 private:
  Projection() = default;
  void compose_variable(Bytes row, Bytes part, std::byte* out) const;

  const Schema* schema_ = nullptr;
  FieldNumbers numbers_;
  std::array<uint32_t, kRowParts.size()> offsets_{};  // where each of kRowParts begins
  uint32_t null_offset_ = 0;
  uint32_t fixed_size_ = 0;
  uint16_t nullable_count_ = 0;
  bool has_variable_ = false;  // some field is a text or blob
};

/// The row of a new version: a whole row, or a change of some fields of the version before it.
struct NewRow {
  Bytes bytes;                         ///< the whole row, or a part of `fields`
  const Projection* fields = nullptr;  ///< the changed fields; null: all
  uint8_t added = 0;                   ///< number of added fields of a whole row; unused with `fields`

  /// Number of added fields (Schema::added()) of the row of the new version.
  uint8_t added_fields() const { return fields == nullptr ? added : fields->schema().added(); }
  /// Size of the row of the new version. `before` is the row of the version before it; a whole row does not read it.
  size_t size(Bytes before) const { return fields == nullptr ? bytes.size() : fields->composed_size(before, bytes); }
  /// Writes the row of the new version to `out`, which has room for size(before).
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
  std::array<uint32_t, kRowParts.size()> next = offsets_;
  uint16_t null_bit = 0, variable = 0;
  for (size_t i = 0; i < numbers_.size(); ++i) {
    const uint16_t number = numbers_[i];
    const Field& field = schema_->field(number);
    const size_t part = row_part(field.type);
    FieldLayout layout;
    layout.offset = std::exchange(next[part], next[part] + kRowParts[part]);
    if (part == kEndOffsets) layout.variable_index = variable++;
    if (field.nullable) layout.null_bit = null_bit++;
    f(number, layout);
  }
}

}  // namespace loam
