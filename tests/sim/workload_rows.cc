#include "tests/sim/workload_rows.h"

#include <charconv>
#include <string>
#include <system_error>

namespace loam::sim {

using client::Record;
using client::Table;

const Schema& row_schema() {
  static const Schema schema =
      Schema::make(
          {{"tag", FieldType::kInt64, false}, {"value", FieldType::kInt64, false}, {"note", FieldType::kText, true}})
          .value();
  return schema;
}

const Schema& other_schema() {
  static const Schema schema = Schema::make({{"tag", FieldType::kInt64, false},
                                             {"value", FieldType::kInt64, false},
                                             {"note", FieldType::kText, true},
                                             {"more", FieldType::kInt64, false}})
                                   .value();
  return schema;
}

uint16_t first_added(const Table& table) { return static_cast<uint16_t>(table.schema().size() - table.added()); }

uint8_t added_fields(const Table& table) {
  uint8_t fields = 0;
  while (fields < kAddedFields.size() && table.schema().find(kAddedFields[fields].name)) ++fields;
  return fields;
}

Value added_value(size_t field, uint64_t tag) {
  if (kAddedFields[field].type == FieldType::kText) return Value::text(std::to_string(tag));
  return Value::int64(static_cast<int64_t>(tag));
}

std::optional<uint64_t> added_tag(const Value& value) {
  if (value.is_null()) return std::nullopt;
  if (value.type() != FieldType::kText) return static_cast<uint64_t>(value.as_int64());
  const std::string_view digits = value.as_text();
  const char* const end = digits.data() + digits.size();
  uint64_t tag = 0;
  const auto parsed = std::from_chars(digits.data(), end, tag);
  return parsed.ec == std::errc() && parsed.ptr == end ? tag : 0;
}

std::vector<Value> make_row(const Table& table, uint64_t tag, int64_t value, uint64_t note_bytes) {
  std::vector<Value> values = {
      Value::int64(static_cast<int64_t>(tag)), Value::int64(value),
      note_bytes == 0 ? Value::null() : Value::text(std::string(note_bytes, static_cast<char>('a' + tag % 26)))};
  while (values.size() < first_added(table)) values.push_back(Value::int64(0));
  for (size_t field = 0; field < table.added(); ++field) values.push_back(added_value(field, tag));
  return values;
}

Table for_read(const Table& table, LogicalTime requested_at) {
  if (table.added() != 0 && requested_at % 6 == 0) return table.project({kAddedFields[0].name, "value", "tag"}).value();
  return requested_at % 3 == 0 ? table.project({"value", "tag"}).value() : table;
}

Record for_update(const Table& table, const std::vector<Value>& row, const ObservedRecord* seen, int64_t& value) {
  const Value &tag = row[RowFields::kTag], &note = row[RowFields::kNote], &own = row[RowFields::kValue];
  const uint64_t form = static_cast<uint64_t>(tag.as_int64()) % 7;
  if (form == 2 && table.added() != 0) {
    return Record::make(table, {{"value", own}, {kAddedFields[0].name, row[first_added(table)]}, {"tag", tag}}).value();
  }
  if (form == 1 || form == 2) return Record::make(table, {{"value", own}, {"tag", tag}}).value();
  if (form == 3) return Record::make(table, {{"note", note}, {"tag", tag}, {"value", own}}).value();
  if (seen == nullptr || form > 5) return Record::make(table, row).value();
  value = seen->value;
  if (form == 4) return Record::make(table, {{"tag", tag}}).value();
  return Record::make(table, {{"note", note}, {"tag", tag}}).value();
}

}  // namespace loam::sim
