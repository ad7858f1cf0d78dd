// Names and codec of types.
#include "common/schema/field_type.h"

#include <array>
#include <charconv>

namespace loam {
namespace {

struct TypeName {
  FieldType::Kind kind;
  std::string_view name;
};
constexpr std::array kTypeNames = {
    TypeName{FieldType::kInt16, "int16"},     TypeName{FieldType::kInt32, "int32"},
    TypeName{FieldType::kInt64, "int64"},     TypeName{FieldType::kFloat32, "float32"},
    TypeName{FieldType::kFloat64, "float64"}, TypeName{FieldType::kText, "text"},
    TypeName{FieldType::kBlob, "blob"},       TypeName{FieldType::kBoolean, "boolean"},
    TypeName{FieldType::kDate, "date"},       TypeName{FieldType::kTimestamp, "timestamp"},
    TypeName{FieldType::kUint64, "uint64"},
};
constexpr std::string_view kDecimal = "decimal";

/// Takes a number of at most two digits from the front of the text, and the character behind it.
bool take_number(std::string_view& text, uint8_t& number, char behind) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size() || *end != behind) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return true;
}

/// The type whose name is "decimal", followed by `text`: "(12,2)", or "(12)" for a scale of 0.
FieldType decimal_from(std::string_view text) {
  uint8_t digits = 0, scale = 0;
  if (!text.starts_with('(')) return {};
  text.remove_prefix(1);
  if (take_number(text, digits, ')')) return text.empty() ? FieldType::decimal(digits, 0) : FieldType();
  if (!take_number(text, digits, ',') || !take_number(text, scale, ')') || !text.empty()) return {};
  return FieldType::decimal(digits, scale);
}

}  // namespace

std::string to_string(FieldType type) {
  if (type == FieldType::kDecimal) {
    if (type == FieldType(FieldType::kDecimal)) return std::string(kDecimal);
    return std::string(kDecimal) + "(" + std::to_string(type.digits()) + "," + std::to_string(type.scale()) + ")";
  }
  for (const TypeName& entry : kTypeNames) {
    if (entry.kind == type.kind()) return std::string(entry.name);
  }
  return type == FieldType::kNull ? "null" : "unknown type";
}

Result<FieldType> field_type_from(std::string_view name) {
  if (name.starts_with(kDecimal)) {
    const FieldType type = decimal_from(name.substr(kDecimal.size()));
    if (is_field_type(type)) return type;
    return Status(StatusCode::kInvalidArgument,
                  "'" + std::string(name.substr(0, 64)) +
                      "' is no type of decimals; write decimal(12,2) for 12 digits, 2 of them behind the point, with "
                      "at most " +
                      std::to_string(kMaxDecimalDigits) + " digits");
  }
  std::string known;
  for (const TypeName& entry : kTypeNames) {
    if (!is_field_type(entry.kind)) continue;
    if (entry.name == name) return FieldType(entry.kind);
    known += std::string(entry.name) + ", ";
  }
  return Status(StatusCode::kInvalidArgument, "no type is named '" + std::string(name.substr(0, 64)) +
                                                  "'; the types are " + known + "decimal(digits,scale)");
}

void FieldType::encode(ByteWriter& out) const {
  out.put(kind_);
  if (kind_ != kDecimal) return;
  out.put(digits_);
  out.put(scale_);
}

FieldType FieldType::decode(ByteReader& in) {
  FieldType type(in.get<Kind>());
  if (type.kind_ == kDecimal) {
    type.digits_ = in.get<uint8_t>();
    type.scale_ = in.get<uint8_t>();
  }
  if (!is_field_type(type) && type != kNull && type != kUint64) in.fail();
  return in.failed() ? FieldType() : type;
}

}  // namespace loam
