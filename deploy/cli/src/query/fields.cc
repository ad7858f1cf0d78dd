// Parses and prints fields and schemas. A text that format_fields() prints can be parsed again.
#include "deploy/cli/src/query/fields.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

namespace loam::cli {
namespace {

constexpr std::string_view kSeparators = ", \t\r\n";

/// Appends the quoted name at text[at] to `into` and moves `at` after the closing quote. False if there is none.
bool parse_quoted(std::string_view text, size_t& at, std::string& into) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '"' && !text.substr(at + 1).starts_with('"')) {
      ++at;
      return true;
    }
    at += text[at] == '"' ? 1 : 0;  // the first of two
    into += text[at];
  }
  return false;
}

/// The end of the rest of a field: the next separator outside of the parentheses of its type, as in decimal(12,2).
size_t end_of_field(std::string_view text, size_t at) {
  const size_t end = text.find_first_of(kSeparators, at);
  const std::string_view field = text.substr(0, end);
  const size_t colon = field.rfind(':'), open = field.rfind('(');
  if (end == std::string_view::npos || colon == std::string_view::npos || colon < at) return end;
  if (open == std::string_view::npos || open < colon || field.find(')', open) != std::string_view::npos) return end;
  const size_t close = text.find(')', end);
  return close == std::string_view::npos ? end : text.find_first_of(kSeparators, close);
}

std::string quoted_if_needed(const std::string& name) {
  if (!name.starts_with('"') && name.find_first_of(kSeparators) == std::string::npos) return name;
  std::string quoted = "\"";
  for (const char c : name) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + "\"";
}

}  // namespace

Result<Field> parse_field(std::string_view text) {
  // The last colon separates the type, because a name may contain colons.
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
  const auto parsed = field_type_from(type);
  if (!parsed.ok()) return Status(parsed.code(), fmt::format("field {}: {}", field.name, parsed.status().message()));
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
  std::vector<std::string> texts;
  for (size_t at = 0; (at = text.find_first_not_of(kSeparators, at)) != std::string_view::npos;) {
    const size_t begin = at;
    std::string& field = texts.emplace_back();
    // The field goes on after the closing quote: the type follows without a space.
    if (text[at] == '"' && !parse_quoted(text, at, field)) {
      return Status(StatusCode::kInvalidArgument,
                    fmt::format("'{}' has a double quote that is not closed", text.substr(begin)));
    }
    const size_t end = std::min(end_of_field(text, at), text.size());
    field += text.substr(at, end - at);
    at = end;
  }
  return parse_fields(std::span<const std::string>(texts));
}

std::string format_field(const Field& field) {
  return fmt::format("{}:{}{}", field.name, to_string(field.type), field.nullable ? "?" : "");
}

std::string format_fields(const Schema& schema) {
  std::string text;
  for (Field field : schema.fields()) {
    field.name = quoted_if_needed(field.name);
    text += (text.empty() ? "" : ",") + format_field(field);
  }
  return text;
}

std::string column_name_beside(std::string_view name, std::span<const std::string> others) {
  std::string result(name);
  while (std::ranges::find(others, result) != others.end()) result.insert(0, 1, '_');
  return result;
}

std::string column_name_beside(std::string_view name, const Schema& schema) {
  std::string result(name);
  while (schema.find(result)) result.insert(0, 1, '_');
  return result;
}

}  // namespace loam::cli
