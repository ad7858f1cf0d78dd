// WriteBuffer: the writes of a transaction until commit.
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

/// Buffers the writes of one transaction. The buffer has at most one write for each record, and merges a new write
/// with the buffered one:
///
///     buffered              | insert         | update    | update of some fields | remove
///     nothing               | insert         | update    | update of the fields  | remove
///     insert                | kAlreadyExists | insert    | insert                | nothing (1)
///     update, touch         | kAlreadyExists | update    | update                | remove
///     update of some fields | kAlreadyExists | update    | update of both sets   | remove
///     remove                | replace        | kNotFound | kNotFound             | kNotFound
///     replace               | kAlreadyExists | replace   | replace               | remove
///
/// A *replace* writes a record that the transaction has removed. It differs from an update if the table has fields that
/// the handle does not know: these become NULL. Writes through handles of different ages are merged as writes through
/// the newer one.
///
/// (1) The client sends nothing for this record, so a duplicate key stays unnoticed.
///
/// A *touch* writes a record, or the fields of it that were read, back unchanged (Transaction::get_for_update()).
///
/// Owner: the transaction. One thread. The size is bounded: the rows and kTransactionBytesPerRecord for each record;
/// a write beyond the bound gets kInvalidArgument.
class WriteBuffer {
 public:
  /// `max_bytes`: ClientOptions::max_transaction_bytes.
  explicit WriteBuffer(size_t max_bytes = SIZE_MAX) : max_bytes_(max_bytes) {}

  /// The buffered write of one record.
  struct Write {
    wire::WriteKind kind{};
    Buffer row;   ///< a row of `table`; empty for a remove
    Table table;  ///< a projection for kUpdateFields
  };

  // `row` has been validated against the schema of `table`. A projection makes update() an update of its fields; an
  // insert needs the whole table.
  Status insert(const Table& table, Key key, Bytes row) { return put(wire::WriteKind::kInsert, table, key, row); }
  Status update(const Table& table, Key key, Bytes row) { return put(wire::WriteKind::kUpdate, table, key, row); }
  Status remove(const Table& table, Key key) { return put(wire::WriteKind::kRemove, table, key, {}); }
  /// Buffers a touch, unless the record has a buffered write already.
  Status touch(const Table& table, Key key, Bytes row);

  /// The buffered write of a record, or null. Valid until the next change of the buffer.
  const Write* find(TableId table, Key key) const;
  /// True if the write has a value for every field of `table`, which may be a projection.
  static bool covers(const Write& own, const Table& table);
  /// Returns the row of `table` as it is after the write, which is not a remove. Fields without a new value come from
  /// `read`, a row of `table`; null if the write covers all fields. kInvalidArgument: the row is over kMaxRowBytes.
  static Result<Buffer> own_row(const Write& own, const Table& table, const RowView* read);
  /// True if a record of the table has a buffered write.
  bool writes_to(TableId table) const;
  /// The keys of the records of a table that have buffered writes, ascending.
  std::vector<Key> keys_of(TableId table) const;

  bool empty() const { return writes_.empty(); }
  size_t size() const { return writes_.size(); }
  /// The size that counts towards the limit.
  size_t bytes() const { return row_bytes_ + writes_.size() * kTransactionBytesPerRecord; }
  size_t max_bytes() const { return max_bytes_; }
  /// All writes, in ascending order of their records.
  const std::map<wire::RecordId, Write>& writes() const { return writes_; }

 private:
  Status put(wire::WriteKind kind, const Table& table, Key key, Bytes row);
  /// Merges an update of the fields of `row`, a row of the projection `table`, into the buffered write `own`.
  static Result<Write> merge(const Write& own, const Table& table, Bytes row);
  /// Checks the bound for a change that adds `added` bytes and drops `replaced` bytes.
  Status check_room(const Table& table, Key key, size_t replaced, size_t added) const;

  size_t max_bytes_;
  std::map<wire::RecordId, Write> writes_;
  size_t row_bytes_ = 0;
};

}  // namespace loam::client
