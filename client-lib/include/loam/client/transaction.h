// Transactions under snapshot isolation.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <loam/client/future.h>
#include <loam/client/index.h>
#include <loam/client/options.h>
#include <loam/client/record.h>
#include <loam/client/scan.h>
#include <loam/client/table.h>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/schema/query.h"

namespace loam::client {

/// A transaction under snapshot isolation. It reads one snapshot and buffers its writes; commit() makes the writes
/// visible all at once, or none of them.
///
/// **Isolation.** The level is strong snapshot isolation: a transaction sees everything that was acknowledged before
/// it began, and its own writes. If two concurrent transactions write the same record, at most one of them commits,
/// and the other one gets kConflict. Write skew is possible: two transactions may each write a record that the other
/// one has only read. get_for_update() prevents it for records that exist.
///
/// **Indexes.** commit() changes the indexes of the written tables together with the records, all or nothing; no
/// reader sees one without the other. For a unique index, commit() returns kAlreadyExists if another record has the
/// value, and kConflict if a concurrent transaction gives the value to a record or takes it away.
///
/// **When errors show.** A write is checked at once against the schema and against the transaction's own writes.
/// commit() sends the writes. So a conflict, a duplicate key (kAlreadyExists), a missing key (kNotFound) and a full
/// storage node (kNoSpace) are errors of commit(); the message names table and key. After such an error no write of
/// the transaction remains.
///
/// **Owner and life.** The caller that began the transaction owns it, and destroys it before its Client. The
/// destructor aborts an unfinished transaction. One fiber or thread uses it at a time. Every call may suspend the
/// calling fiber or block the calling thread.
///
/// **Size.** ClientOptions::max_transaction_bytes bounds the bytes that one transaction writes; the number of writes
/// has no limit. [Thesis 3.2; rules R1 to R6 of docs/protocol.md]
class Transaction {
 public:
  /// Aborts the transaction if it is not finished.
  ~Transaction();
  /// The source may only be destroyed or assigned to. An assignment aborts an unfinished transaction of the target.
  /// @{
  Transaction(Transaction&&) noexcept;
  Transaction& operator=(Transaction&&) noexcept;
  /// @}

  /// The transaction's id, which is the version of the records that it writes. 0 for a read-only transaction, and for
  /// an upgradable one before its first write.
  TransactionId id() const;
  /// True if the transaction began with TransactionOptions::read_only.
  bool read_only() const;

  /// Reads a record as this transaction sees it. kNotFound: there is no such record; kWrongTableKind: the table is
  /// non-transactional; kSnapshotTooOld: the transaction has been open for too long; kFenced: the transaction's
  /// session has ended, run it again; kInvalidArgument: the transaction is finished; kUnavailable, kTimeout. The call
  /// asks a storage node that does not answer again until the request's time-out. If the storage node has lost its
  /// records, the call fails at once with kUnavailable and names the node.
  Result<Record> get(const Table& table, Key key);
  /// Reads some fields of a record. The result is a record of the projection to these fields. `get(projection, key)`
  /// with a projection that the caller keeps (Table::project()) has the same effect and does not make the projection
  /// each time; this holds for all calls below that take field names.
  Result<Record> get(const Table& table, Key key, std::initializer_list<std::string_view> fields);
  /// Starts get() and returns a future of the record, without waiting and without a fiber. The read does not see own
  /// writes that are made after this call.
  Future<Record> get_async(const Table& table, Key key);
  /// Reads many records with one message to each storage node. Returns the results in the order of the keys.
  std::vector<Result<Record>> get_many(const Table& table, std::span<const Key> keys);
  /// Reads a record and protects it from concurrent changes, like SELECT … FOR UPDATE, but without a lock: if a
  /// concurrent transaction changes the record and commits, this transaction's commit() gets kConflict. For this the
  /// transaction writes the record back unchanged, unless it writes it anyway. With a projection it writes the
  /// projection's fields back.
  Result<Record> get_for_update(const Table& table, Key key);

  // Access by index. An index finds exactly the records of the snapshot, changed by the transaction's own writes, as
  // a get() of each record would. kUnavailable: the index was not ready when the transaction began, begin another
  // one; kNoSuchTable: the index did not exist then, or was dropped; kInvalidArgument: the values have other types
  // than the index's fields, or the bounds are not valid. The other errors are those of get().

