#include "commit-manager/src/admin/convert.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/wire/system_tables.h"

namespace loam::commit {

// The numbers are the same on both sides.
static_assert(admin::INT16 == static_cast<int>(FieldType::kInt16) && admin::BLOB == static_cast<int>(FieldType::kBlob));
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
    out.set_type(static_cast<admin::FieldType>(field.type));
    out.set_nullable(field.nullable);
  }
}

namespace {

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
    return {StatusCode::kNoSuchTable,
            std::string(name) + " is no table but an index" + (of == from.tables.end() ? "" : " of table " + of->name)};
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

void fill(const SessionStatus& from, admin::Session& to) {
  to.set_id(from.id.value);
  to.set_name(from.name);
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
  to.set_uncleared(from.uncleared);
  to.set_end(from.end);
}

void fill(const wire::ShardMap& from, admin::ShardMap& to) {
  to.set_version(from.version);
  for (const NodeId owner : from.owners) to.add_owners(owner.value);
}

namespace {

void fill(const RecoveryStatistics& from, admin::Recovery& to) {
  to.set_starts(from.starts);
  to.set_committed(from.committed);
  to.set_aborted(from.aborted);
  to.set_cleared(from.cleared);
  to.set_reverted(from.reverted);
  to.set_repeated(from.repeated);
  to.set_unreadable(from.unreadable);
  for (const TransactionId id : from.unreadable_ids) to.add_unreadable_transactions(id.value);
  to.set_scans(from.scans);
  to.set_sweeps(from.sweeps);
  to.set_swept_nodes(from.swept_nodes);
  to.set_queued(from.queued);
  to.set_running(from.running);
  for (const auto& [node, transactions] : from.waiting) {
    admin::WaitingNode& waiting = *to.add_waiting();
    waiting.set_node(node.value);
    waiting.set_transactions(transactions);
  }
}

}  // namespace

void fill(const ManagerStatistics& from, admin::StatisticsReply& to) {
  to.set_uptime_ns(from.uptime_ns);
  to.set_messages_out(from.messages_out);
  to.set_frames_in(from.frames_in);
  to.set_frames_out(from.frames_out);
  to.set_bytes_in(from.bytes_in);
  to.set_bytes_out(from.bytes_out);
  fill(from.recovery, *to.mutable_recovery());
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
  to.set_sessions_expired(core.sessions_expired);
  to.set_sessions_aged(core.sessions_aged);
  to.set_sessions_resumed(core.sessions_resumed);
  to.set_sessions_fencing(core.sessions_fencing);
  to.set_sessions_recovering(core.sessions_recovering);
  to.set_fences(core.fences);
  to.set_recovered_committed(core.recovered_committed);
  to.set_recovered_aborted(core.recovered_aborted);
  to.set_outcomes_kept(core.outcomes_kept);
  to.set_outcomes_asked(core.outcomes_asked);
  to.set_restarting(core.restarting);
  to.set_durable_stores(core.durable_stores);
  to.set_durable_bytes(core.durable_bytes);
  to.set_nodes_unreachable(core.nodes_unreachable);
  to.set_nodes_lost(core.nodes_lost);
  to.set_node_leases_expired(core.node_leases_expired);
  to.set_sweep_due(core.sweep_due);
  to.set_cluster(wire::to_string(core.cluster));
  to.set_not_serving(core.not_serving);
  for (const RefusedNode& node : core.refused_nodes) {
    admin::RefusedNode& refused = *to.add_refused_nodes();
    refused.set_address(node.address);
    refused.set_admin_address(node.admin_address);
    refused.set_reason(node.reason);
  }
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
