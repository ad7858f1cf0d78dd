// Between the core's types and those of Protocol Buffers.
#pragma once

#include <string_view>

#include <loam/commit/manager.h>

#include "common/base/status.h"
#include "common/wire/catalog.h"
#include "common/wire/manager.h"
#include "loam/commit/admin.pb.h"

namespace loam::commit {

/// Orphans that one StatisticsReply lists.
inline constexpr size_t kMaxListedOrphans = 1'000;

/// Without indexes.
void fill(const wire::TableInfo& from, admin::Table& to);
/// All tables, each with its indexes.
void fill(const wire::Catalog& from, bool with_system, admin::ListTablesReply& to);
/// One table with its indexes. kNoSuchTable, also for an index's name.
Status fill(const wire::Catalog& from, std::string_view name, admin::Table& to);
void fill(const NodeStatus& from, admin::Node& to);
void fill(const SessionStatus& from, admin::Session& to);
void fill(const wire::ShardMap& from, admin::ShardMap& to);
void fill(const ManagerStatistics& from, admin::StatisticsReply& to);
/// kInvalidArgument: a field without a type, or what Schema::make() refuses.
Result<wire::CreateTable> from_proto(const admin::CreateTableRequest& request);

}  // namespace loam::commit
