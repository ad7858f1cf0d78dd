// One record, read or to be written.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <loam/client/table.h>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/schema/row.h"
#include "common/schema/value.h"

namespace loam::client {

/// One field and its value, by name.
struct FieldValue {
  std::string_view field;
  Value value;
};

/// A field was asked for that a record does not have, or as another type than it has, or a value of one that is NULL.
/// The only exception that the library throws by itself.
class FieldError final : public std::logic_error {
 public:
  explicit FieldError(const Status& status) : std::logic_error(std::string(status.message())) {}
  /// kInvalidArgument; names the table and the field, and says what they have.
  Status status() const { return {StatusCode::kInvalidArgument, what()}; }
};

/// A row of one table, or of a projection of it (Table::project), with the key and version it was read under.
///
/// Value type that owns its bytes; moved cheaply, copied with one allocation; one thread at a time. Not tied to the
/// transaction that read it. Changing it changes nothing in the cluster until it is given to update().
///
/// Invariant: the bytes are a valid row of table().schema() (Schema's layout).
///
/// Fields are named by number in that schema (fast) or by name (a binary search). The typed accessors are for programs
/// that know their schema. They throw FieldError for a field that the table or its projection does not have, for a type
/// that is not the field's, and, except for is_null(), for a field that is NULL. value() answers with kInvalidArgument
/// instead, and has a value for NULL.
class Record {
 public:
  /// A row from one value per field, in the order of the schema. kInvalidArgument, naming table and field: too few or
  /// too many values, a wrong type (no conversion is made), NULL in a field that has none, a row over kMaxRowBytes.
  static Result<Record> make(const Table& table, std::span<const Value> values);
  static Result<Record> make(const Table& table, std::initializer_list<Value> values) {
    return make(table, std::span<const Value>(values.begin(), values.size()));
  }
  /// A row of these fields only: a record of the projection to them. kInvalidArgument as above, and as
  /// Table::project().
  static Result<Record> make(const Table& table, std::span<const FieldValue> values);
  static Result<Record> make(const Table& table, std::initializer_list<FieldValue> values) {
    return make(table, std::span<const FieldValue>(values.begin(), values.size()));
  }
  /// From encoded bytes (RowBuilder's result), which are validated and copied.
  static Result<Record> from_bytes(const Table& table, Bytes row);

  const Table& table() const { return table_; }
  Key key() const { return key_; }
  /// The version read: in a transactional table the id of the transaction that wrote it; 0 in a transaction's own
  /// uncommitted write and in a record that was made, not read.
  Version version() const { return version_; }

  RowView view() const { return {table_.schema(), row_}; }
  Bytes bytes() const { return row_; }

  // FieldError.
  bool is_null(size_t field) const;
  int16_t int16(size_t field) const;
  int32_t int32(size_t field) const;
  int64_t int64(size_t field) const;
  float float32(size_t field) const;
  double float64(size_t field) const;
  std::string_view text(size_t field) const;
  Bytes blob(size_t field) const;

  bool is_null(std::string_view field) const { return is_null(index(field)); }
  int16_t int16(std::string_view field) const { return int16(index(field)); }
  int32_t int32(std::string_view field) const { return int32(index(field)); }
  int64_t int64(std::string_view field) const { return int64(index(field)); }
  float float32(std::string_view field) const { return float32(index(field)); }
  double float64(std::string_view field) const { return float64(index(field)); }
  std::string_view text(std::string_view field) const { return text(index(field)); }
  Bytes blob(std::string_view field) const { return blob(index(field)); }

  /// Any field; kInvalidArgument if there is none of that name or number.
  Result<Value> value(std::string_view field) const;
  Result<Value> value(size_t field) const;

  /// Replaces one field. kInvalidArgument as make(); the record is then as before.
  Status set(size_t field, const Value& value);
  Status set(std::string_view field, const Value& value);

  /// For the library: a row that came from a node or out of the write buffer and is known to be valid.
  Record(Table table, Key key, Version version, Buffer row)
      : table_(std::move(table)), key_(key), version_(version), row_(std::move(row)) {}

 private:
  // FieldError.
  size_t index(std::string_view field) const;
  void expect(size_t field) const;
  void expect(size_t field, FieldType type) const;
  Status no_field(size_t field) const;
  /// A number over a number needs no new row; false if the field is anything else.
  bool set_in_place(size_t field, const Value& value);

  Table table_;
  Key key_;
  Version version_;
  Buffer row_;
};

}  // namespace loam::client
