#include "deploy/cli/src/query/fields.h"

#include <vector>

#include <fmt/format.h>

namespace loam::cli {

Result<Field> parse_field(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size()) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("'{}' is no field: write name:type, or name:type? if it may be NULL", text));
  }
  Field field;
  field.name = text.substr(0, colon);
  std::string_view type = text.substr(colon + 1);
  field.nullable = type.ends_with('?');
  if (field.nullable) type.remove_suffix(1);
  auto parsed = field_type_from(type);
  if (!parsed.ok() || !is_field_type(*parsed)) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("field {}: there is no type '{}'; there are int16, int32, int64, float32, float64, text "
                              "and blob",
                              field.name, type));
  }
  field.type = *parsed;
  return field;
}

Result<Schema> parse_fields(std::span<const std::string> texts) {
  std::vector<Field> fields;
  for (const std::string& text : texts) {
    LOAM_ASSIGN_OR_RETURN(Field field, parse_field(text));
    fields.push_back(std::move(field));
  }
  return Schema::make(std::move(fields));
}

Result<Schema> parse_fields(std::string_view text) {
  constexpr std::string_view kSeparators = ", \t\r\n";
  std::vector<std::string> texts;
  for (size_t at = 0; (at = text.find_first_not_of(kSeparators, at)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kSeparators, at), text.size());
    texts.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return parse_fields(std::span<const std::string>(texts));
}

std::string format_field(const Field& field) {
  return fmt::format("{}:{}{}", field.name, to_string(field.type), field.nullable ? "?" : "");
}

std::string format_fields(const Schema& schema) {
  std::string text;
  for (const Field& field : schema.fields()) text += (text.empty() ? "" : ",") + format_field(field);
  return text;
}

}  // namespace loam::cli
