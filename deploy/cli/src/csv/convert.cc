// Inference of a schema (SchemaInference) and conversion of rows (RowConverter). reader.cc splits the text into
// fields.
#include "deploy/cli/src/csv/convert.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "common/schema/calendar.h"

namespace loam::cli {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Accepts whole numbers such as -12, without plus sign and leading zeros, so that the number prints as it was written.
bool is_whole_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return false;
  return std::all_of(text.begin(), text.end(), is_digit);
}

// Accepts decimal numbers such as -12.5e-3, with digits on at least one side of the point.
/// The number of digits of a decimal number without the zeros at its begin and end.
int significant_digits(std::string_view text) {
  int seen = 0, significant = 0;
  for (const char c : text.substr(0, text.find_first_of("eE"))) {
    if (!is_digit(c) || (c == '0' && seen == 0)) continue;
    ++seen;
    if (c != '0') significant = seen;
  }
  return significant;
}

bool is_decimal_number(std::string_view text) {
  if (text.starts_with('-')) text.remove_prefix(1);
  size_t at = 0;
  while (at < text.size() && is_digit(text[at])) ++at;
  size_t digits = at;
  if (at > 1 && text[0] == '0') return false;
  if (at < text.size() && text[at] == '.') {
    const size_t point = at++;
    while (at < text.size() && is_digit(text[at])) ++at;
    digits += at - point - 1;
  }
  if (digits == 0) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    const size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    if (at == begin) return false;
  }
  return at == text.size();
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Shortens a field for a message. The result is always UTF-8.
std::string shorten(std::string_view text) {
  constexpr size_t kShown = 40;
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0u) == 0x80u; };
  // Cuts before a character of several bytes, not inside it.
  size_t shown = std::min(text.size(), kShown);
  while (shown < text.size() && shown > 0 && continues(shown)) --shown;
  std::string result(text.substr(0, shown));
  if (!is_utf8(result)) {
    result.clear();
    for (const char c : text.substr(0, shown)) {
      const auto byte = static_cast<unsigned char>(c);
      result += byte < 0x80 ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
    }
  }
  return shown < text.size() ? result + "…" : result;
}

}  // namespace

bool NullWords::is_null(const CsvField& field) const {
  return !field.quoted && std::find(words.begin(), words.end(), field.text) != words.end();
}

Status field_error(const CsvField& field, std::string_view name, std::string_view what) {
  return Status(StatusCode::kMalformed,
                fmt::format("line {}, column {} ({}): {}", field.line, field.column, name, what));
}

SchemaInference::SchemaInference(std::vector<std::string> names, NullWords nulls,
                                 const std::optional<std::string>& not_a_field)
    : nulls_(std::move(nulls)) {
  columns_.reserve(names.size());
  for (std::string& name : names) {
    const bool is_field = name != not_a_field;
    columns_.push_back({.name = std::move(name), .is_field = is_field});
  }
}

SchemaInference::Kind SchemaInference::kind_of(std::string_view text, Column& column) {
  if (is_whole_number(text)) {
    const std::optional<int64_t> value = parse_number<int64_t>(text);
    if (!value) return Kind::kText;
    constexpr int64_t kExact = int64_t{1} << 53;
    column.beyond_double |= *value > kExact || *value < -kExact;
    const bool small = *value >= std::numeric_limits<int32_t>::min() && *value <= std::numeric_limits<int32_t>::max();
    return small ? Kind::kInt32 : Kind::kInt64;
  }
  if (is_decimal_number(text)) {
    const bool exact = significant_digits(text) <= std::numeric_limits<double>::max_digits10;
    return exact && parse_number<double>(text) ? Kind::kFloat64 : Kind::kText;  // 1e999
  }
  // Words in another spelling than that of an export stay text.
  if (text == "true" || text == "false") return Kind::kBoolean;
  if (parse_date(text)) return Kind::kDate;
  return parse_timestamp(text) ? Kind::kTimestamp : Kind::kText;
}

