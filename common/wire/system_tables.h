// The table that exists from the cluster's first moment. Its definition is part of the protocol: the commit manager
// puts it into the catalog, the client library reads and writes it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "common/base/ids.h"
#include "common/schema/schema.h"
#include "common/wire/catalog.h"

namespace loam::wire {

/// Ids of the system's tables. Those of users start at kFirstUserTableId; no id is ever reused (1 was one of the
/// system's).
inline constexpr TableId kCounterTableId{2};
inline constexpr TableId kFirstUserTableId{1024};

/// loam.counters, non-transactional: one record a counter, key = hash of its name (the client library's choice).
/// Field numbers:
struct CounterTableFields {
  static constexpr uint16_t kName = 0;  ///< text
  static constexpr uint16_t kNext = 1;  ///< int64: first value that was not handed out yet
};

/// (name text, next int64)
const Schema& counter_table_schema();

/// Of the table that every index is, key = number of a node of its tree. Field numbers:
struct IndexNodeFields {
  static constexpr uint16_t kBase = 0;   ///< blob: what a node is; its layout is the Bd-tree's, and so is the delta's
  static constexpr uint16_t kDelta = 1;  ///< blob: small changes since, replaced alone
};
/// (base blob, delta blob)
const Schema& index_node_schema();

/// All of them, as every catalog lists them.
const std::array<TableInfo, 1>& system_tables();

/// Names under kSystemPrefix: clients can neither create nor drop such a table.
inline bool is_system_name(std::string_view name) { return name.starts_with(kSystemPrefix); }

}  // namespace loam::wire
