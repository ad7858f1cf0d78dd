// What a transaction will write, kept until commit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <loam/client/options.h>
#include <loam/client/record.h>
#include <loam/client/table.h>

#include "client-lib/src/core/describe.h"
#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/schema/row.h"
#include "common/wire/storage.h"

namespace loam::client {

/// The writes of one transaction, one per record, merged as they come:
///
///     before         | insert         | update    | update of some fields | remove
///     nothing        | insert         | update    | update of them        | remove
///     insert         | kAlreadyExists | insert    | insert                | nothing (never sent: no duplicate shows)
///     update, touch  | kAlreadyExists | update    | update                | remove
///     of some fields | kAlreadyExists | update    | of these and those    | remove
///     remove         | update         | kNotFound | kNotFound             | kNotFound
///
/// A *touch* writes a record, or the fields of it that were read, back as they were (Transaction::get_for_update).
/// Owned by the transaction; one thread. Bounded in bytes: rows, and kTransactionBytesPerRecord for each record
/// (kInvalidArgument beyond).
class WriteBuffer {
 public:
  /// `max_bytes`: ClientOptions::max_transaction_bytes.
  explicit WriteBuffer(size_t max_bytes = SIZE_MAX) : max_bytes_(max_bytes) {}

  struct Write {
    wire::WriteKind kind{};
    Buffer row;   ///< of `table`; empty for a remove
    Table table;  ///< a projection for kUpdateFields
  };

  /// `row` was validated against the table's schema. The update of a projection is one of some fields; an insert is of
  /// a whole row.
  Status insert(const Table& table, Key key, Bytes row) { return put(wire::WriteKind::kInsert, table, key, row); }
  Status update(const Table& table, Key key, Bytes row) { return put(wire::WriteKind::kUpdate, table, key, row); }
  Status remove(const Table& table, Key key) { return put(wire::WriteKind::kRemove, table, key, {}); }
  /// Nothing if the record is written already.
  Status touch(const Table& table, Key key, Bytes row);

  /// The own write of a record until the next change; null if there is none.
  const Write* find(TableId table, Key key) const;
  /// The write gives every field of `table` (the whole, or a projection) a value.
  static bool covers(const Write& own, const Table& table);
  /// The row of `table` after the write, which is no remove: fields that it does not have are those of `read`, a row of
  /// `table`; null if it covers them all. kInvalidArgument: over kMaxRowBytes.
  static Result<Buffer> own_row(const Write& own, const Table& table, const RowView* read);
  bool writes_to(TableId table) const;

  bool empty() const { return writes_.empty(); }
  size_t size() const { return writes_.size(); }
  /// What counts towards the limit.
  size_t bytes() const { return row_bytes_ + writes_.size() * kTransactionBytesPerRecord; }
  size_t max_bytes() const { return max_bytes_; }
  /// In ascending order of records.
  const std::map<wire::RecordId, Write>& writes() const { return writes_; }

 private:
  Status put(wire::WriteKind kind, const Table& table, Key key, Bytes row);
  /// `own` with the values that `row`, of a projection, has.
  static Result<Write> merge(const Write& own, const Table& table, Bytes row);
  /// `added` bytes come and `replaced` bytes go.
  Status check_room(const Table& table, Key key, size_t replaced, size_t added) const;

  size_t max_bytes_;
  std::map<wire::RecordId, Write> writes_;
  size_t row_bytes_ = 0;
};

}  // namespace loam::client
