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

/// Reads and writes one non-transactional table by compare-and-swap. Each call is atomic on one record, visible at
/// once, and independent of any transaction (R21, exact-version writes).
///
/// A write names the version that it replaces, and fails with kConflict if the record has another version. A key
/// never gets the same version number twice, so a match proves that the record has not changed in between.
///
/// A handle that can be copied. Many fibers of its client may use it at once, but not after the Client is destroyed.
/// Every call suspends the calling fiber or blocks the calling thread. A write whose reply is lost, or whose session
/// ends, returns kUnknownOutcome; read the record to learn the outcome. [Thesis 3.3]
class PlainTable {
 public:
  /// The table that the handle reads and writes.
  const Table& table() const { return table_; }

  /// Reads the newest version of a record. update() and remove() expect its Record::version(). kNotFound: there is no
  /// such record.
  Result<Record> get(Key key);
  /// Reads some fields of a record. The result is a record of the projection to these fields. A handle of a
  /// projection, Client::plain(table.project(…)), has the same effect and does not make the projection each time.
  Result<Record> get(Key key, std::initializer_list<std::string_view> fields);
  /// Reads many records at once, in the order of the keys. The records are not from one snapshot.
  std::vector<Result<Record>> get_many(std::span<const Key> keys);

  /// Inserts a record and returns its version. kAlreadyExists: the key has a record; kInvalidArgument as for
  /// Transaction::insert(). The form with `values` takes one value for each field of the table.
  /// @{
  Result<Version> insert(Key key, const Record& record);
  Result<Version> insert(Key key, std::initializer_list<Value> values);
  /// @}
  /// Updates a record that has the version `expected`, and returns its new version. kConflict: the record has another
  /// version or was removed. A record of a projection (Table::project()) changes the projection's fields; the other
  /// fields keep their values; so does the form with named fields.
  /// @{
  Result<Version> update(Key key, Version expected, const Record& record);
  Result<Version> update(Key key, Version expected, std::initializer_list<Value> values);
  Result<Version> update(Key key, Version expected, std::initializer_list<FieldValue> values);
  /// @}
  /// Removes a record that has the version `expected`. kConflict as for update().
  Status remove(Key key, Version expected);

  class Impl;
  /// For the library; applications call Client::plain().
  PlainTable(Table table, std::shared_ptr<Impl> impl);

 private:
  Table table_;
  std::shared_ptr<Impl> impl_;
};

}  // namespace loam::client
