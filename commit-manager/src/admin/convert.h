// Conversions between the types of the core and those of Protocol Buffers.
#pragma once

#include <string_view>

#include <loam/commit/manager.h>

#include "common/base/status.h"
#include "common/wire/catalog.h"
#include "common/wire/manager.h"
#include "loam/commit/admin.pb.h"

namespace loam::commit {

/// Upper bound on the orphans that one StatisticsReply lists.
inline constexpr size_t kMaxListedOrphans = 1'000;

/// Upper bound on the transactions that one ListTransactionsReply lists.
inline constexpr size_t kMaxListedTransactions = 10'000;

/// Converts a table, without its indexes.
void fill(const wire::TableInfo& from, admin::Table& to);
/// Converts all tables, each with its indexes.
void fill(const wire::Catalog& from, bool with_system, admin::ListTablesReply& to);
/// Converts one table with its indexes. kNoSuchTable: the table does not exist, or the name is that of an index.
Status fill(const wire::Catalog& from, std::string_view name, admin::Table& to);
void fill(const NodeStatus& from, admin::Node& to);
/// `address` is that of the client; empty if it is not connected.
void fill(const SessionStatus& from, const std::string& address, admin::Session& to);
void fill(const TransactionStatus& from, const std::string& address, admin::Transaction& to);
void fill(const wire::ShardMap& from, admin::ShardMap& to);
void fill(const ManagerStatistics& from, admin::StatisticsReply& to);
/// Converts a request. kInvalidArgument: a field has no type, or Schema::make() refuses the schema.
Result<wire::CreateTable> from_proto(const admin::CreateTableRequest& request);

}  // namespace loam::commit
