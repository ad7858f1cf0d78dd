// The functions of Client that create, find, rename and drop tables. index.cc has those for indexes.
#include <memory>
#include <string>
#include <utility>

#include <loam/client/client.h>

#include "client-lib/src/api/client_impl.h"
#include "client-lib/src/api/fiber_call.h"
#include "client-lib/src/core/catalog_cache.h"
#include "common/wire/manager.h"

namespace loam::client {
namespace {

Status no_table(std::string_view name) {
  return {StatusCode::kNoSuchTable, "there is no table " + std::string(name) +
                                        "; if it was renamed, the list of the tables has its present name"};
}

}  // namespace

Result<Table> Client::create_table(std::string_view name, TableKind kind, const Schema& schema) {
  LOAM_RETURN_IF_ERROR(check_table_name(name));
  if (schema.size() == 0) {
    return Status(StatusCode::kInvalidArgument, "table " + std::string(name) + " needs at least one field");
  }
  return in_fiber(impl_->engine(), [&]() -> Result<Table> {
    LOAM_ASSIGN_OR_RETURN(wire::CreateTableReply created, impl_->engine().change_catalog<wire::CreateTableReply>(
                                                              wire::CreateTable{std::string(name), kind, schema}));
    return make_table(created.table);
  });
}

Result<Table> Client::open_table(std::string_view name) {
  LOAM_RETURN_IF_ERROR(check_table_name(name));
  return in_fiber(impl_->engine(), [&]() -> Result<Table> {
    LOAM_RETURN_IF_ERROR(impl_->engine().refresh_catalog());
    if (impl_->engine().catalog().indexes()->by_name.contains(name)) {
      return Status(StatusCode::kWrongTableKind, std::string(name) + " is an index: use open_index()");
    }
    if (auto table = impl_->engine().catalog().find(name)) return *table;
    return no_table(name);
  });
}

Status Client::drop_table(std::string_view name) {
  LOAM_RETURN_IF_ERROR(check_table_name(name));
  return in_fiber(impl_->engine(), [&]() -> Status {
    LOAM_RETURN_IF_ERROR(impl_->engine().refresh_catalog());
    if (impl_->engine().catalog().indexes()->by_name.contains(name)) {
      return {StatusCode::kWrongTableKind, std::string(name) + " is an index: use drop_index()"};
    }
    const auto table = impl_->engine().catalog().find(name);
    if (!table) return no_table(name);
    // The message names the id, so that a repetition never drops a later table of the same name.
    const wire::DropTable drop{std::string(name), table->id()};
    return impl_->engine().change_catalog<wire::DropTableReply>(drop).status();
  });
}

Result<Table> Client::rename_table(std::string_view name, std::string_view new_name) {
  LOAM_RETURN_IF_ERROR(check_table_name(name));
  LOAM_RETURN_IF_ERROR(check_table_name(new_name));
  return in_fiber(impl_->engine(), [&]() -> Result<Table> {
    LOAM_RETURN_IF_ERROR(impl_->engine().refresh_catalog());
    if (impl_->engine().catalog().indexes()->by_name.contains(name)) {
      return Status(StatusCode::kWrongTableKind,
                    std::string(name) +
                        " is an index, and an index keeps its name: create another index with the new name, then drop "
                        "this one");
    }
    const auto table = impl_->engine().catalog().find(name);
    if (!table) return no_table(name);
    // The message names the id, so that a repetition never renames a later table of the same name.
    const wire::RenameTable rename{std::string(name), std::string(new_name), table->id()};
    LOAM_RETURN_IF_ERROR(impl_->engine().change_catalog<wire::RenameTableReply>(rename).status());
    Table::Description description = *table->description();
    description.name = new_name;
    return Table(std::make_shared<const Table::Description>(std::move(description)));
  });
}

Result<Table> Client::add_field(const Table& table, const Field& field) {
  LOAM_ASSIGN_OR_RETURN(Schema schema, Schema::make({{field.name, field.type, field.nullable}}));
  return in_fiber(impl_->engine(), [&]() -> Result<Table> {
    LOAM_RETURN_IF_ERROR(
        impl_->engine().change_catalog<wire::AddFieldReply>(wire::AddField{table.id(), std::move(schema)}).status());
    if (auto extended = impl_->engine().catalog().find(table.id()); extended && extended->schema().find(field.name)) {
      return *extended;
    }
    // The reply came, and the catalog did not: the connection was lost in between, or the table was dropped.
    LOAM_RETURN_IF_ERROR(impl_->engine().refresh_catalog());
    if (auto extended = impl_->engine().catalog().find(table.id())) return *extended;
    return no_table(table.name());
  });
}

Result<std::vector<Table>> Client::list_tables() {
  return in_fiber(impl_->engine(), [&]() -> Result<std::vector<Table>> {
    LOAM_RETURN_IF_ERROR(impl_->engine().refresh_catalog());
    return impl_->engine().catalog().tables();
  });
}

}  // namespace loam::client