  /// Reads the record that has these values in a unique index. `values` has one value for each field of the index,
  /// none of them NULL. kNotFound: no record has them.
  Result<Record> get(const Index& index, const std::vector<Value>& values);
  /// Reads many records by a unique index, and makes their round trips together. Returns the results in the order of
  /// `values`.
  std::vector<Result<Record>> get_many(const Index& index, std::span<const std::vector<Value>> values);
  /// Reads a record by a unique index and protects it from concurrent changes, as get_for_update() by key does.
  Result<Record> get_for_update(const Index& index, const std::vector<Value>& values);
  /// Reads the records of a range, in the order of the index. IndexRange::limit bounds the records that are read,
  /// too.
  Result<std::vector<Record>> range(const Index& index, const IndexRange& range);
  /// Buffers the same update of the named fields for each record of the range. Returns the number of records.
  Result<size_t> update(const Index& index, const IndexRange& range, std::initializer_list<FieldValue> values);
  /// Buffers the removal of each record of the range. Returns the number of records.
  Result<size_t> remove(const Index& index, const IndexRange& range);

  // Buffered writes. kInvalidArgument names the table, key and field: a wrong type, NULL in a field that is not
  // nullable, a row over the limit, a record of another table; also a read-only or finished transaction, or more than
  // ClientOptions::max_transaction_bytes. kAlreadyExists and kNotFound if the transaction's own writes already decide
  // it. The first write of an upgradable transaction draws the id, and may fail with kFenced, kUnavailable, kTimeout
  // or kOverloaded; it may be repeated.

  /// Buffers the insert of a record that does not exist yet; otherwise commit() returns kAlreadyExists. The forms
  /// with `values` take one value for each field of the table.
  /// @{
  Status insert(const Table& table, Key key, const Record& record);
  Status insert(const Table& table, Key key, std::initializer_list<Value> values);
  Status insert(const Table& table, Key key, std::span<const Value> values);
  /// @}
  /// Buffers the update of an existing record; without one commit() returns kNotFound. A record of a projection
  /// (Table::project()) changes the projection's fields, and the other fields keep the values of the version that the
  /// update replaces; atomically, and with the same conflicts as any write. If the row gets too large by that,
  /// commit() returns kInvalidArgument.
  /// @{
  Status update(const Table& table, Key key, const Record& record);
  Status update(const Table& table, Key key, std::initializer_list<Value> values);
  Status update(const Table& table, Key key, std::span<const Value> values);
  /// @}
  /// Buffers an update of the named fields: {{"balance", Value::int64(5)}}.
  Status update(const Table& table, Key key, std::initializer_list<FieldValue> values);
  /// Buffers the removal of an existing record; without one commit() returns kNotFound.
  Status remove(const Table& table, Key key);

  /// Starts a scan of a table in this transaction's snapshot, with the writes that this transaction has buffered so
  /// far; their _version is 0. The stream may outlive the transaction's calls but not the transaction.
  /// kInvalidArgument: this transaction has written more than 65,536 records of the table. Errors of get_many(), if it
  /// has written some fields of a record only.
  Result<ScanStream> scan(const Table& table, const Query& query, const ScanOptions& options = {});

  /// Commits: stores the writes in the cluster's memory and makes them visible to all later transactions. Returns ok
  /// only after the commit manager has accepted the commit (R1, commit order). The transaction is finished after
  /// every result. The errors mean:
  ///
  ///   * kConflict, kAlreadyExists, kNotFound, kNoSpace, kNoSuchTable, kOverloaded, kUnavailable, kTimeout: the
  ///     transaction has no effect; its writes are undone. kUnavailable also occurs if a storage node has lost
  ///     records since the transaction began and an operator has accepted the loss (R9, leases of storage nodes): run
  ///     it again.
  ///   * kInvalidArgument: together with the index entries that it changes, the transaction is larger than
  ///     ClientOptions::max_transaction_bytes, or a partial update makes a row too large. The transaction has no
  ///     effect.
  ///   * kFenced: the session ended, and the transaction is rolled back: run it again. Recovery undoes its writes;
  ///     until then, writes of the same records get kConflict.
  ///   * kUnknownOutcome: the session ended during the commit, and the client could not learn the outcome within
  ///     ClientOptions::commit_timeout_ns, or the commit log has forgotten it (R4, outcomes from the commit log); or
  ///     a CallScope of the caller ended before the outcome was known, and the commit goes on. Look at the data
  ///     before running it again.
  Status commit();
  /// Aborts the transaction: drops its buffered writes. Returns ok also if the transaction was finished already.
  Status abort();
  /// True after commit() or abort().
  bool finished() const;

  class Impl;
  /// For the library.
  explicit Transaction(std::shared_ptr<Impl> impl);

 private:
  std::shared_ptr<Impl> impl_;  // a commit that goes on after its caller's CallScope has ended holds it, too
};

}  // namespace loam::client
