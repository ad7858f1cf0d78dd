// The undo record: what a transaction is about to write, kept in the table loam.transactions before it writes it, so
// that anybody can take it back after its client has died [Thesis 3.2; R1, R4, R5].
#pragma once

#include <utility>
#include <vector>

#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/index_change.h"
#include "common/wire/storage.h"
#include "common/wire/system_tables.h"

namespace loam::wire {

/// One undo record. Value type; key in the table: the transaction's id.
///
/// The row's fields are those of TransactionTableFields; the blob `body` is
///
///     u8 format (1) | varint tables | each: varint table id, varint keys, u64 key …
///                   | varint index changes | each: varint index, u64 record key, u8 flags, bytes key of the tree
///
/// Tables are ascending, and so are the keys of each: a record is named once. Flags: 1 take, 2 shared (IndexChange).
struct UndoRecord {
  SessionId session;
  UndoState state = UndoState::kPending;
  std::vector<RecordId> records;  ///< ascending, unique: everything that the transaction writes
  std::vector<IndexChange> index_changes;

  bool operator==(const UndoRecord&) const = default;

  /// The whole row. kInvalidArgument if it is over kMaxRowBytes: the transaction writes too many records.
  Result<Buffer> encode() const;
  /// kMalformed for bytes that are no such row.
  static Result<UndoRecord> decode(Bytes row);
};

}  // namespace loam::wire
