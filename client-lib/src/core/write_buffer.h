// What a transaction will write, kept until commit.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <loam/client/record.h>
#include <loam/client/table.h>

#include "client-lib/src/core/describe.h"
#include "common/base/bytes.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/storage.h"

namespace loam::client {

/// The writes of one transaction, one per record, merged as they come:
///
///     before        | insert           | update  | remove
///     nothing       | insert           | update  | remove
///     insert        | kAlreadyExists   | insert  | nothing (never sent, so a duplicate key does not show)
///     update, touch | kAlreadyExists   | update  | remove
///     remove        | update           | kNotFound | kNotFound
///
/// A *touch* writes a record back as it was read (Transaction::get_for_update). Owned by the transaction; one thread.
/// Bounded by kMaxTransactionWrites and kMaxTransactionBytes (kInvalidArgument beyond).
class WriteBuffer {
 public:
  struct Write {
    wire::WriteKind kind{};
    Buffer row;  ///< empty for a remove
  };
  /// Own state of a record, for read-your-own-writes.
  enum class Own { kUnwritten, kPresent, kRemoved };

  /// `row` was validated against the table's schema.
  Status insert(const Table& table, Key key, Bytes row) { return put(wire::WriteKind::kInsert, table, key, row); }
  Status update(const Table& table, Key key, Bytes row) { return put(wire::WriteKind::kUpdate, table, key, row); }
  Status remove(const Table& table, Key key) { return put(wire::WriteKind::kRemove, table, key, {}); }
  /// Nothing if the record is written already.
  Status touch(const Table& table, Key key, Bytes row);

  /// With kPresent, `row` is the own row until the next change.
  Own find(TableId table, Key key, Bytes& row) const;
  bool writes_to(TableId table) const;

  bool empty() const { return writes_.empty(); }
  size_t size() const { return writes_.size(); }
  size_t bytes() const { return bytes_; }
  /// In ascending order of records.
  const std::map<wire::RecordId, Write>& writes() const { return writes_; }
  /// The handle that a written table was named by.
  const Table& table(TableId id) const { return tables_.at(id); }

 private:
  Status put(wire::WriteKind kind, const Table& table, Key key, Bytes row);
  Status check_room(const Table& table, Key key, size_t replaced, size_t added, bool fresh) const;

  std::map<wire::RecordId, Write> writes_;
  std::map<TableId, Table> tables_;
  size_t bytes_ = 0;
};

}  // namespace loam::client
