// Table: the handle by which an application names a table in every call.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/schema/projection.h"
#include "common/schema/schema.h"

namespace loam::client {

/// Handle of one table, with its schema from the catalog.
///
/// Client::open_table() and create_table() return handles. A handle is cheap to copy, immutable, and usable by any
/// thread; it may outlive its client. A handle stays valid until the table is dropped; then every access gets
/// kNoSuchTable. A handle has the fields that the table had when the handle was made. If fields are added later
/// (Client::add_field()), reads through it return the fields that it has; an update changes these and leaves the others
/// as they are; an insert makes a record whose other fields are NULL. A handle keeps the name that the table had when
/// the handle was made (Client::rename_table()); accesses go by the id.
///
/// A *projection* is a handle of some fields of a table. A read through it returns these fields only, and an update
/// through it changes these fields only; the other fields are not sent. Every read and update by key takes a
/// projection in place of the whole table. An insert and a scan need the whole table.
///
///     auto balance = accounts.project({"balance"});                              // once
///     LOAM_ASSIGN_OR_RETURN(Record record, tx.get(*balance, Key(1)));            // its field 0 is the balance
///     LOAM_RETURN_IF_ERROR(tx.update(*balance, Key(1), {Value::int64(record.int64(0) - 10)}));
class Table {
 public:
  /// The table as the catalog describes it, or a projection of it.
  struct Description {
    TableId id;                                  ///< id of the table
    std::string name;                            ///< name of the table
    TableKind kind{};                            ///< transactional or non-transactional
    Schema schema;                               ///< the fields of the table or of the projection
    std::vector<uint16_t> numbers{};             ///< a projection's fields by their numbers in the table; else empty
    std::shared_ptr<const Description> whole{};  ///< the table of a projection; null for a whole table
  };

  /// For the library.
  explicit Table(std::shared_ptr<const Description> description) : description_(std::move(description)) {}

  /// Id of the table; a projection has its table's.
  TableId id() const { return description_->id; }
  /// Name of the table; a projection has its table's.
  const std::string& name() const { return description_->name; }
  /// Transactional or non-transactional.
  TableKind kind() const { return description_->kind; }
  /// The fields of the table. The schema of a projection has its fields in the order in which project() named them,
  /// and so have the records that are read through it.
  const Schema& schema() const { return description_->schema; }

  /// Makes a projection to some fields of this handle, each named once. Costs some allocations: make it once and keep
  /// it. kInvalidArgument: a name is wrong or occurs twice; the message has the existing names.
  /// @{
  Result<Table> project(std::span<const std::string_view> fields) const;
  Result<Table> project(std::initializer_list<std::string_view> fields) const {
    return project(std::span<const std::string_view>(fields.begin(), fields.size()));
  }
  /// @}
  /// Makes a projection to the fields with these numbers in this handle's schema. Errors as above.
  Result<Table> project(std::span<const uint16_t> fields) const;
  /// True if this handle is a projection.
  bool projected() const { return description_->whole != nullptr; }
  /// The whole table of a projection; otherwise this handle.
  Table whole() const { return projected() ? Table(description_->whole) : *this; }
  /// Number of fields that were added to the table after its creation and that the whole table of this handle has.
  uint8_t added() const { return whole().schema().added(); }
  /// The fields of a projection by their numbers in the table; empty for a whole table. Valid while a handle lives.
  FieldNumbers projection() const { return FieldNumbers(description_->numbers); }

  /// For the library.
  const std::shared_ptr<const Description>& description() const { return description_; }

 private:
  std::shared_ptr<const Description> description_;  // never null
};

}  // namespace loam::client
