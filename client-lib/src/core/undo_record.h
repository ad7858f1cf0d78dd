// The undo record: what a transaction is about to write, kept in the table loam.transactions before it writes it, so
// that anybody can take it back after its client has died [Thesis 3.2; R1, R4, R5].
#pragma once

#include <utility>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/storage.h"
#include "common/wire/system_tables.h"

namespace loam::client {

/// One undo record. Value type; key in the table: the transaction's id.
///
/// The row's fields are those of wire::TransactionTableFields; the blob `body` is
///
///     u8 format (1) | varint tables | each: varint table id, varint keys, u64 key … | varint index entries | each:
///     bytes
///
/// Tables are ascending, and so are the keys of each: a record is named once.
struct UndoRecord {
  SessionId session;
  wire::UndoState state = wire::UndoState::kPending;
  std::vector<wire::RecordId> records;  ///< ascending, unique: everything that the transaction writes
  std::vector<Buffer> index_entries;    ///< index entries that it adds or ends; their layout is the indexes' (R27)

  bool operator==(const UndoRecord&) const = default;

  /// The whole row. kInvalidArgument if it is over kMaxRowBytes: the transaction writes too many records.
  Result<Buffer> encode() const;
  /// kMalformed for bytes that are no such row.
  static Result<UndoRecord> decode(Bytes row);
};

}  // namespace loam::client
