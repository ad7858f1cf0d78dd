// Conversion of index fields, values and bounds between texts and the types of the client library. csv/reader.h splits
// a bound into values.
#include "deploy/cli/src/index/index_text.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "deploy/cli/src/csv/reader.h"
#include "deploy/cli/src/csv/source.h"
#include "deploy/cli/src/shell/hint.h"

namespace loam::cli {
namespace {

constexpr std::string_view kDescending = ":desc";
constexpr std::string_view kAscending = ":asc";

const Field& field_of(const client::Index& index, size_t part) {
  return index.table().schema().field(index.parts()[part].field);
}

Status invalid(std::string what) { return Status(StatusCode::kInvalidArgument, std::move(what)); }

Status too_many(const client::Index& index, size_t values) {
  return invalid(fmt::format("index {} has {} field{} ({}), not {}", index.name(), index.parts().size(),
                             index.parts().size() == 1 ? "" : "s", format_index_fields(index), values));
}

// Parses a value of a field of the index. An empty optional means NULL.
Result<Value> parse_value(const client::Index& index, size_t part, std::optional<std::string_view> text) {
  const Field& field = field_of(index, part);
  if (!text) {
    if (!field.nullable) return invalid(fmt::format("field {} is never NULL", field.name));
    return Value::null();
  }
  // A rounded bound would include other keys.
  auto value = Value::parse(*text, field.type, Rounding::kRefuse);
  if (!value.ok()) return invalid(fmt::format("field {}: {}", field.name, value.status().message()));
  return value;
}

// Splits a line of CSV into at least one field and at most as many as the index has. An empty optional means NULL.
Result<std::vector<std::optional<std::string>>> parse_line(const client::Index& index, std::string_view text) {
  const auto source = source_of_text(std::string(text));
  CsvReader reader(*source);
  CsvRow row;
  const auto some = reader.next(row);
  if (!some.ok()) return invalid(std::string(some.status().message()));
  // An empty text is one empty field, which means NULL.
  if (!*some) row.fields = {CsvField{}};
  if (row.fields.size() > index.parts().size()) return too_many(index, row.fields.size());
  std::vector<std::optional<std::string>> texts;
  for (const CsvField& field : row.fields) {
    const bool null = field.text.empty() && !field.quoted;
    texts.push_back(null ? std::nullopt : std::optional<std::string>(field.text));
  }
  CsvRow behind;
  // A second row means that the text contains a line end.
  const auto more = reader.next(behind);
  if (!more.ok() || *more) return invalid("a line end stands in quotes");
  return texts;
}

// Parses values of the index's first fields.
Result<std::vector<Value>> parse_values(const client::Index& index, std::span<const std::optional<std::string>> texts) {
  std::vector<Value> values;
  for (size_t part = 0; part < texts.size(); ++part) {
    LOAM_ASSIGN_OR_RETURN(Value value, parse_value(index, part, texts[part]));
    values.push_back(std::move(value));
  }
  return values;
}

}  // namespace

Result<std::vector<client::IndexField>> parse_index_fields(std::span<const std::string> texts, const Schema& schema) {
  std::vector<client::IndexField> fields;
  for (const std::string& text : texts) {
    std::string_view name = text;
    bool descending = false;
    // The name of a field may itself end with ":desc".
    if (!schema.find(name)) {
      descending = name.ends_with(kDescending);
      if (descending || name.ends_with(kAscending)) name.remove_suffix((descending ? kDescending : kAscending).size());
    }
    LOAM_ASSIGN_OR_RETURN(const uint16_t number, schema.require(name));
    const std::string& known = schema.field(number).name;
    const bool twice = std::ranges::any_of(fields, [&](const auto& field) { return field.name == known; });
    if (twice) return invalid(fmt::format("field {} is named twice", known));
    fields.push_back({known, descending});
  }
  return fields;
}

std::string format_index_fields(const client::Index& index) {
  std::string text;
  for (size_t part = 0; part < index.parts().size(); ++part) {
    text += fmt::format("{}{}{}", part == 0 ? "" : ",", field_of(index, part).name,
                        index.parts()[part].descending ? kDescending : "");
  }
  return text;
}

std::string_view format_index_state(const client::Index& index) {
  return index.damaged() ? "damaged" : index.ready() ? "ready" : "building";
}

std::string create_command(const client::Index& index) {
  return hint(index.unique() ? Hint::kIndexCreateUnique : Hint::kIndexCreate,
              {index.name(), index.table().name(), format_index_fields(index)});
}

Result<std::vector<Value>> parse_index_values(const client::Index& index, std::span<const std::string> texts,
                                              std::span<const std::string> nulls) {
  const size_t count = texts.size() + nulls.size();
  if (count == 0)
    return invalid(fmt::format("give values of the index's first fields: {}", format_index_fields(index)));
  if (count > index.parts().size()) return too_many(index, count);
  std::vector<Value> values;
  size_t taken = 0;
  for (size_t part = 0; part < count; ++part) {
    // The texts belong, in order, to those fields that are not named as NULL.
    const bool null = std::ranges::find(nulls, field_of(index, part).name) != nulls.end();
    if (!null && taken == texts.size()) break;
    LOAM_ASSIGN_OR_RETURN(
        Value value, parse_value(index, part, null ? std::nullopt : std::optional<std::string_view>(texts[taken])));
    values.push_back(std::move(value));
    taken += null ? 0 : 1;
  }
  // A name in `nulls` is repeated, or names a later field or none.
  if (values.size() < count) {
    return invalid(fmt::format("values and NULLs are those of the index's first fields, each once: {}",
                               format_index_fields(index)));
  }
  return values;
}

Result<std::vector<Value>> parse_index_bound(const client::Index& index, std::string_view text) {
  LOAM_ASSIGN_OR_RETURN(const auto texts, parse_line(index, text));
  return parse_values(index, texts);
}

Result<std::vector<Value>> parse_index_prefix(const client::Index& index, std::string_view text) {
  LOAM_ASSIGN_OR_RETURN(const auto texts, parse_line(index, text));
  const size_t last = texts.size() - 1;
  const Field& field = field_of(index, last);
  if (!is_variable(field.type)) {
    return invalid(fmt::format("field {} is of type {}; only a text or blob has a beginning (index {}: {})", field.name,
                               to_string(field.type), index.name(), format_index_fields(index)));
  }
  // An empty value means NULL in a bound, but the empty prefix in a prefix range.
  const bool nothing = texts[last].value_or("").empty();
  LOAM_ASSIGN_OR_RETURN(auto values, parse_values(index, std::span(texts).first(nothing ? last : last + 1)));
  if (nothing) values.push_back(field.type == FieldType::kText ? Value::text("") : Value::blob({}));
  return values;
}

}  // namespace loam::cli
