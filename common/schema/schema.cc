// Checks, layout and codec of schemas.
#include "common/schema/schema.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace loam {
namespace {

// The byte of a field behind its type. A schema without added fields has the encoding of earlier versions.
constexpr uint8_t kNullableBit = 1;
constexpr uint8_t kAddedBit = 2;

Status invalid_schema(std::string message) { return {StatusCode::kInvalidArgument, "schema: " + std::move(message)}; }

Status check_field(const Field& field, size_t number) {
  const std::string which = "field " + std::to_string(number);
  if (field.name.empty()) return invalid_schema(which + " has no name");
  if (field.name.size() > kMaxNameBytes) {
    return invalid_schema(which + ": the name has " + std::to_string(field.name.size()) + " bytes, at most " +
                          std::to_string(kMaxNameBytes) + " are allowed");
  }
  if (!is_utf8(field.name)) return invalid_schema(which + ": the name is not UTF-8");
  if (!is_field_type(field.type)) {
    return invalid_schema("field '" + field.name + "' has the type " + to_string(field.type) +
                          ", which no table can store");
  }
  return ok_status();
}

}  // namespace

std::string_view to_string(TableKind kind) {
  switch (kind) {
    case TableKind::kTransactional:
      return "transactional";
    case TableKind::kNonTransactional:
      return "non-transactional";
  }
  return "unknown kind";
}

Result<Schema> Schema::make(std::vector<Field> fields) {
  if (fields.empty()) return invalid_schema("a table needs at least one field");
  if (fields.size() > kMaxFields) {
    return invalid_schema(std::to_string(fields.size()) + " fields, at most " + std::to_string(kMaxFields) +
                          " are allowed");
  }
  for (size_t i = 0; i < fields.size(); ++i) LOAM_RETURN_IF_ERROR(check_field(fields[i], i));
  // Only nullable fields at the end are added ones. Others may come from the schema of another table.
  size_t first_added = fields.size();
  while (first_added > 1 && fields[first_added - 1].added && fields[first_added - 1].nullable) --first_added;
  for (size_t i = 0; i < first_added; ++i) fields[i].added = false;
  const size_t added = fields.size() - first_added;
  if (added > kMaxAddedFields) {
    return invalid_schema(std::to_string(added) + " added fields, at most " + std::to_string(kMaxAddedFields) +
                          " are allowed; create another table with all fields, and copy the records");
  }
  Schema schema;
  schema.added_ = static_cast<uint8_t>(added);
  schema.fields_ = std::move(fields);
  // The numbers in the order of the names serve find() by binary search. Equal names are neighbours in it.
  schema.by_name_.resize(schema.size());
  std::iota(schema.by_name_.begin(), schema.by_name_.end(), uint16_t{0});
  std::sort(schema.by_name_.begin(), schema.by_name_.end(),
            [&](uint16_t a, uint16_t b) { return schema.fields_[a].name < schema.fields_[b].name; });
  for (size_t i = 1; i < schema.size(); ++i) {
    const std::string& name = schema.fields_[schema.by_name_[i]].name;
    if (name == schema.fields_[schema.by_name_[i - 1]].name)
      return invalid_schema("two fields are named '" + name + "'");
  }
  schema.lay_out();
  return schema;
}

/// Computes the row layout that the header draws, from left to right.
void Schema::lay_out() {
  layout_.resize(size());
  uint32_t offset = 0;
  // The widths of the parts descend, so every field is aligned to its width without padding, except that rows, and with
  // them 16-byte fields, are aligned to 8 bytes.
  for (size_t part = 0; part < kRowParts.size(); ++part) {
    if (part == kEndOffsets) end_offsets_ = offset;
    for (size_t i = 0; i < size(); ++i) {
      if (row_part(fields_[i].type) != part) continue;
      layout_[i].offset = offset;
      offset += kRowParts[part];
      if (part != kEndOffsets) continue;
      layout_[i].variable_index = static_cast<uint16_t>(variable_fields_.size());
      variable_fields_.push_back(static_cast<uint16_t>(i));
    }
  }
  null_offset_ = offset;
  for (size_t i = 0; i < size(); ++i) {
    has_ranges_ = has_ranges_ || has_range(fields_[i].type);
    if (fields_[i].nullable) layout_[i].null_bit = static_cast<uint16_t>(nullable_count_++);
  }
  fixed_size_ = offset + static_cast<uint32_t>((nullable_count_ + 7) / 8);
  static_assert(kMaxFields * 16 + kMaxFields / 8 <= kMaxRowBytes, "the fixed part of any schema fits into a row");
}

Schema Schema::with_added(uint8_t added) const {
  std::vector<Field> fields = fields_;
  fields.resize(fields.size() - added_ + added);
  return std::move(make(std::move(fields))).value();
}

Result<Schema> Schema::add(Field field) const {
  if (!field.nullable) {
    return invalid_schema("field '" + field.name +
                          "' cannot be NULL, and rows from before do not have it; make it nullable");
  }
  field.added = true;
  std::vector<Field> fields = fields_;
  fields.push_back(std::move(field));
  return make(std::move(fields));
}

std::optional<uint16_t> Schema::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](uint16_t field, std::string_view key) { return fields_[field].name < key; });
  if (at == by_name_.end() || fields_[*at].name != name) return std::nullopt;
  return *at;
}

Result<uint16_t> Schema::require(std::string_view name) const {
  if (const auto found = find(name)) return *found;
  constexpr size_t kShown = 32;
  std::string known;
  for (size_t i = 0; i < std::min(size(), kShown); ++i) known += (i == 0 ? "" : ", ") + fields_[i].name;
  if (size() > kShown) known += ", …";
  return Status(StatusCode::kInvalidArgument,
                "no field is named '" + std::string(name.substr(0, kMaxNameBytes)) + "'; the fields are " + known);
}

void Schema::encode(ByteWriter& out) const {
  out.put_varint(size());
  for (const Field& field : fields_) {
    out.put_text(field.name);
    field.type.encode(out);
    out.put(static_cast<uint8_t>((field.nullable ? kNullableBit : 0) | (field.added ? kAddedBit : 0)));
  }
}

Result<Schema> Schema::decode(ByteReader& in) {
  size_t added = 0;
  std::vector<Field> fields;
  const size_t count = in.get_count(3);  // length of the name, type, nullable
  if (count > kMaxFields) in.fail();
  for (size_t i = 0; i < count && !in.failed(); ++i) {
    Field field;
    field.name = std::string(in.get_text());
    field.type = FieldType::decode(in);
    const auto bits = in.get<uint8_t>();
    if (bits > (kNullableBit | kAddedBit)) in.fail();
    field.nullable = (bits & kNullableBit) != 0;
    field.added = (bits & kAddedBit) != 0;
    added += field.added ? 1 : 0;
    fields.push_back(std::move(field));
  }
  LOAM_RETURN_IF_ERROR(in.status("schema"));
  Result<Schema> schema = make(std::move(fields));
  if (schema.ok() && schema->added() == added) return schema;
  in.fail();  // the bytes come from the network, so an invalid schema is malformed
  return Status(StatusCode::kMalformed, schema.ok() ? "schema: an added field is not nullable, or not at the end"
                                                    : std::string(schema.status().message()));
}

std::string Schema::to_string() const {
  std::string text = "(";
  for (size_t i = 0; i < size(); ++i) {
    if (i != 0) text += ", ";
    text += fields_[i].name + " " + loam::to_string(fields_[i].type);
    if (fields_[i].nullable) text += " null";
  }
  return text + ")";
}

}  // namespace loam
