// The two tables that exist from the cluster's first moment. Their definitions are part of the protocol: the commit
// manager puts them into the catalog, the client library reads and writes them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/base/ids.h"
#include "common/schema/schema.h"
#include "common/wire/catalog.h"

namespace loam::wire {

/// Ids of the system tables. Tables of users start at kFirstUserTableId; no id is ever reused.
inline constexpr TableId kTransactionTableId{1};
inline constexpr TableId kCounterTableId{2};
inline constexpr TableId kFirstUserTableId{1024};

/// State of an undo record: the field `state` of loam.transactions (R1, R2, R4).
enum class UndoState : int16_t { kPending = 1, kCommitted = 2, kAborted = 3 };

/// loam.transactions, non-transactional: undo records, key = transaction id. Field numbers:
struct TransactionTableFields {
  static constexpr uint16_t kSession = 0;  ///< int64: the client's session
  static constexpr uint16_t kState = 1;    ///< int16: an UndoState
  static constexpr uint16_t kBody = 2;     ///< blob: what to undo; its layout is the client library's
};

/// loam.counters, non-transactional: one record a counter, key = hash of its name (the client library's choice).
/// Field numbers:
struct CounterTableFields {
  static constexpr uint16_t kName = 0;  ///< text
  static constexpr uint16_t kNext = 1;  ///< int64: first value that was not handed out yet
};

/// (session int64, state int16, body blob)
const Schema& transaction_table_schema();
/// (name text, next int64)
const Schema& counter_table_schema();

/// Of the table that every index is, key = number of a node of its tree. Field numbers:
struct IndexNodeFields {
  static constexpr uint16_t kBase = 0;   ///< blob: what a node is; its layout is the Bd-tree's, and so is the delta's
  static constexpr uint16_t kDelta = 1;  ///< blob: small changes since, replaced alone
};
/// (base blob, delta blob)
const Schema& index_node_schema();

/// The field that WriteKind::kMark changes in a table's rows: `state` of loam.transactions. Other tables have none.
std::optional<uint16_t> mark_field(const TableInfo& table);

/// Both, as every catalog lists them.
const std::array<TableInfo, 2>& system_tables();

/// Names under kSystemPrefix: clients can neither create nor drop such a table.
inline bool is_system_name(std::string_view name) { return name.starts_with(kSystemPrefix); }

}  // namespace loam::wire
