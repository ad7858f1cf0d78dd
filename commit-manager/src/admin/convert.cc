#include "commit-manager/src/admin/convert.h"

#include <utility>
#include <vector>

#include "common/wire/system_tables.h"

namespace loam::commit {

// The numbers are the same on both sides.
static_assert(admin::INT16 == static_cast<int>(FieldType::kInt16) && admin::BLOB == static_cast<int>(FieldType::kBlob));
static_assert(admin::TRANSACTIONAL == static_cast<int>(TableKind::kTransactional) &&
              admin::NON_TRANSACTIONAL == static_cast<int>(TableKind::kNonTransactional));

grpc::Status to_grpc(const Status& status) {
  const auto code = [&] {
    switch (status.code()) {
      case StatusCode::kOk:
        return grpc::StatusCode::OK;
      case StatusCode::kInvalidArgument:
        return grpc::StatusCode::INVALID_ARGUMENT;
      case StatusCode::kAlreadyExists:
        return grpc::StatusCode::ALREADY_EXISTS;
      case StatusCode::kNoSuchTable:
        return grpc::StatusCode::NOT_FOUND;
      case StatusCode::kOverloaded:
      case StatusCode::kNoSpace:
        return grpc::StatusCode::RESOURCE_EXHAUSTED;
      case StatusCode::kUnknownOutcome:
        return grpc::StatusCode::DEADLINE_EXCEEDED;
      case StatusCode::kUnavailable:
        return grpc::StatusCode::UNAVAILABLE;
      case StatusCode::kCancelled:
        return grpc::StatusCode::CANCELLED;
      default:
        return grpc::StatusCode::INTERNAL;
    }
  }();
  return {code, std::string(status.message())};
}

void fill(const wire::TableInfo& from, admin::Table& to) {
  to.set_id(from.id.value);
  to.set_name(from.name);
  to.set_kind(static_cast<admin::TableKind>(from.kind));
  to.set_system(wire::is_system_name(from.name));
  for (const Field& field : from.schema.fields()) {
    admin::Field& out = *to.add_fields();
    out.set_name(field.name);
    out.set_type(static_cast<admin::FieldType>(field.type));
    out.set_nullable(field.nullable);
  }
}

void fill(const NodeStatus& from, admin::Node& to) {
  to.set_id(from.info.id.value);
  to.set_incarnation(from.info.incarnation.value);
  to.set_address(from.info.address);
  to.set_admin_address(from.info.admin_address);
  to.set_live(from.live);
  to.set_shards(from.shards);
  to.set_capacity_bytes(from.capacity_bytes);
}

void fill(const ManagerStatistics& from, admin::StatisticsReply& to) {
  to.set_uptime_ns(from.uptime_ns);
  to.set_messages_out(from.messages_out);
  to.set_frames_in(from.frames_in);
  to.set_frames_out(from.frames_out);
  to.set_bytes_in(from.bytes_in);
  to.set_bytes_out(from.bytes_out);
  const Statistics& core = from.core;
  to.set_epoch(core.epoch);
  to.set_sessions(core.sessions);
  to.set_sessions_opened(core.sessions_opened);
  to.set_sessions_lost(core.sessions_lost);
  to.set_last_transaction(core.last_transaction);
  to.set_open(core.open);
  to.set_orphaned_open(core.orphaned_open);
  to.set_uncleared(core.uncleared);
  to.set_orphaned_uncleared(core.orphaned_uncleared);
  to.set_begins(core.begins);
  to.set_commits(core.commits);
  to.set_aborts(core.aborts);
  to.set_read_only_begins(core.read_only_begins);
  to.set_read_only_snapshots(core.read_only_snapshots);
  to.set_open_snapshots(core.open_snapshots);
  to.set_snapshot_bytes(core.snapshot_bytes);
  to.set_snapshot_memory_bytes(core.snapshot_memory_bytes);
  to.set_base(core.base);
  to.set_seen_by_all(core.seen_by_all);
  to.set_publications(core.publications);
  to.set_publication_bytes(core.publication_bytes);
  to.set_publication_exact(core.publication_exact);
  to.set_publications_skipped(core.publications_skipped);
  to.set_catalog_version(core.catalog_version);
  to.set_tables(core.tables);
  to.set_pending_changes(core.pending_changes);
  to.set_nodes_live(core.nodes_live);
  to.set_nodes_dead(core.nodes_dead);
  to.set_messages(core.messages);
  to.set_repeated(core.repeated);
  to.set_refused(core.refused);
  to.set_malformed(core.malformed);
}

Result<wire::CreateTable> from_proto(const admin::CreateTableRequest& request) {
  wire::CreateTable create;
  create.name = request.name();
  if (request.kind() != admin::TRANSACTIONAL && request.kind() != admin::NON_TRANSACTIONAL) {
    return Status(StatusCode::kInvalidArgument,
                  "table " + request.name() + ": say whether it is TRANSACTIONAL or NON_TRANSACTIONAL");
  }
  create.kind = static_cast<TableKind>(request.kind());
  std::vector<Field> fields;
  for (const admin::Field& field : request.fields()) {
    if (field.type() < admin::INT16 || field.type() > admin::BLOB) {
      return Status(StatusCode::kInvalidArgument, "field '" + field.name() + "' has no known type");
    }
    fields.push_back({field.name(), static_cast<FieldType>(field.type()), field.nullable()});
  }
  LOAM_ASSIGN_OR_RETURN(create.schema, Schema::make(std::move(fields)));
  return create;
}

}  // namespace loam::commit
