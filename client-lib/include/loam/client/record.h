// Record: the fields of one record, as a transaction read it or is to write it.
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

/// A field, by name, and its value.
struct FieldValue {
  std::string_view field;  ///< the name, whose bytes the caller keeps until the call has returned
  Value value;             ///< NULL, or a value of exactly the type of the field
};

/// Thrown by the typed accessors of Record: the record does not have the field, the field has another type, or its
/// value is NULL. This is the library's only exception class.
class FieldError final : public std::logic_error {
 public:
  /// For the library.
  explicit FieldError(const Status& status) : std::logic_error(std::string(status.message())) {}
  /// The error as a status: kInvalidArgument, with a message that names the table, the field, and its type.
  Status status() const { return {StatusCode::kInvalidArgument, what()}; }
};

/// A row of a table, or of a projection of it (Table::project()), with the key and the version under which it was
/// read.
///
/// A value type that owns its bytes: a move is cheap, a copy costs one allocation. One thread uses it at a time. It
/// may outlive the transaction that read it. A change of a Record has no effect in the cluster until the application
/// passes it to update().
///
/// Invariant: the bytes are a valid row of table().schema(), in the layout that Schema describes.
///
/// A caller names a field by its number in that schema (fast) or by its name (a binary search). The typed accessors
/// are for programs that know their schema. They throw FieldError if the table or the projection does not have the
/// field, if the field has another type, and, except for is_null(), if the value is NULL. value() returns
/// kInvalidArgument instead of throwing, and a Value for NULL.
class Record {
 public:
  /// Makes a record from one value for each field, in the order of the schema. kInvalidArgument, with table and field
  /// in the message: too few or too many values, a wrong type (values are not converted), NULL in a field that is not
  /// nullable, text that is not UTF-8, or a row over kMaxRowBytes.
  /// @{
  static Result<Record> make(const Table& table, std::span<const Value> values);
  static Result<Record> make(const Table& table, std::initializer_list<Value> values) {
    return make(table, std::span<const Value>(values.begin(), values.size()));
  }
  /// @}
  /// Makes a record of the projection to the named fields. kInvalidArgument as above and as Table::project().
  /// @{
  static Result<Record> make(const Table& table, std::span<const FieldValue> values);
  static Result<Record> make(const Table& table, std::initializer_list<FieldValue> values) {
    return make(table, std::span<const FieldValue>(values.begin(), values.size()));
  }
  /// @}
  /// Makes a record from an encoded row (the result of RowBuilder). Validates and copies the bytes. kInvalidArgument:
  /// the bytes are not a row of the table.
  static Result<Record> from_bytes(const Table& table, Bytes row);

  /// The table, or the projection, whose fields the record has.
  const Table& table() const { return table_; }
  /// The key under which the record was read; 0 for a record that was made.
  Key key() const { return key_; }
  /// The version that was read: in a transactional table the id of the transaction that wrote it. 0 for a
  /// transaction's own uncommitted write and for a record that was made.
  Version version() const { return version_; }

  /// The row for low-level access by field. Valid while the record lives unchanged.
  RowView view() const { return {table_.schema(), row_}; }
  /// The encoded row. Valid while the record lives unchanged.
  Bytes bytes() const { return row_; }

  /// Reads a field by its number in the table's schema. Throws FieldError. A text or blob is a view that is valid while
  /// the record lives unchanged.
  /// @{
  bool is_null(size_t field) const;
  int16_t int16(size_t field) const;
  int32_t int32(size_t field) const;
  int64_t int64(size_t field) const;
  float float32(size_t field) const;
  double float64(size_t field) const;
  bool boolean(size_t field) const;
  int32_t date(size_t field) const;       ///< days since 1970-01-01
  int64_t timestamp(size_t field) const;  ///< microseconds since 1970-01-01 00:00 UTC
  Int128 decimal(size_t field) const;     ///< in units of 10^-scale of the field's type
  std::string_view text(size_t field) const;
  Bytes blob(size_t field) const;
  /// @}

  /// Reads a field by its name. Throws FieldError. A text or blob is a view, as above.
  /// @{
  bool is_null(std::string_view field) const { return is_null(index(field)); }
  int16_t int16(std::string_view field) const { return int16(index(field)); }
  int32_t int32(std::string_view field) const { return int32(index(field)); }
  int64_t int64(std::string_view field) const { return int64(index(field)); }
  float float32(std::string_view field) const { return float32(index(field)); }
  double float64(std::string_view field) const { return float64(index(field)); }
  bool boolean(std::string_view field) const { return boolean(index(field)); }
  int32_t date(std::string_view field) const { return date(index(field)); }
  int64_t timestamp(std::string_view field) const { return timestamp(index(field)); }
  Int128 decimal(std::string_view field) const { return decimal(index(field)); }
  std::string_view text(std::string_view field) const { return text(index(field)); }
  Bytes blob(std::string_view field) const { return blob(index(field)); }
  /// @}

  /// The value of any field, also NULL. Copies a text or blob. kInvalidArgument: there is no field of that name or
  /// number.
  /// @{
  Result<Value> value(std::string_view field) const;
  Result<Value> value(size_t field) const;
  /// @}

  /// Replaces the value of one field. kInvalidArgument: there is no such field, or as make(); the record is then
  /// unchanged.
  /// @{
  Status set(size_t field, const Value& value);
  Status set(std::string_view field, const Value& value);
  /// @}

  /// For the library: wraps a row from a storage node or from the write buffer, which is known to be valid.
  Record(Table table, Key key, Version version, Buffer row)
      : table_(std::move(table)), key_(key), version_(version), row_(std::move(row)) {}

 private:
  // They throw FieldError.
  size_t index(std::string_view field) const;
  void expect(size_t field) const;
  void expect(size_t field, FieldType::Kind type) const;
  Status no_field(size_t field) const;
  /// Overwrites a number in the row, which then keeps its layout. False: the field or the value is not such a number.
  bool set_in_place(size_t field, const Value& value);

  Table table_;
  Key key_;
  Version version_;
  Buffer row_;
};

}  // namespace loam::client
