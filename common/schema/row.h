// Rows: building, validating and reading them. The layout stands in schema.h.
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

/// Checks bytes from the network: after ok, no accessor of RowView reads outside of them. kMalformed says what is
/// wrong: size, end offsets, unused bits of the null bitmap, a NULL that is not empty or zero, text that is not UTF-8;
/// kInvalidArgument if the row is over kMaxRowBytes.
Status validate_row(const Schema& schema, Bytes row);
/// The same of a row that holds a projection's fields only.
Status validate_row(const Projection& projection, Bytes part);

/// Reads the fields of one validated row in place. Two pointers; pass by value. The schema and the bytes outlive it.
/// Accessors check nothing but, in development builds, the type.
class RowView {
 public:
  RowView(const Schema& schema, Bytes row) : schema_(&schema), data_(row.data()), size_(row.size()) {}

  const Schema& schema() const { return *schema_; }
  Bytes bytes() const { return {data_, size_}; }

  bool is_null(size_t field) const {
    const uint16_t bit = schema_->layout(field).null_bit;
    if (bit == FieldLayout::kNone) return false;
    return ((static_cast<uint8_t>(data_[schema_->null_offset() + bit / 8]) >> (bit % 8)) & 1) != 0;
  }

  /// Of fixed-width fields; T must have the field's width and kind. Zero if NULL.
  template <Scalar T>
  T get(size_t field) const {
    LOAM_DCHECK(fixed_width(schema_->field(field).type) == sizeof(T), "the type asked for is not the field's");
    T value;
    std::memcpy(&value, data_ + schema_->layout(field).offset, sizeof(T));
    return value;
  }
  int16_t int16(size_t field) const { return get<int16_t>(field); }
  int32_t int32(size_t field) const { return get<int32_t>(field); }
  int64_t int64(size_t field) const { return get<int64_t>(field); }
  float float32(size_t field) const { return get<float>(field); }
  double float64(size_t field) const { return get<double>(field); }

  /// Of text and blob fields: the bytes in the row. Empty if NULL.
  std::string_view text(size_t field) const {
    const FieldLayout& layout = schema_->layout(field);
    LOAM_DCHECK(layout.variable_index != FieldLayout::kNone, "not a text or blob field");
    uint32_t end;
    std::memcpy(&end, data_ + layout.offset, sizeof end);
    uint32_t begin = schema_->fixed_size();
    if (layout.variable_index != 0) std::memcpy(&begin, data_ + layout.offset - sizeof begin, sizeof begin);
    return {reinterpret_cast<const char*>(data_) + begin, end - begin};
  }
  Bytes blob(size_t field) const { return as_bytes(text(field)); }

  /// Any field as a Value (copies text).
  Value value(size_t field) const;

 private:
  const Schema* schema_;
  const std::byte* data_;
  size_t size_;
};

/// Builds rows of one schema, one after another, in memory that it keeps: after the first rows it allocates nothing.
/// Owned by one thread. A failed setter leaves the row as it was.
///
///     RowBuilder builder(schema);
///     LOAM_RETURN_IF_ERROR(builder.set(0, Value::int64(7)));   // or builder.set_int64(0, 7), builder.set("id", …)
///     LOAM_ASSIGN_OR_RETURN(Bytes row, builder.finish());      // valid until the next call of this builder
class RowBuilder {
 public:
  explicit RowBuilder(const Schema& schema);

  /// Forgets every field set.
  void reset();

  /// kInvalidArgument: no such field, wrong type (no conversion is made), NULL in a field that is not nullable, text
  /// that is not UTF-8.
  Status set(size_t field, const Value& value);
  Status set(std::string_view name, const Value& value);
  Status set_null(size_t field);
  Status set_int16(size_t field, int16_t value);
  Status set_int32(size_t field, int32_t value);
  Status set_int64(size_t field, int64_t value);
  Status set_float32(size_t field, float value);
  Status set_float64(size_t field, double value);
  Status set_text(size_t field, std::string_view value);
  Status set_blob(size_t field, Bytes value);
  /// Every field from an existing row of the same schema; then change some and finish.
  void set_all(const RowView& row);

  /// The row. A nullable field that was not set is NULL; one that is not nullable is missing: kInvalidArgument names
  /// it, as it does for a row over kMaxRowBytes. Afterwards the builder is as after reset(); the bytes stay until its
  /// next setter, reset or finish.
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
  Buffer row_;                       // the fixed part while fields are set, the whole row after finish
  Buffer pool_;                      // bytes of text and blob values in the order they were set
  std::vector<Variable> variables_;  // by variable index
  std::vector<bool> set_;
  bool finished_ = false;
};

}  // namespace loam
