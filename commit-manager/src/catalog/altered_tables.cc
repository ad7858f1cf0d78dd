// Changes of tables that exist: their names and their added fields (decision 0027). catalog_store.cc has the rest of
// CatalogStore.
#include <algorithm>
#include <string>
#include <utility>

#include "commit-manager/src/catalog/catalog_store.h"
#include "common/base/assert.h"
#include "common/wire/system_tables.h"

namespace loam::commit {

Status CatalogStore::check(const wire::RenameTable& request) const {
  const auto refuse = [&](StatusCode code, const std::string& why) {
    return Status(code, "table " + request.name.substr(0, wire::kMaxTableNameBytes) + why);
  };
  if (wire::is_system_name(request.name)) {
    return refuse(StatusCode::kInvalidArgument, " is one of Loam's own tables and cannot be renamed");
  }
  const TableEntry* found = find(request.name);
  if (found == nullptr || found->pending) {
    return refuse(StatusCode::kNoSuchTable,
                  " does not exist; it may have been dropped or renamed: the list of the tables has the present names");
  }
  if (found->table.index) {
    return refuse(StatusCode::kWrongTableKind,
                  " is an index, and an index keeps its name: create another index with the new name, then drop this "
                  "one");
  }
  LOAM_RETURN_IF_ERROR(check_name(request.new_name));
  // A silent success would hide a mistake: no caller means to rename a table to its own name.
  if (request.new_name == request.name) {
    return refuse(StatusCode::kInvalidArgument, " has this name already: give another name");
  }
  if (const TableEntry* other = find(request.new_name); other != nullptr) {
    return refuse(StatusCode::kAlreadyExists, std::string(" cannot be renamed: ") +
                                                  (other->table.index ? "an index" : "a table") + " named " +
                                                  request.new_name + " exists; choose another name, or drop that " +
                                                  (other->table.index ? "index" : "table") + " first");
  }
  wire::TableInfo renamed = found->table;
  renamed.name = request.new_name;
  if (table_bytes_ - encoded_bytes(found->table) + encoded_bytes(renamed) > options_.max_catalog_bytes) {
    return refuse(StatusCode::kOverloaded, ": with the longer name, the definitions of all tables would exceed " +
                                               std::to_string(options_.max_catalog_bytes) + " bytes; drop some first");
  }
  return ok_status();
}

const wire::TableInfo& CatalogStore::rename(std::string_view name, const std::string& new_name) {
  const auto at = tables_.find(name);
  LOAM_CHECK(at != tables_.end() && !at->second.pending, "only an active table is renamed");
  TableEntry entry = std::move(at->second);
  tables_.erase(at);
  table_bytes_ -= encoded_bytes(entry.table);
  entry.table.name = new_name;
  table_bytes_ += encoded_bytes(entry.table);
  const auto [renamed, is_free] = tables_.emplace(new_name, std::move(entry));
  LOAM_CHECK(is_free, "the new name is free");
  changed();
  ++node_catalog_revision_;
  return renamed->second.table;
}

Result<Schema> CatalogStore::check(const TableEntry& found, const Field& field) const {
  const std::string where = "table " + found.table.name + ": field '" + field.name + "' ";
  if (!field.nullable) {
    return Status(StatusCode::kInvalidArgument,
                  where +
                      "must be nullable, because the records that exist have no value of it: add it with a '?', or "
                      "create another table and copy the records");
  }
  if (found.adding) {
    return Status(StatusCode::kOverloaded,
                  where + "has to wait: another field is being added to this table; try again later");
  }
  Result<Schema> schema = found.table.schema.add(field);
  if (!schema.ok()) {
    return Status(schema.code(), "table " + found.table.name + ": " + std::string(schema.status().message()));
  }
  wire::TableInfo extended = found.table;
  extended.schema = *schema;
  if (table_bytes_ - encoded_bytes(found.table) + encoded_bytes(extended) > options_.max_catalog_bytes) {
    return Status(StatusCode::kOverloaded, where + "has no room: the definitions of all tables would exceed " +
                                               std::to_string(options_.max_catalog_bytes) + " bytes; drop some first");
  }
  return schema;
}

const wire::TableInfo& CatalogStore::add_field(TableId table, Schema schema) {
  TableEntry& found = entry(table);
  LOAM_CHECK(!found.pending && !found.adding, "one field at a time is added to an active table");
  table_bytes_ -= encoded_bytes(found.table);
  found.table.schema = std::move(schema);
  table_bytes_ += encoded_bytes(found.table);
  found.adding = true;
  // version_ stays, because clients do not see the field yet.
  ++revision_;
  ++node_catalog_revision_;
  return found.table;
}

void CatalogStore::finish_field(TableId table) {
  TableEntry& found = entry(table);
  LOAM_CHECK(found.adding, "a field is being added");
  found.adding = false;
  changed();
}

CatalogStore::TableEntry& CatalogStore::entry(TableId table) {
  const auto at = std::ranges::find_if(tables_, [&](const auto& entry) { return entry.second.table.id == table; });
  LOAM_CHECK(at != tables_.end(), "only a known table is changed");
  return at->second;
}

std::vector<TableId> CatalogStore::tables_with_pending_field() const {
  std::vector<TableId> tables;
  for (const auto& [name, found] : tables_) {
    if (found.adding) tables.push_back(found.table.id);
  }
  std::sort(tables.begin(), tables.end());
  return tables;
}

void CatalogStore::hide_pending_fields(wire::Catalog& catalog, const std::vector<TableId>& tables) {
  if (tables.empty()) return;
  for (wire::TableInfo& table : catalog.tables) {
    if (!std::ranges::binary_search(tables, table.id)) continue;
    table.schema = table.schema.with_added(static_cast<uint8_t>(table.schema.added() - 1));
  }
}

}  // namespace loam::commit
