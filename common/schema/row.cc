// Validation of rows and parts by one template, accessors that need the type at run time, and the builder.
#include "common/schema/row.h"

#include <algorithm>
#include <string>

namespace loam {
namespace {

Status malformed(std::string message) { return {StatusCode::kMalformed, "row: " + std::move(message)}; }
Status invalid_row(std::string message) { return {StatusCode::kInvalidArgument, "row: " + std::move(message)}; }

Status over_limit(size_t size) {
  return invalid_row(std::to_string(size) + " bytes, at most " + std::to_string(kMaxRowBytes) + " are allowed");
}

std::string quoted(const Field& field) { return "field '" + field.name + "'"; }

std::string out_of_range(FieldType type) {
  if (type == FieldType::kBoolean) return "a boolean that is neither 0 nor 1";
  if (type == FieldType::kDecimal) return "a number with more digits than " + to_string(type) + " has";
  return "a " + to_string(type) + " outside of the years 1 to 9999";
}

/// The fields of a whole row with their layout, as check_row() needs them.
class WholeRow {
 public:
  explicit WholeRow(const Schema& schema) : schema_(schema) {}

  uint32_t fixed_size() const { return schema_.fixed_size(); }
  uint32_t null_offset() const { return schema_.null_offset(); }
  size_t nullable_count() const { return schema_.nullable_count(); }
  bool has_ranges() const { return schema_.has_ranges(); }
  template <class F>
  void for_each(F&& f) const {
    for (size_t i = 0; i < schema_.size(); ++i) f(schema_.field(i), schema_.layout(i));
  }
  template <class F>
  void for_each_variable(F&& f) const {
    for (const uint16_t i : schema_.variable_fields()) f(schema_.field(i), schema_.layout(i));
  }

 private:
  const Schema& schema_;
};

/// The fields of a part, that is, of a row of a projection, with the interface of WholeRow.
class PartOfRow {
 public:
  explicit PartOfRow(const Projection& projection) : projection_(projection) {}

  uint32_t fixed_size() const { return projection_.fixed_size(); }
  uint32_t null_offset() const { return projection_.null_offset(); }
  size_t nullable_count() const { return projection_.nullable_count(); }
  bool has_ranges() const { return projection_.schema().has_ranges(); }
  template <class F>
  void for_each(F&& f) const {
    projection_.for_each([&](uint16_t i, const FieldLayout& layout) { f(projection_.schema().field(i), layout); });
  }
  template <class F>
  void for_each_variable(F&& f) const {
    for_each([&](const Field& field, const FieldLayout& layout) {
      if (is_variable(field.type)) f(field, layout);
    });
  }

