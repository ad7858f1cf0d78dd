// The functions of Client and Transaction that take an Index. index_build.cc builds an index; index_lookup.cc reads by
// it.
#include <algorithm>
#include <exception>
#include <utility>

#include <loam/client/client.h>

#include "client-lib/src/api/client_impl.h"
#include "client-lib/src/api/fiber_call.h"
#include "client-lib/src/api/index_build.h"
#include "client-lib/src/api/transaction_impl.h"
#include "client-lib/src/index/index_lookup.h"
#include "common/wire/system_tables.h"

namespace loam::client {
namespace {

Status no_index(std::string_view name) { return {StatusCode::kNoSuchTable, "there is no index " + std::string(name)}; }

/// Finds an index in the current catalog. In a fiber.
Result<Index> find_index(Engine& engine, std::string_view name) {
  LOAM_RETURN_IF_ERROR(engine.refresh_catalog());
  const auto& indexes = engine.catalog().indexes()->by_name;
  const auto found = indexes.find(name);
  if (found == indexes.end()) return no_index(name);
  return found->second;
}

Result<wire::CreateTable> definition_of(std::string_view name, const Table& table,
                                        const std::vector<IndexField>& fields, bool unique) {
  wire::CreateTable create{std::string(name), TableKind::kNonTransactional, wire::index_node_schema(), {}};
  create.index.table = table.id();
  create.index.unique = unique;
  for (const IndexField& field : fields) {
    const auto number = table.schema().require(field.name);
    if (!number.ok()) {
      return Status(StatusCode::kInvalidArgument,
                    "index " + std::string(name) + ": " + std::string(number.status().message()));
    }
    create.index.parts.push_back({*number, field.descending});
  }
  return create;
}

}  // namespace

// ---- Client --------------------------------------------------------------------------------------------------------

Result<Index> Client::create_index(std::string_view name, const Table& table, const std::vector<IndexField>& fields,
                                   const IndexOptions& options) {
  LOAM_RETURN_IF_ERROR(check_table_name(name));
  LOAM_RETURN_IF_ERROR(check_access(table, TableKind::kTransactional));
  LOAM_RETURN_IF_ERROR(check_whole(table, "an index"));
  LOAM_ASSIGN_OR_RETURN(const wire::CreateTable create, definition_of(name, table, fields, options.unique));
  Engine& engine = impl_->engine();
  std::exception_ptr thrown;  // thrown by on_progress
  auto made = in_fiber(engine, [&]() -> Result<Index> {
    // The call creates the index, or finds the unfinished index of an earlier call and continues its build.
    LOAM_RETURN_IF_ERROR(engine.change_catalog<wire::CreateTableReply>(create).status());
    LOAM_ASSIGN_OR_RETURN(const Index index, find_index(engine, name));
    if (index.damaged()) return damaged_index_error(index.name());
    if (index.ready()) return index;
    IndexBuild build(*impl_, index, options);
    Status built = build.run();
    thrown = build.thrown();
    if (built.code() == StatusCode::kMalformed) {
      // The tree nodes of a dropped index are removed before every storage node has received the drop. So kMalformed
      // may mean that another client has dropped the index.
      const auto now = find_index(engine, name);
      const bool dropped = now.ok() ? now->id() != index.id() : now.code() == StatusCode::kNoSuchTable;
      if (dropped) built = Status(StatusCode::kNoSuchTable, "dropped");
    }
    if (built.code() == StatusCode::kAlreadyExists || built.code() == StatusCode::kInvalidArgument) {
      // The build can succeed only with other data, and the unfinished index would refuse writes: drop it. The drop
      // applies only to an unfinished index, because another client may have continued the build with other data.
      const auto dropped =
          engine.change_catalog<wire::DropTableReply>(wire::DropTable{std::string(name), index.id(), true});
      const auto now = find_index(engine, name);
      if (dropped.code() == StatusCode::kConflict && now.ok() && now->id() == index.id() && now->ready()) return now;
    }
    if (built.code() == StatusCode::kNoSuchTable) {
      return Status(StatusCode::kNoSuchTable, "index " + std::string(name) +
                                                  " was dropped during the build, by another client or because a "
                                                  "storage node lost its records: create it again");
    }
    if (!built.ok()) return Status(built.code(), "index " + std::string(name) + ": " + std::string(built.message()));
    return find_index(engine, name);
  });
  if (thrown) std::rethrow_exception(std::move(thrown));
  return made;
}

Result<Index> Client::open_index(std::string_view name) {
  LOAM_RETURN_IF_ERROR(check_table_name(name));
  return in_fiber(impl_->engine(), [&] { return find_index(impl_->engine(), name); });
}

Status Client::drop_index(std::string_view name) {
  LOAM_RETURN_IF_ERROR(check_table_name(name));
  Engine& engine = impl_->engine();
  return in_fiber(engine, [&]() -> Status {
    LOAM_ASSIGN_OR_RETURN(const Index index, find_index(engine, name));
    const wire::DropTable drop{std::string(name), index.id()};
    return engine.change_catalog<wire::DropTableReply>(drop).status();
  });
}

Result<std::vector<Index>> Client::list_indexes() {
  return in_fiber(impl_->engine(), [&]() -> Result<std::vector<Index>> {
    LOAM_RETURN_IF_ERROR(impl_->engine().refresh_catalog());
    std::vector<Index> indexes;
    for (const auto& [name, index] : impl_->engine().catalog().indexes()->by_name) indexes.push_back(index);
    return indexes;
  });
}

// ---- Transaction ---------------------------------------------------------------------------------------------------

Status Transaction::Impl::check_read(const Index& index) const {
  LOAM_RETURN_IF_ERROR(check_read(index.table()));
  const auto found = indexes_->by_name.find(index.name());
  if (found == indexes_->by_name.end() || found->second.id() != index.id()) return no_index(index.name());
  if (found->second.damaged()) return damaged_index_error(index.name());
  // The transaction's snapshot must be newer than the end of the build, or the index might miss records that the
  // snapshot sees (R29, index creation).
  if (found->second.ready() && found->second.ready_since() <= catalog_version_) return ok_status();
  return {StatusCode::kUnavailable,
          "index " + index.name() + " was being built when the transaction began; begin another one later"};
}

Result<Record> Transaction::get(const Index& index, const std::vector<Value>& values) {
  return std::move(get_many(index, std::span(&values, 1))[0]);
}

std::vector<Result<Record>> Transaction::get_many(const Index& index, std::span<const std::vector<Value>> values) {
  std::vector<Result<Record>> records;
  Status status = impl_->check_read(index);
  if (status.ok()) {
    status = in_fiber(impl_->engine(), [&] {
      records = index_find(impl_->index_context(), index, values, impl_->writes());
      return ok_status();
    });
  }
  if (!status.ok()) records.assign(values.size(), Result<Record>(status));
  return records;
}

Result<Record> Transaction::get_for_update(const Index& index, const std::vector<Value>& values) {
  LOAM_RETURN_IF_ERROR(impl_->check_write(index.table()));
  LOAM_ASSIGN_OR_RETURN(Record record, get(index, values));
  LOAM_RETURN_IF_ERROR(impl_->allocate_id());
  LOAM_RETURN_IF_ERROR(impl_->writes().touch(record.table(), record.key(), record.bytes()));
  return record;
}

Result<std::vector<Record>> Transaction::range(const Index& index, const IndexRange& range) {
  LOAM_RETURN_IF_ERROR(impl_->check_read(index));
  return in_fiber(impl_->engine(), [&] { return index_range(impl_->index_context(), index, range, impl_->writes()); });
}

Result<size_t> Transaction::update(const Index& index, const IndexRange& range,
                                   std::initializer_list<FieldValue> values) {
  LOAM_RETURN_IF_ERROR(impl_->check_write(index.table()));
  LOAM_ASSIGN_OR_RETURN(const Record record, Record::make(index.table(), values));
  LOAM_ASSIGN_OR_RETURN(const std::vector<Record> found, this->range(index, range));
  for (const Record& at : found) LOAM_RETURN_IF_ERROR(update(index.table(), at.key(), record));
  return found.size();
}

Result<size_t> Transaction::remove(const Index& index, const IndexRange& range) {
  LOAM_RETURN_IF_ERROR(impl_->check_write(index.table()));
  LOAM_ASSIGN_OR_RETURN(const std::vector<Record> found, this->range(index, range));
  for (const Record& at : found) LOAM_RETURN_IF_ERROR(remove(index.table(), at.key()));
  return found.size();
}

}  // namespace loam::client
