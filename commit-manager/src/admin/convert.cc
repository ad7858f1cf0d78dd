// The conversions that the handlers of admin_server.cc use. The messages are in
// commit-manager/proto/loam/commit/admin.proto.
#include "commit-manager/src/admin/convert.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/admin/statistics.h"
#include "common/wire/system_tables.h"

namespace loam::commit {

// The enumerators have the same numbers on both sides, so a cast converts them.
static_assert(admin::INT16 == static_cast<int>(FieldType::kInt16) &&
              admin::DECIMAL == static_cast<int>(FieldType::kDecimal));
static_assert(admin::TRANSACTIONAL == static_cast<int>(TableKind::kTransactional) &&
              admin::NON_TRANSACTIONAL == static_cast<int>(TableKind::kNonTransactional));
static_assert(admin::LIVE == static_cast<int>(wire::NodeState::kLive) &&
              admin::UNREACHABLE == static_cast<int>(wire::NodeState::kUnreachable) &&
              admin::LOST == static_cast<int>(wire::NodeState::kLost));

void fill(const wire::TableInfo& from, admin::Table& to) {
  to.set_id(from.id.value);
  to.set_name(from.name);
  to.set_kind(static_cast<admin::TableKind>(from.kind));
  to.set_system(wire::is_system_name(from.name));
  for (const Field& field : from.schema.fields()) {
    admin::Field& out = *to.add_fields();
    out.set_name(field.name);
    out.set_type(static_cast<admin::FieldType>(field.type.kind()));
    out.set_digits(field.type.digits());
    out.set_scale(field.type.scale());
    out.set_nullable(field.nullable);
  }
}

namespace {

/// Adds the indexes of a table. Each index is a table of its own in the catalog, and its definition names `table`.
void fill_indexes(const wire::Catalog& from, const wire::TableInfo& table, admin::Table& to) {
  for (const wire::TableInfo& info : from.tables) {
    if (info.index.table != table.id) continue;
    admin::Index& out = *to.add_indexes();
    out.set_id(info.id.value);
    out.set_name(info.name);
    out.set_unique(info.index.unique);
    out.set_ready(info.index.state() == wire::IndexState::kReady);
    out.set_damaged(info.index.state() == wire::IndexState::kDamaged);
    for (const wire::IndexPart& part : info.index.parts) {
      admin::IndexField& field = *out.add_fields();
      field.set_name(table.schema.field(part.field).name);
      field.set_descending(part.descending);
    }
  }
}

}  // namespace

void fill(const wire::Catalog& from, bool with_system, admin::ListTablesReply& to) {
  to.set_catalog_version(from.version);
  for (const wire::TableInfo& table : from.tables) {
    // An index appears in the reply with its table only.
    if (table.index || (wire::is_system_name(table.name) && !with_system)) continue;
    admin::Table& out = *to.add_tables();
    fill(table, out);
    fill_indexes(from, table, out);
  }
}

Status fill(const wire::Catalog& from, std::string_view name, admin::Table& to) {
  const auto table = std::ranges::find(from.tables, name, &wire::TableInfo::name);
  if (table == from.tables.end()) {
    return {StatusCode::kNoSuchTable, "table " + std::string(name) + " does not exist"};
  }
  if (table->index) {
    const auto of = std::ranges::find(from.tables, table->index.table, &wire::TableInfo::id);
    return {StatusCode::kNoSuchTable, std::string(name) + " is an index" +
                                          (of == from.tables.end() ? "" : " of table " + of->name) + ", not a table"};
  }
  fill(*table, to);
  fill_indexes(from, *table, to);
  return ok_status();
}

void fill(const NodeStatus& from, admin::Node& to) {
  to.set_id(from.info.id.value);
  to.set_incarnation(from.info.incarnation.value);
  to.set_address(from.info.address);
  to.set_admin_address(from.info.admin_address);
  to.set_live(from.live);
  to.set_shards(from.shards);
  to.set_capacity_bytes(from.capacity_bytes);
  to.set_state(static_cast<admin::NodeState>(from.info.state));
}

void fill(const SessionStatus& from, const std::string& address, admin::Session& to) {
  to.set_id(from.id.value);
  to.set_name(from.name);
  // The numbers of these enumerators differ. There is no default case, so that the compiler reports a missing one.
  to.set_state([&] {
    switch (from.state) {
      case SessionStatus::State::kOpen:
        return admin::OPEN;
      case SessionStatus::State::kFencing:
        return admin::FENCING;
      case SessionStatus::State::kRecovering:
        return admin::RECOVERING;
    }
    return admin::SESSION_STATE_UNSPECIFIED;
  }());
  to.set_connected(from.connected);
  to.set_recoverer(from.recoverer);
  to.set_silent_ns(from.silent_ns);
  to.set_open(from.open);
  to.set_end(from.end);
  to.set_address(address);
}

void fill(const TransactionStatus& from, const std::string& address, admin::Transaction& to) {
  to.set_id(from.id.value);
  to.set_session(from.session.value);
  to.set_client(from.client);
  to.set_kind([&] {
    switch (from.kind) {
      case TransactionStatus::Kind::kReadWrite:
        return admin::READ_WRITE;
      case TransactionStatus::Kind::kUpgradable:
        return admin::UPGRADABLE;
      case TransactionStatus::Kind::kReadOnly:
        return admin::READ_ONLY;
    }
    return admin::TRANSACTION_KIND_UNSPECIFIED;
  }());
  to.set_state([&] {
    switch (from.state) {
      case TransactionStatus::State::kOpen:
        return admin::ACTIVE;
      case TransactionStatus::State::kCommitting:
        return admin::COMMITTING;
      case TransactionStatus::State::kOrphaned:
        return admin::ORPHANED;
    }
    return admin::TRANSACTION_STATE_UNSPECIFIED;
  }());
  to.set_snapshot_age_ns(from.snapshot_age_ns);
  to.set_newer_ids(from.newer_ids);
  to.set_snapshot(from.snapshot.value);
  to.set_address(address);
}

void fill(const wire::ShardMap& from, admin::ShardMap& to) {
  to.set_version(from.version);
  for (const NodeId owner : from.owners) to.add_owners(owner.value);
}

namespace {

void fill(const RecoveryStatistics& from, admin::Recovery& to) {
  add_statistics(from, *to.mutable_statistics());
  for (const auto& [node, tasks] : from.waiting) {
    admin::WaitingNode& waiting = *to.add_waiting();
    waiting.set_node(node.value);
    waiting.set_tasks(tasks);
  }
}

}  // namespace

void fill(const ManagerStatistics& from, admin::StatisticsReply& to) {
  add_statistics(from.core, *to.mutable_statistics());
  add_statistics(from, *to.mutable_statistics());
  fill(from.recovery, *to.mutable_recovery());
  for (const RefusedNode& node : from.core.refused_nodes) {
    admin::RefusedNode& refused = *to.add_refused_nodes();
    refused.set_address(node.address);
    refused.set_admin_address(node.admin_address);
    refused.set_reason(node.reason);
  }
}

Result<wire::CreateTable> from_proto(const admin::CreateTableRequest& request) {
  // Protocol Buffers passes unknown enumerators on as numbers, so kind and types are checked before their casts.
  // CatalogStore::check() checks the rest, for clients and administrators alike.
  wire::CreateTable create;
  create.name = request.name();
  if (request.kind() != admin::TRANSACTIONAL && request.kind() != admin::NON_TRANSACTIONAL) {
    return Status(StatusCode::kInvalidArgument,
                  "table " + request.name() + ": choose the kind TRANSACTIONAL or NON_TRANSACTIONAL");
  }
  create.kind = static_cast<TableKind>(request.kind());
  std::vector<Field> fields;
  for (const admin::Field& field : request.fields()) {
    const bool decimal = field.type() == admin::DECIMAL;
    // A number that does not fit a byte is none that a decimal has, either.
    const auto byte = [](uint32_t number) { return static_cast<uint8_t>(std::min<uint32_t>(number, UINT8_MAX)); };
    const FieldType type = decimal ? FieldType::decimal(byte(field.digits()), byte(field.scale()))
                                   : FieldType(static_cast<FieldType::Kind>(field.type()));
    if (field.type() < admin::INT16 || field.type() > admin::DECIMAL || !is_field_type(type)) {
      return Status(
          StatusCode::kInvalidArgument,
          "field '" + field.name() +
              "' has a type that no table can store; decimals have 1 to 38 digits, and a scale from 0 to their digits");
    }
    if (!decimal && (field.digits() != 0 || field.scale() != 0)) {
      return Status(StatusCode::kInvalidArgument,
                    "field '" + field.name() + "' has digits or a scale, which only decimals have");
    }
    fields.push_back({field.name(), type, field.nullable()});
  }
  LOAM_ASSIGN_OR_RETURN(create.schema, Schema::make(std::move(fields)));
  return create;
}

}  // namespace loam::commit
