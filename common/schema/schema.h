// Fields of a table and the layout of its rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/schema/value.h"

namespace loam {

/// Fields of one table: a row's fixed part stays well inside a page, and field numbers fit into 16 bits.
inline constexpr size_t kMaxFields = 1'024;
/// Bytes of a field's or table's name.
inline constexpr size_t kMaxNameBytes = 255;
/// Bytes of one row. Larger values belong outside, or into several records.
inline constexpr size_t kMaxRowBytes = 1 << 20;

/// How a table's records are changed. Mixing both kinds of access to one table is refused (kWrongTableKind).
enum class TableKind : uint8_t {
  kTransactional = 1,     ///< versions by transaction id under snapshot isolation
  kNonTransactional = 2,  ///< newest version only, changed by exact version (R21)
};
std::string_view to_string(TableKind kind);

struct Field {
  std::string name;
  FieldType type = FieldType::kInt64;
  bool nullable = false;

  bool operator==(const Field&) const = default;
};

/// Where a field lies in a row.
struct FieldLayout {
  static constexpr uint16_t kNone = 0xffff;

  /// Of fixed-width fields: offset of the value. Of text and blob: offset of the uint32 end offset.
  uint32_t offset = 0;
  /// Bit in the null bitmap, kNone for fields that cannot be NULL.
  uint16_t null_bit = kNone;
  /// Position among the text and blob fields, kNone for fixed-width ones.
  uint16_t variable_index = kNone;
};

/// The fields of a table, and the row layout that follows from them. Immutable after make(); shared between threads by
/// const reference or shared_ptr; RowView, RowBuilder and queries refer to it, their caller keeps it alive.
///
/// Row layout (offsets from the row's first byte, which lies on a multiple of 8):
///
///     | 8-byte fields | 4-byte fields | uint32 end offset per text/blob field | 2-byte fields | null bitmap | text and
///     blob bytes |
///
/// Every fixed-width field is naturally aligned and has the same offset in every row, so a scan loads it without
/// looking at the row. End offsets count from the row's first byte; a value begins where the one before it ends, the
/// first at fixed_size(). The bitmap has a bit for each nullable field, in field order (least significant bit first),
/// set if the field is NULL; without nullable fields it takes no byte. A NULL's slot is zero, a NULL text is empty. A
/// row of four int64 and three int32 takes 44 bytes.
class Schema {
 public:
  Schema() = default;
  /// kInvalidArgument: no field, more than kMaxFields, an empty, over-long, repeated or non-UTF-8 name, a type that no
  /// field can have, or a fixed part over kMaxRowBytes.
  static Result<Schema> make(std::vector<Field> fields);

  /// Number of fields.
  size_t size() const { return fields_.size(); }
  const std::vector<Field>& fields() const { return fields_; }
  const Field& field(size_t index) const { return fields_[index]; }
  const FieldLayout& layout(size_t index) const { return layout_[index]; }
  /// Field number by exact name; O(log n).
  std::optional<uint16_t> find(std::string_view name) const;
  /// The same with an error for people: kInvalidArgument that names the fields there are.
  Result<uint16_t> require(std::string_view name) const;

  /// Bytes before the first text or blob byte: the least size of a row, and the size of all rows without such fields.
  uint32_t fixed_size() const { return fixed_size_; }
  /// Offset of the null bitmap, and its bytes.
  uint32_t null_offset() const { return null_offset_; }
  uint32_t null_bytes() const { return fixed_size_ - null_offset_; }
  size_t nullable_count() const { return nullable_count_; }
  /// Text and blob fields in the order of their bytes; their end offsets are consecutive uint32 from end_offsets().
  const std::vector<uint16_t>& variable_fields() const { return variable_fields_; }
  uint32_t end_offsets() const { return end_offsets_; }

  bool operator==(const Schema& other) const { return fields_ == other.fields_; }

  void encode(ByteWriter& out) const;
  /// kMalformed for bytes that are no schema, and for what make() refuses.
  static Result<Schema> decode(ByteReader& in);
  /// "(id int64, note text null)"
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
};

}  // namespace loam
