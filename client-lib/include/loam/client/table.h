// A table as an application names it in every call.
#pragma once

#include <memory>
#include <string>

#include "common/base/ids.h"
#include "common/schema/schema.h"

namespace loam::client {

/// Handle of one table: what the catalog said when it was opened. Schemas never change, so a handle stays right until
/// the table is dropped (then every access gets kNoSuchTable). Cheap to copy, immutable, any thread; may outlive its
/// client. From Client::open_table or create_table.
class Table {
 public:
  struct Description {
    TableId id;
    std::string name;
    TableKind kind{};
    Schema schema;
  };

  explicit Table(std::shared_ptr<const Description> description) : description_(std::move(description)) {}

  TableId id() const { return description_->id; }
  const std::string& name() const { return description_->name; }
  TableKind kind() const { return description_->kind; }
  const Schema& schema() const { return description_->schema; }

  const std::shared_ptr<const Description>& description() const { return description_; }

 private:
  std::shared_ptr<const Description> description_;  // never null
};

}  // namespace loam::client
