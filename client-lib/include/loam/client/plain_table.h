// Access to non-transactional tables.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <loam/client/record.h>
#include <loam/client/table.h>

#include "common/base/ids.h"
#include "common/base/status.h"

namespace loam::client {

/// Reads and exact-version writes of one non-transactional table (R21). Each call is atomic on one record, visible at
/// once, and independent of any transaction.
///
/// A write names the version that it replaces and fails with kConflict if the record has another; no version number
/// ever comes back for a key, so a match means that nothing happened in between.
///
/// Copyable handle, any fibers of its client at once; not used after its Client. Every call suspends the fiber or
/// blocks the ordinary thread that makes it. A write whose answer does not come, or whose session ends, is
/// kUnknownOutcome: get() tells.
/// [Thesis 3.3]
class PlainTable {
 public:
  const Table& table() const { return table_; }

  /// The newest version; kNotFound if there is none. Record::version() is what update() and remove() expect.
  Result<Record> get(Key key);
  /// These fields of it: a record of the projection to them. Client::plain() of a projection that is kept saves making
  /// it each time.
  Result<Record> get(Key key, std::initializer_list<std::string_view> fields);
  /// Many at once, in the order of the keys; not one snapshot of them.
  std::vector<Result<Record>> get_many(std::span<const Key> keys);

  /// The new version's number. kAlreadyExists if the key has a record; kInvalidArgument as in Transaction.
  Result<Version> insert(Key key, const Record& record);
  Result<Version> insert(Key key, std::initializer_list<Value> values);
  /// kConflict if the record's version is not `expected`, also if it was removed. A record of a projection
  /// (Table::project) changes its fields, and keeps the others as they are in that version.
  Result<Version> update(Key key, Version expected, const Record& record);
  Result<Version> update(Key key, Version expected, std::initializer_list<Value> values);
  Result<Version> update(Key key, Version expected, std::initializer_list<FieldValue> values);
  Status remove(Key key, Version expected);

  class Impl;
  PlainTable(Table table, std::shared_ptr<Impl> impl);

 private:
  Table table_;
  std::shared_ptr<Impl> impl_;
};

}  // namespace loam::client
