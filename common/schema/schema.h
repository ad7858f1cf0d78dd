// The schema of a table: its fields and the layout of its rows.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/schema/value.h"

namespace loam {

/// Largest number of fields of a table. The fixed part of a row is then much smaller than a page, and field numbers
/// fit into 16 bits.
inline constexpr size_t kMaxFields = 1'024;
/// Largest number of bytes in the name of a field.
inline constexpr size_t kMaxNameBytes = 255;
/// Largest number of bytes of a row. An application splits larger values over several records, or stores them
/// elsewhere.
inline constexpr size_t kMaxRowBytes = 1 << 20;

/// Largest number of fields that can be added to a table after its creation. An entry has their number in one byte.
inline constexpr size_t kMaxAddedFields = 255;
/// Largest number of bytes of a row that was written without the added fields and is read with them.
inline constexpr size_t kMaxConvertedRowBytes = kMaxRowBytes + kMaxAddedFields * 17;

/// How clients change the records of a table. A request of the other kind is refused with kWrongTableKind.
enum class TableKind : uint8_t {
  kTransactional = 1,     ///< records have versions by transaction id, under snapshot isolation
  kNonTransactional = 2,  ///< records have one version; a write names the version that it replaces (R21)
};
/// The name of the kind, for messages.
std::string_view to_string(TableKind kind);

/// A field of a table.
struct Field {
  std::string name;                    ///< UTF-8, not empty, at most kMaxNameBytes, unique in the table
  FieldType type = FieldType::kInt64;  ///< the type of its values
  bool nullable = false;               ///< whether the field may be NULL
  /// Whether the field was added after the creation of the table. Older rows do not have it (Schema::with_added()).
  bool added = false;

  /// True for the same name, type and nullability.
  bool operator==(const Field& other) const {
    return name == other.name && type == other.type && nullable == other.nullable;
  }
};

/// The position of a field in a row.
struct FieldLayout {
  /// No bit, or no index.
  static constexpr uint16_t kNone = 0xffff;

  /// Offset of the value of a fixed-width field. For text and blob: offset of the uint32 end offset.
  uint32_t offset = 0;
  /// Number of the bit in the null bitmap; kNone for a field that is not nullable.
  uint16_t null_bit = kNone;
  /// Index among the text and blob fields; kNone for a fixed-width field.
  uint16_t variable_index = kNone;
};

/// The parts of a row that have fields, from left to right, with the bytes of a field in each: fixed-width fields by
/// their widths, which descend, and between them the end offsets of texts and blobs.
inline constexpr std::array<uint32_t, 6> kRowParts = {16, 8, 4, 4, 2, 1};
/// The part of the end offsets.
inline constexpr size_t kEndOffsets = 3;
/// The number of the part in which fields of this type lie.
constexpr size_t row_part(FieldType type) {
  switch (fixed_width(type)) {
    case 16:
      return 0;
    case 8:
      return 1;
    case 4:
      return 2;
    case 2:
      return 4;
    case 1:
      return 5;
    default:
      return kEndOffsets;
  }
}

/// The fields of a table, and the row layout that follows from them.
///
/// Immutable after make(). Threads share it by const reference or shared_ptr. RowView, RowBuilder and queries refer
/// to it, and their caller keeps it alive.
///
/// Row layout, with offsets from the first byte of the row, which lies at a multiple of 8:
///
///     | fields of 16, of 8, of 4 bytes | end offsets | fields of 2, of 1 byte | null bitmap | text and blob bytes |
///
/// Every fixed-width field of at most 8 bytes is naturally aligned. A fixed-width field has the same offset in all
/// rows, so a scan loads it without reading another part of the row. Each text and blob field has an end offset, a
/// uint32 that counts from the first byte of the row. A value begins at the end of the value before it, and the first
/// at fixed_size(). The bitmap has a bit for each nullable field, in the order of the fields, the least significant bit
/// first; a set bit means NULL. Without nullable fields the bitmap takes no byte. A fixed-width field that is NULL is
/// 0, a text or blob that is NULL is empty. A row of four int64 and three int32 takes 44 bytes.
///
/// Fields that are added to a table later lie at the end of the schema and are nullable (decision 0027). A row that was
/// made before has the layout of with_added(n), where n is the number of added fields at that time.
class Schema {
 public:
  /// A schema without fields, which no table has.
  Schema() = default;
  /// Makes a schema. kInvalidArgument: there is no field or more than kMaxFields; a name is empty, too long, repeated
  /// or not UTF-8; is_field_type() is false for a type; or more than kMaxAddedFields are added. A field that is not
  /// nullable, the first one or before one that is not added counts as not added. The fixed part of a row always fits
  /// into kMaxRowBytes.
  static Result<Schema> make(std::vector<Field> fields);

  /// Number of fields.
  size_t size() const { return fields_.size(); }
  /// The fields; the place of a field is its number.
  const std::vector<Field>& fields() const { return fields_; }
  /// The field with this number, which must be below size().
  const Field& field(size_t index) const { return fields_[index]; }
  /// The position in a row of the field with this number, which must be below size().
  const FieldLayout& layout(size_t index) const { return layout_[index]; }
  /// The number of the field with this exact name. O(log n).
  std::optional<uint16_t> find(std::string_view name) const;
  /// The number of the field with this exact name. kInvalidArgument: there is none; the message names the fields of
  /// the schema.
  Result<uint16_t> require(std::string_view name) const;

  /// Size of the part of a row before the text and blob bytes: the smallest size of a row.
  uint32_t fixed_size() const { return fixed_size_; }
  /// Offset of the null bitmap.
  uint32_t null_offset() const { return null_offset_; }
  /// Size of the null bitmap.
  uint32_t null_bytes() const { return fixed_size_ - null_offset_; }
  /// Number of nullable fields.
  size_t nullable_count() const { return nullable_count_; }
  /// Whether some values of a fixed-width field are not in the range of its type: a boolean, date, timestamp or
  /// decimal.
  bool has_ranges() const { return has_ranges_; }
  /// Numbers of the text and blob fields, in the order of their bytes.
  const std::vector<uint16_t>& variable_fields() const { return variable_fields_; }
  /// Offset of the end offsets of variable_fields(), which are consecutive uint32.
  uint32_t end_offsets() const { return end_offsets_; }

  /// Number of fields that were added after the creation of the table: the last ones.
  uint8_t added() const { return added_; }
  /// The schema with the first `added` of the added fields only. `added` is at most added().
  Schema with_added(uint8_t added) const;
  /// The schema with one more field at the end, as an added one. kInvalidArgument: the field is not nullable, or make()
  /// refuses the fields.
  Result<Schema> add(Field field) const;

  /// True for the same fields in the same order.
  bool operator==(const Schema& other) const { return fields_ == other.fields_; }

  /// Appends the fields.
  void encode(ByteWriter& out) const;
  /// Reads a schema. kMalformed: the bytes are no schema, or make() refuses the fields.
  static Result<Schema> decode(ByteReader& in);
  /// The schema as a text for people, "(id int64, note text null)".
  std::string to_string() const;

 private:
  void lay_out();

  std::vector<Field> fields_;
  std::vector<FieldLayout> layout_;
  std::vector<uint16_t> by_name_;  // field numbers ordered by name
  std::vector<uint16_t> variable_fields_;
  uint32_t fixed_size_ = 0;
  uint32_t null_offset_ = 0;
  uint32_t end_offsets_ = 0;
  size_t nullable_count_ = 0;
  uint8_t added_ = 0;
  bool has_ranges_ = false;
};

}  // namespace loam
