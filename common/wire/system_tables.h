// The system tables, which exist from the creation of a cluster. Their definitions are part of the protocol: the
// commit manager puts them into the catalog, and the client library reads and writes them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "common/base/ids.h"
#include "common/schema/schema.h"
#include "common/wire/catalog.h"

namespace loam::wire {

/// Id of the table loam.counters. Ids are never reused; 1 belonged to a system table of an earlier version.
inline constexpr TableId kCounterTableId{2};
/// The lowest id of a user's table.
inline constexpr TableId kFirstUserTableId{1024};

/// Field numbers of loam.counters, a non-transactional table with one record for each counter. The key is a hash of
/// the counter's name, which the client library computes.
struct CounterTableFields {
  static constexpr uint16_t kName = 0;  ///< text: name of the counter
  static constexpr uint16_t kNext = 1;  ///< int64: the first value that no client has drawn yet
};

/// The schema of loam.counters: (name text, next int64).
const Schema& counter_table_schema();

/// Field numbers of an index's table, whose records are the tree nodes of the index. The key is the number of the
/// tree node. The Bd-tree defines the layout of both blobs.
struct IndexNodeFields {
  static constexpr uint16_t kBase = 0;   ///< blob: the base of the tree node
  static constexpr uint16_t kDelta = 1;  ///< blob: the changes since the base was written; it can be replaced alone
};
/// The schema of every index's table: (base blob, delta blob).
const Schema& index_node_schema();

/// All system tables, as every catalog lists them.
const std::array<TableInfo, 1>& system_tables();

/// Whether a table name begins with kSystemPrefix. Clients can neither create nor drop such a table.
inline bool is_system_name(std::string_view name) { return name.starts_with(kSystemPrefix); }

}  // namespace loam::wire
