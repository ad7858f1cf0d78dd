#include <cstring>
#include <vector>

#include <loam/client/record.h>

#include "common/schema/row.h"

namespace loam::client {
namespace {

Status name_table(const Table& table, const Status& status) {
  return {status.code(), "table " + table.name() + ": " + std::string(status.message())};
}

}  // namespace

Result<Record> Record::make(const Table& table, std::span<const Value> values) {
  const Schema& schema = table.schema();
  if (values.size() != schema.size()) {
    return Status(StatusCode::kInvalidArgument, "table " + table.name() + " has " + std::to_string(schema.size()) +
                                                    " fields, not " + std::to_string(values.size()) + ": " +
                                                    schema.to_string());
  }
  RowBuilder builder(schema);
  for (size_t field = 0; field < values.size(); ++field) {
    if (Status status = builder.set(field, values[field]); !status.ok()) return name_table(table, status);
  }
  const auto row = builder.finish();
  if (!row.ok()) return name_table(table, row.status());
  return Record(table, Key(), Version(), Buffer(row->begin(), row->end()));
}

Result<Record> Record::make(const Table& table, std::span<const FieldValue> values) {
  std::vector<std::string_view> names;
  std::vector<Value> row;
  names.reserve(values.size());
  row.reserve(values.size());
  for (const FieldValue& value : values) {
    names.push_back(value.field);
    row.push_back(value.value);
  }
  LOAM_ASSIGN_OR_RETURN(const Table projection, table.project(names));
  return make(projection, row);
}

Result<Record> Record::from_bytes(const Table& table, Bytes row) {
  if (Status status = validate_row(table.schema(), row); !status.ok()) {
    return Status(StatusCode::kInvalidArgument, "table " + table.name() + ": " + std::string(status.message()));
  }
  return Record(table, Key(), Version(), Buffer(row.begin(), row.end()));
}

Status Record::no_field(size_t field) const {
  return {StatusCode::kInvalidArgument, "table " + table_.name() + " has " + std::to_string(table_.schema().size()) +
                                            " fields; there is no " + std::to_string(field)};
}

size_t Record::index(std::string_view field) const {
  if (const auto found = table_.schema().find(field)) return *found;
  throw FieldError(name_table(table_, table_.schema().require(field).status()));
}

void Record::expect(size_t field) const {
  if (field >= table_.schema().size()) throw FieldError(no_field(field));
}

void Record::expect(size_t field, FieldType::Kind type) const {
  expect(field);
  const Field& is = table_.schema().field(field);
  if (is.type == type && !view().is_null(field)) return;
  const std::string named = "field " + is.name + " of record " + std::to_string(key_.value);
  const std::string why =
      is.type != type ? " is " + to_string(is.type) + ", not " + to_string(type) + ": use the accessor of its type"
                      : " is NULL: ask is_null() first, or use value()";
  throw FieldError(name_table(table_, {StatusCode::kInvalidArgument, named + why}));
}

bool Record::is_null(size_t field) const {
  expect(field);
  return view().is_null(field);
}
int16_t Record::int16(size_t field) const {
  expect(field, FieldType::kInt16);
  return view().int16(field);
}
int32_t Record::int32(size_t field) const {
  expect(field, FieldType::kInt32);
  return view().int32(field);
}
int64_t Record::int64(size_t field) const {
  expect(field, FieldType::kInt64);
  return view().int64(field);
}
float Record::float32(size_t field) const {
  expect(field, FieldType::kFloat32);
  return view().float32(field);
}
double Record::float64(size_t field) const {
  expect(field, FieldType::kFloat64);
  return view().float64(field);
}
bool Record::boolean(size_t field) const {
  expect(field, FieldType::kBoolean);
  return view().boolean(field);
}
int32_t Record::date(size_t field) const {
  expect(field, FieldType::kDate);
  return view().date(field);
}
int64_t Record::timestamp(size_t field) const {
  expect(field, FieldType::kTimestamp);
  return view().timestamp(field);
}
Int128 Record::decimal(size_t field) const {
  expect(field, FieldType::kDecimal);
  return view().decimal(field);
}
std::string_view Record::text(size_t field) const {
  expect(field, FieldType::kText);
  return view().text(field);
}
Bytes Record::blob(size_t field) const {
  expect(field, FieldType::kBlob);
  return view().blob(field);
}

Result<Value> Record::value(std::string_view field) const {
  const auto found = table_.schema().require(field);
  if (!found.ok()) return name_table(table_, found.status());
  return view().value(*found);
}

Result<Value> Record::value(size_t field) const {
  if (field >= table_.schema().size()) return no_field(field);
  return view().value(field);
}

bool Record::set_in_place(size_t field, const Value& value) {
  const Schema& schema = table_.schema();
  if (field >= schema.size() || schema.field(field).type != value.type() || view().is_null(field)) return false;
  // Texts and blobs may change the size of the row. A value that is out of range is refused by the builder.
  if (is_variable(value.type()) || !value.in_range()) return false;
  with_stored(value.type(), [&]<class T>(T) {
    const T number = value.as_stored<T>();
    std::memcpy(row_.data() + schema.layout(field).offset, &number, sizeof number);
  });
  return true;
}

Status Record::set(size_t field, const Value& value) {
  if (set_in_place(field, value)) return ok_status();
  RowBuilder builder(table_.schema());
  builder.set_all(view());
  if (Status status = builder.set(field, value); !status.ok()) return name_table(table_, status);
  const auto row = builder.finish();
  if (!row.ok()) return name_table(table_, row.status());
  row_.assign(row->begin(), row->end());
  return ok_status();
}

Status Record::set(std::string_view field, const Value& value) {
  const auto found = table_.schema().require(field);
  if (!found.ok()) return name_table(table_, found.status());
  return set(*found, value);
}

}  // namespace loam::client
