// Validation, reading and building of rows. schema.h has the layout.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "common/base/assert.h"
#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/schema/projection.h"
#include "common/schema/schema.h"

namespace loam {

/// Checks that bytes from the network are a row. If they are, no accessor of RowView reads outside of them.
/// kMalformed: a wrong size, wrong end offsets, set bits in the unused part of the null bitmap, a NULL that is not
/// empty or zero, a value outside of the range of its type, or text that is not UTF-8; the message says which.
/// kInvalidArgument: the row is larger than `max_bytes`.
Status validate_row(const Schema& schema, Bytes row, size_t max_bytes = kMaxRowBytes);
/// Checks that bytes from the network are a row of a projection. Errors as above.
Status validate_row(const Projection& projection, Bytes part);

/// Size of the row that convert_row() makes.
size_t converted_size(const Schema& from, const Schema& to, Bytes row);
/// Writes a row of `from` as a row of `to` to `out`, which has room for converted_size(). Both are schemas of one
/// table, with different numbers of added fields: fields that only `from` has are left out, and fields that only `to`
/// has are NULL.
void convert_row(const Schema& from, const Schema& to, Bytes row, std::byte* out);

/// Reads the fields of a validated row in place. The accessors check nothing, except that development builds check
/// the type. Three words, passed by value. The schema and the bytes outlive the view.
class RowView {
 public:
  /// A view of `row`, which validate_row() has accepted or RowBuilder has built. Copies and checks nothing.
  RowView(const Schema& schema, Bytes row) : schema_(&schema), data_(row.data()), size_(row.size()) {}

  /// The schema, by whose field numbers the accessors read.
  const Schema& schema() const { return *schema_; }
  /// The encoded row.
  Bytes bytes() const { return {data_, size_}; }

  /// Whether the field is NULL.
  bool is_null(size_t field) const {
    const uint16_t bit = schema_->layout(field).null_bit;
    if (bit == FieldLayout::kNone) return false;
    return ((static_cast<uint8_t>(data_[schema_->null_offset() + bit / 8]) >> (bit % 8)) & 1) != 0;
  }

  /// The value of a fixed-width field; T must be the type of the field. 0 if it is NULL.
  template <Scalar T>
  T get(size_t field) const {
    LOAM_DCHECK(fixed_width(schema_->field(field).type) == sizeof(T), "the type asked for is not the field's");
    T value;
    std::memcpy(&value, data_ + schema_->layout(field).offset, sizeof(T));
    return value;
  }
  /// These functions call get() with the type in their name.
  /// @{
  int16_t int16(size_t field) const { return get<int16_t>(field); }
  int32_t int32(size_t field) const { return get<int32_t>(field); }
  int64_t int64(size_t field) const { return get<int64_t>(field); }
  float float32(size_t field) const { return get<float>(field); }
  double float64(size_t field) const { return get<double>(field); }
  bool boolean(size_t field) const { return get<uint8_t>(field) != 0; }
  int32_t date(size_t field) const { return get<int32_t>(field); }
  int64_t timestamp(size_t field) const { return get<int64_t>(field); }
  Int128 decimal(size_t field) const {
    return is_long(schema_->field(field).type) ? get<Int128>(field) : get<int64_t>(field);
  }
  /// @}

  /// The value of a text or blob field, as a view into the row. Empty if it is NULL.
  std::string_view text(size_t field) const {
    const FieldLayout& layout = schema_->layout(field);
    LOAM_DCHECK(layout.variable_index != FieldLayout::kNone, "not a text or blob field");
    uint32_t end;
    std::memcpy(&end, data_ + layout.offset, sizeof end);
    uint32_t begin = schema_->fixed_size();
    if (layout.variable_index != 0) std::memcpy(&begin, data_ + layout.offset - sizeof begin, sizeof begin);
    return {reinterpret_cast<const char*>(data_) + begin, end - begin};
  }
  /// The value of a text or blob field, as bytes.
  Bytes blob(size_t field) const { return as_bytes(text(field)); }

  /// The value of any field. Copies text.
  Value value(size_t field) const;

 private:
  const Schema* schema_;
  const std::byte* data_;
  size_t size_;
};

/// Builds rows of one schema, one after another. It keeps its memory, so after the first rows it allocates nothing. A
/// setter that fails does not change the row.
///
/// Owner: one thread. The schema outlives the builder.
///
///     RowBuilder builder(schema);
///     LOAM_RETURN_IF_ERROR(builder.set(0, Value::int64(7)));   // or builder.set_int64(0, 7), builder.set("id", …)
///     LOAM_ASSIGN_OR_RETURN(Bytes row, builder.finish());      // valid until the next call of this builder
class RowBuilder {
 public:
  /// Begins a row, in which no field is set.
  explicit RowBuilder(const Schema& schema);

  /// Begins a new row, in which no field is set.
  void reset();

  /// Sets a field, by its number or its name; the other setters do so for one type each. The text or blob is copied.
  /// kInvalidArgument: there is no such field, the value has another type (no conversion takes place), NULL for a field
  /// that is not nullable, a value outside of the range of its type (Value::in_range()), text that is not UTF-8, or a
  /// text or blob over kMaxRowBytes.
  /// @{
  Status set(size_t field, const Value& value);
  Status set(std::string_view name, const Value& value);
  Status set_null(size_t field);
  Status set_int16(size_t field, int16_t value);
  Status set_int32(size_t field, int32_t value);
  Status set_int64(size_t field, int64_t value);
  Status set_float32(size_t field, float value);
  Status set_float64(size_t field, double value);
  Status set_boolean(size_t field, bool value);
  Status set_date(size_t field, int32_t days);
  Status set_timestamp(size_t field, int64_t us);
  Status set_decimal(size_t field, Int128 number);  // in units of 10^-scale of the field's type
  Status set_text(size_t field, std::string_view value);
  Status set_blob(size_t field, Bytes value);
  /// @}
  /// Sets every field to its value in an existing row of the same schema. The caller may then change some of them.
  void set_all(const RowView& row);

  /// Returns the row, and begins a new one as reset() does. A nullable field that was not set is NULL.
  /// kInvalidArgument: a field that is not nullable was not set (the message names it), or the row is larger than
  /// kMaxRowBytes. The bytes are valid until the next call of a setter, reset() or finish().
  Result<Bytes> finish();

 private:
  template <class T>
  Status set_fixed(size_t field, FieldType type, T value);
  Status set_variable(size_t field, FieldType type, std::string_view value);
  Status check_field(size_t field, FieldType type) const;
  void mark_set(size_t field, bool null);

  struct Variable {
    size_t offset = 0;  // in pool_
    size_t size = 0;
  };

  const Schema& schema_;
  Buffer row_;                       // the fixed part while fields are set, the whole row after finish()
  Buffer pool_;                      // bytes of text and blob values, in the order in which they were set
  std::vector<Variable> variables_;  // by variable index
  std::vector<bool> set_;
  bool finished_ = false;
};

}  // namespace loam