void SchemaInference::widen(Column& column, std::string_view text) {
  // Types only widen, and text is the widest.
  if (column.kind == Kind::kText) return;
  const Kind kind = kind_of(text, column);
  const auto group = [](Kind of) {
    return of <= Kind::kFloat64 ? 0 : of == Kind::kBoolean ? 1 : of <= Kind::kTimestamp ? 2 : 3;
  };
  const bool mixed = column.kind != Kind::kNothing && group(kind) != group(column.kind);
  column.kind = mixed ? Kind::kText : std::max(column.kind, kind);
  // float64 would change whole numbers beyond 2^53, so a column that has such a number and a decimal number becomes
  // text.
  if (column.kind == Kind::kFloat64 && column.beyond_double) column.kind = Kind::kText;
}

void SchemaInference::add(const CsvRow& row) {
  if (row.fields.size() != columns_.size()) return;
  ++rows_;
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (nulls_.is_null(row.fields[i])) {
      columns_[i].nullable = true;
    } else {
      widen(columns_[i], row.fields[i].text);
    }
  }
}

Result<Schema> SchemaInference::schema(bool whole) const {
  std::vector<Field> fields;
  for (const Column& column : columns_) {
    if (!column.is_field) continue;
    // After a sample a later row may have NULL or a larger number, so the fields are nullable and integers are 64 bits
    // wide.
    Field field{column.name, FieldType::kText, column.nullable || !whole};
    if (column.kind == Kind::kInt32) field.type = whole ? FieldType::kInt32 : FieldType::kInt64;
    if (column.kind == Kind::kInt64) field.type = FieldType::kInt64;
    if (column.kind == Kind::kFloat64) field.type = FieldType::kFloat64;
    if (column.kind == Kind::kBoolean) field.type = FieldType::kBoolean;
    if (column.kind == Kind::kDate) field.type = FieldType::kDate;
    if (column.kind == Kind::kTimestamp) field.type = FieldType::kTimestamp;
    fields.push_back(std::move(field));
  }
  return Schema::make(std::move(fields));
}

Result<std::vector<std::string>> header_names(const CsvRow& header) {
  std::vector<std::string> names;
  for (const CsvField& field : header.fields) {
    const std::string number = fmt::format("header {}", names.size() + 1);
    if (field.text.empty()) {
      return field_error(field, number, "the column has no name; the first line must name every column");
    }
    if (!is_utf8(field.text)) return field_error(field, number, "the name is not UTF-8 text");
    if (field.text.size() > kMaxNameBytes) {
      return field_error(field, shorten(field.text),
                         fmt::format("the name has {} bytes, and a field's name at most {}; shorten it in the header",
                                     field.text.size(), kMaxNameBytes));
    }
    if (std::find(names.begin(), names.end(), field.text) != names.end()) {
      return field_error(field, field.text, "the header names this column twice");
    }
    names.emplace_back(field.text);
  }
  return names;
}

Result<RowConverter> RowConverter::make(const Schema& schema, const std::vector<std::string>& header,
                                        const std::optional<std::string>& key_column, NullWords nulls) {
  RowConverter converter(schema, std::move(nulls));
  std::vector<bool> has_column(schema.size(), false);
  bool has_key = false;
  // Each column must be a field, the key, or both.
  for (const std::string& name : header) {
    Column column{name, schema.find(name), key_column == name};
    if (!column.field && !column.is_key) {
      return Status(StatusCode::kMalformed, fmt::format("line 1: the table has no field for the column {}; it has {}",
                                                        name, schema.to_string()));
    }
    if (column.field) has_column[*column.field] = true;
    has_key |= column.is_key;
    converter.columns_.push_back(std::move(column));
  }
  if (key_column && !has_key) {
    return Status(StatusCode::kMalformed, fmt::format("line 1: there is no column {} to take the record key from; "
                                                      "there are {}",
                                                      *key_column, fmt::join(header, ", ")));
  }
  // A field without a column becomes NULL in every row, so it must be nullable.
  for (size_t i = 0; i < schema.size(); ++i) {
    if (!has_column[i] && !schema.field(i).nullable) {
      return Status(StatusCode::kMalformed, fmt::format("line 1: there is no column for the field {}, which cannot be "
                                                        "NULL",
                                                        schema.field(i).name));
    }
  }
  return converter;
}