 private:
  const Projection& projection_;
};

template <class Shape>
bool is_null(const Shape& shape, Bytes row, const FieldLayout& layout) {
  if (layout.null_bit == FieldLayout::kNone) return false;
  return ((static_cast<uint8_t>(row[shape.null_offset() + layout.null_bit / 8]) >> (layout.null_bit % 8)) & 1) != 0;
}

/// Checks that the slot of every fixed-width NULL is zero, because accessors return it without reading the bitmap.
template <class Shape>
Status check_null_slots(const Shape& shape, Bytes row) {
  const Bytes bitmap = row.subspan(shape.null_offset(), shape.fixed_size() - shape.null_offset());
  // A row without NULLs is done after a look at the bitmap.
  if (std::all_of(bitmap.begin(), bitmap.end(), [](std::byte b) { return b == std::byte{0}; })) return ok_status();
  Status status;
  shape.for_each([&](const Field& field, const FieldLayout& layout) {
    const size_t width = fixed_width(field.type);
    if (width == 0 || !is_null(shape, row, layout)) return;
    const Bytes slot = row.subspan(layout.offset, width);
    if (std::any_of(slot.begin(), slot.end(), [](std::byte b) { return b != std::byte{0}; })) {
      status = malformed(quoted(field) + " is NULL and not zero");
    }
  });
  return status;
}

/// Checks that each fixed-width value is one of its type.
template <class Shape>
Status check_ranges(const Shape& shape, Bytes row) {
  Status status;
  shape.for_each([&](const Field& field, const FieldLayout& layout) {
    if (!has_range(field.type)) return;
    const bool valid = with_stored(field.type, [&]<class T>(T value) {
      std::memcpy(&value, row.data() + layout.offset, sizeof value);
      return Value::stored(field.type, value).in_range();
    });
    if (!valid) status = malformed(quoted(field) + " is " + out_of_range(field.type));
  });
  return status;
}

/// Checks a row from the network: its size, the unused bits of the bitmap, the end offsets with their texts, and the
/// slots of NULLs.
template <class Shape>
Status check_row(const Shape& shape, Bytes row, size_t max_bytes) {
  if (row.size() > max_bytes) return over_limit(row.size());
  if (row.size() < shape.fixed_size()) {
    return malformed(std::to_string(row.size()) + " bytes, the schema's fixed part alone has " +
                     std::to_string(shape.fixed_size()));
  }
  if (const size_t used = shape.nullable_count() % 8; used != 0) {
    if ((static_cast<uint8_t>(row[shape.fixed_size() - 1]) >> used) != 0) {
      return malformed("unused bits of the null bitmap are set");
    }
  }
  Status status;
  uint32_t begin = shape.fixed_size();
  shape.for_each_variable([&](const Field& field, const FieldLayout& layout) {
    if (!status.ok()) return;
    uint32_t end;
    std::memcpy(&end, row.data() + layout.offset, sizeof end);
    if (end < begin || end > row.size()) {
      status = malformed(quoted(field) + " ends outside of the row");
    } else if (end != begin && is_null(shape, row, layout)) {
      status = malformed(quoted(field) + " is NULL and not empty");
    } else if (field.type == FieldType::kText && !is_utf8(as_text(row.subspan(begin, end - begin)))) {
      status = malformed(quoted(field) + " is not UTF-8");
    }
    begin = end;
  });
  LOAM_RETURN_IF_ERROR(status);
  if (begin != row.size()) return malformed(std::to_string(row.size() - begin) + " bytes too many");
  if (shape.has_ranges()) LOAM_RETURN_IF_ERROR(check_ranges(shape, row));
  return check_null_slots(shape, row);
}

}  // namespace

Status validate_row(const Schema& schema, Bytes row, size_t max_bytes) {
  return check_row(WholeRow(schema), row, max_bytes);
}

Status validate_row(const Projection& projection, Bytes part) {
  return check_row(PartOfRow(projection), part, kMaxRowBytes);
}

size_t converted_size(const Schema& from, const Schema& to, Bytes row) {
  const RowView view(from, row);
  size_t size = to.fixed_size();
  for (const uint16_t field : from.variable_fields()) {
    if (field < to.size()) size += view.text(field).size();
  }
  return size;
}

void convert_row(const Schema& from, const Schema& to, Bytes row, std::byte* out) {
  const RowView view(from, row);
  std::memset(out, 0, to.fixed_size());
  auto end = to.fixed_size();
  for (size_t field = 0; field < to.size(); ++field) {
    const FieldLayout& layout = to.layout(field);
    const bool known = field < from.size();
    // Added fields are nullable, so an unknown field has a bit.
    if (layout.null_bit != FieldLayout::kNone && (!known || view.is_null(field))) {
      out[to.null_offset() + layout.null_bit / 8] |= static_cast<std::byte>(1u << (layout.null_bit % 8));
    }
    if (layout.variable_index != FieldLayout::kNone) {
      const std::string_view text = known ? view.text(field) : std::string_view();
      if (!text.empty()) std::memcpy(out + end, text.data(), text.size());
      end += static_cast<uint32_t>(text.size());
      std::memcpy(out + layout.offset, &end, sizeof end);
    } else if (known) {
      std::memcpy(out + layout.offset, row.data() + from.layout(field).offset, fixed_width(to.field(field).type));
    }
  }
}

Value RowView::value(size_t field) const {
  if (is_null(field)) return Value::null();
  const FieldType type = schema_->field(field).type;
  if (type == FieldType::kText) return Value::text(text(field));
  if (type == FieldType::kBlob) return Value::blob(blob(field));
  return with_stored(type, [&]<class T>(T) { return Value::stored(type, get<T>(field)); });
}

RowBuilder::RowBuilder(const Schema& schema) : schema_(schema), variables_(schema.variable_fields().size()) { reset(); }

void RowBuilder::reset() {
  row_.assign(schema_.fixed_size(), std::byte{0});
  pool_.clear();
  set_.assign(schema_.size(), false);
  finished_ = false;
}

Status RowBuilder::check_field(size_t field, FieldType type) const {
  if (field >= schema_.size()) {
    return invalid_row("no field " + std::to_string(field) + ", the schema has " + std::to_string(schema_.size()));
  }
  const Field& f = schema_.field(field);
  if (type != f.type && type != FieldType::kNull) {
    return invalid_row(quoted(f) + " has type " + to_string(f.type) + ", the value is " + to_string(type));
  }
  if (type == FieldType::kNull && !f.nullable) return invalid_row(quoted(f) + " cannot be NULL");
  return ok_status();
}

void RowBuilder::mark_set(size_t field, bool null) {
  set_[field] = true;
  const uint16_t bit = schema_.layout(field).null_bit;
  if (bit == FieldLayout::kNone) return;
  std::byte& byte = row_[schema_.null_offset() + bit / 8];
  const auto mask = static_cast<std::byte>(1u << (bit % 8));
  byte = null ? byte | mask : byte & ~mask;
}

template <class T>
Status RowBuilder::set_fixed(size_t field, FieldType type, T value) {
  if (finished_) reset();
  LOAM_RETURN_IF_ERROR(check_field(field, type));
  std::memcpy(row_.data() + schema_.layout(field).offset, &value, sizeof value);
  mark_set(field, false);
  return ok_status();
}

// Texts and blobs collect in pool_ in the order of the calls. finish() brings them into the order of the fields.
Status RowBuilder::set_variable(size_t field, FieldType type, std::string_view value) {
  if (finished_) reset();
  LOAM_RETURN_IF_ERROR(check_field(field, type));
  if (value.size() > kMaxRowBytes) return over_limit(value.size());
  if (type == FieldType::kText && !is_utf8(value)) return invalid_row(quoted(schema_.field(field)) + " is not UTF-8");
  // If the field was set before, its old bytes stay unused in pool_ until reset().
  const Bytes bytes = as_bytes(value);
  variables_[schema_.layout(field).variable_index] = {pool_.size(), bytes.size()};
  pool_.insert(pool_.end(), bytes.begin(), bytes.end());
  mark_set(field, false);
  return ok_status();
}

Status RowBuilder::set_null(size_t field) {
  if (finished_) reset();
  LOAM_RETURN_IF_ERROR(check_field(field, FieldType::kNull));
  const FieldLayout& layout = schema_.layout(field);
  if (layout.variable_index != FieldLayout::kNone) {
    variables_[layout.variable_index] = {};
  } else {
    std::memset(row_.data() + layout.offset, 0, fixed_width(schema_.field(field).type));
  }
  mark_set(field, true);
  return ok_status();
}

Status RowBuilder::set_int16(size_t field, int16_t value) { return set_fixed(field, FieldType::kInt16, value); }
Status RowBuilder::set_int32(size_t field, int32_t value) { return set_fixed(field, FieldType::kInt32, value); }
Status RowBuilder::set_int64(size_t field, int64_t value) { return set_fixed(field, FieldType::kInt64, value); }
Status RowBuilder::set_float32(size_t field, float value) { return set_fixed(field, FieldType::kFloat32, value); }
Status RowBuilder::set_float64(size_t field, double value) { return set_fixed(field, FieldType::kFloat64, value); }
Status RowBuilder::set_text(size_t field, std::string_view value) {
  return set_variable(field, FieldType::kText, value);
}
Status RowBuilder::set_blob(size_t field, Bytes value) { return set_variable(field, FieldType::kBlob, as_text(value)); }

Status RowBuilder::set_boolean(size_t field, bool value) { return set(field, Value::boolean(value)); }
Status RowBuilder::set_date(size_t field, int32_t days) { return set(field, Value::date(days)); }
Status RowBuilder::set_timestamp(size_t field, int64_t us) { return set(field, Value::timestamp(us)); }
Status RowBuilder::set_decimal(size_t field, Int128 number) {
  const bool decimal = field < schema_.size() && schema_.field(field).type == FieldType::kDecimal;
  return set(field,
             decimal ? Value::stored(schema_.field(field).type, number) : Value::decimal(number, kMaxDecimalDigits, 0));
}

Status RowBuilder::set(size_t field, const Value& value) {
  const FieldType type = value.type();
  if (type == FieldType::kNull) return set_null(field);
  if (is_variable(type)) return set_variable(field, type, value.as_text());
  if (!value.in_range()) {
    LOAM_RETURN_IF_ERROR(check_field(field, type));
    return invalid_row("field '" + schema_.field(field).name + "' is " + out_of_range(type));
  }
  return with_stored(type, [&]<class T>(T) { return set_fixed(field, type, value.as_stored<T>()); });
}

Status RowBuilder::set(std::string_view name, const Value& value) {
  LOAM_ASSIGN_OR_RETURN(const uint16_t field, schema_.require(name));
  return set(field, value);
}

void RowBuilder::set_all(const RowView& row) {
  LOAM_DCHECK(row.schema() == schema_, "the row is of another schema");
  reset();
  std::memcpy(row_.data(), row.bytes().data(), schema_.fixed_size());
  // The texts and blobs of the row become the pool; finish() writes the end offsets again.
  const Bytes tail = row.bytes().subspan(schema_.fixed_size());
  pool_.assign(tail.begin(), tail.end());
  size_t begin = 0;
  for (size_t i = 0; i < variables_.size(); ++i) {
    const size_t size = row.text(schema_.variable_fields()[i]).size();
    variables_[i] = {begin, size};
    begin += size;
  }
  set_.assign(schema_.size(), true);
}

Result<Bytes> RowBuilder::finish() {
  if (finished_) reset();
  // Step 1: NULL for the fields that were not set.
  for (size_t field = 0; field < schema_.size(); ++field) {
    if (set_[field]) continue;
    if (!schema_.field(field).nullable) return invalid_row(quoted(schema_.field(field)) + " is missing");
    LOAM_RETURN_IF_ERROR(set_null(field));
  }
  // Step 2: the size of the row, and then the texts and blobs behind the fixed part, each with its end offset.
  size_t end = schema_.fixed_size();
  for (const Variable& variable : variables_) end += variable.size;
  if (end > kMaxRowBytes) return over_limit(end);
  row_.resize(end);
  end = schema_.fixed_size();
  for (size_t i = 0; i < variables_.size(); ++i) {
    if (variables_[i].size != 0)
      std::memcpy(row_.data() + end, pool_.data() + variables_[i].offset, variables_[i].size);
    end += variables_[i].size;
    const auto end32 = static_cast<uint32_t>(end);
    std::memcpy(row_.data() + schema_.end_offsets() + i * sizeof end32, &end32, sizeof end32);
  }
  finished_ = true;
  return Bytes(row_);
}

}  // namespace loam
