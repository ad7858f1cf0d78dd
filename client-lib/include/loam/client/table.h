// A table as an application names it in every call.
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

/// Handle of one table: what the catalog said when it was opened. Schemas never change, so a handle stays right until
/// the table is dropped (then every access gets kNoSuchTable). Cheap to copy, immutable, any thread; may outlive its
/// client. From Client::open_table or create_table.
///
/// A *projection* is a handle that stands for some fields of the table: what is read through it brings these alone, and
/// what is updated through it changes these alone. The other fields do not travel. Every read and update by key takes
/// one in the place of the whole table; an insert and a scan need the whole.
///
///     auto balance = accounts.project({"balance"});                              // once
///     LOAM_ASSIGN_OR_RETURN(Record record, tx.get(*balance, Key(1)));            // its field 0 is the balance
///     LOAM_RETURN_IF_ERROR(tx.update(*balance, Key(1), {Value::int64(record.int64(0) - 10)}));
class Table {
 public:
  struct Description {
    TableId id;
    std::string name;
    TableKind kind{};
    Schema schema;
    // Of a projection: the table's numbers of its fields, and the table.
    std::vector<uint16_t> numbers{};
    std::shared_ptr<const Description> whole{};
  };

  explicit Table(std::shared_ptr<const Description> description) : description_(std::move(description)) {}

  TableId id() const { return description_->id; }
  const std::string& name() const { return description_->name; }
  TableKind kind() const { return description_->kind; }
  /// Of a projection: its fields, in the order in which they were named; records that are read through it have these.
  const Schema& schema() const { return description_->schema; }

  /// A projection to some of this handle's fields, each named once. kInvalidArgument says which name is wrong, and
  /// which there are. Costs some allocations: make it once and keep it.
  Result<Table> project(std::span<const std::string_view> fields) const;
  Result<Table> project(std::initializer_list<std::string_view> fields) const {
    return project(std::span<const std::string_view>(fields.begin(), fields.size()));
  }
  /// The same by the numbers that the fields have in this handle's schema.
  Result<Table> project(std::span<const uint16_t> fields) const;
  bool projected() const { return description_->whole != nullptr; }
  /// The table that this is a projection of, or itself.
  Table whole() const { return projected() ? Table(description_->whole) : *this; }
  /// The table's numbers of the fields; empty if this is the whole table. Lives as long as a handle.
  FieldNumbers projection() const { return FieldNumbers(description_->numbers); }

  const std::shared_ptr<const Description>& description() const { return description_; }

 private:
  std::shared_ptr<const Description> description_;  // never null
};

}  // namespace loam::client