Result<RowConverter::Record> RowConverter::convert(const CsvRow& row) {
  if (row.fields.size() != columns_.size()) {
    // The message points to the first field too many, or to the last field if there are too few.
    const CsvField& last = row.fields.size() > columns_.size() ? row.fields[columns_.size()] : row.fields.back();
    return Status(StatusCode::kMalformed,
                  fmt::format("line {}, column {}: {} field{} where the header has {}", last.line, last.column,
                              row.fields.size(), row.fields.size() == 1 ? "" : "s", columns_.size()));
  }
  builder_.reset();
  Record record;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const CsvField& field = row.fields[i];
    if (columns_[i].is_key) {
      const std::optional<uint64_t> key = parse_number<uint64_t>(field.text);
      if (!key) {
        return field_error(
            field, columns_[i].name,
            fmt::format("'{}' is no record key; a key is a whole number from 0 to 2^64 - 1", shorten(field.text)));
      }
      record.key = Key(*key);
    }
    if (columns_[i].field) LOAM_RETURN_IF_ERROR(set(field, columns_[i]));
  }
  auto bytes = builder_.finish();
  if (!bytes.ok()) {
    return Status(StatusCode::kMalformed, fmt::format("line {}: {}", row.line, bytes.status().message()));
  }
  record.row = *bytes;
  return record;
}

Status RowConverter::set(const CsvField& text, const Column& column) {
  const uint16_t index = *column.field;
  const Field& field = schema_->field(index);
  Status status;
  if (nulls_.is_null(text)) {
    if (!field.nullable) {
      return field_error(text, column.name,
                         fmt::format("'{}' stands for NULL, and the field cannot be NULL", text.text));
    }
    status = builder_.set_null(index);
  } else if (field.type == FieldType::kText) {
    return set_text(text, column);
  } else if (!is_integer(field.type) && !is_float(field.type)) {
    const auto value = Value::parse(text.text, field.type);
    status = value.ok() ? builder_.set(index, *value) : value.status();
  } else {
    return set_number(text, index);
  }
  if (!status.ok()) return field_error(text, column.name, status.message());
  return ok_status();
}

Status RowConverter::set_text(const CsvField& text, const Column& column) {
  const Status status = builder_.set_text(*column.field, text.text);
  if (status.ok()) return ok_status();
  if (!is_utf8(text.text)) {
    encoding_ = eight_bit_encoding(text.text);
    return field_error(text, column.name, fmt::format("'{}' is not UTF-8 text", shorten(text.text)));
  }
  return field_error(text, column.name, status.message());
}

Status RowConverter::set_number(const CsvField& text, uint16_t index) {
  const Field& field = schema_->field(index);
  switch (field.type) {
    case FieldType::kInt16:
      if (auto value = parse_number<int16_t>(text.text)) return builder_.set_int16(index, *value);
      break;
    case FieldType::kInt32:
      if (auto value = parse_number<int32_t>(text.text)) return builder_.set_int32(index, *value);
      break;
    case FieldType::kInt64:
      if (auto value = parse_number<int64_t>(text.text)) return builder_.set_int64(index, *value);
      break;
    case FieldType::kFloat32:
      if (auto value = parse_number<float>(text.text)) return builder_.set_float32(index, *value);
      break;
    default:
      if (auto value = parse_number<double>(text.text)) return builder_.set_float64(index, *value);
  }
  // Distinguishes a number that is too large from a text that is no number, because the remedies differ.
  const bool out_of_range = is_integer(field.type) && is_whole_number(text.text);
  return field_error(text, field.name,
                     out_of_range ? fmt::format("{} does not fit {}", shorten(text.text), to_string(field.type))
                                  : fmt::format("'{}' is not {}", shorten(text.text), to_string(field.type)));
}

}  // namespace loam::cli
