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

/// One transaction: reads of one snapshot, and buffered writes that become visible all at once or not at all.
///
/// **What is promised.** Strong snapshot isolation: a transaction sees everything that was acknowledged before it
/// began, and its own writes; of two concurrent ones that write the same record, at most one commits, the other gets
/// kConflict. Write skew is possible: two transactions may each read what the other writes. get_for_update() is the
/// tool against it, for records that exist.
///
/// **Indexes** of the tables that it writes are changed with it, by commit(): all or nothing, and nobody sees one
/// without the other. Of a unique index, a value that another record has is commit()'s kAlreadyExists, one that another
/// transaction gives or takes at the same time kConflict.
///
/// **When errors show.** Writes are checked at once against the schema and against the transaction's own writes, and
/// sent by commit(); so a conflict, a duplicate key (kAlreadyExists), a missing key (kNotFound) or a full node
/// (kNoSpace) is commit()'s answer, which names table and key. A failed commit() has undone everything.
///
/// Owner and life: whoever began it; destroyed before its Client. A transaction destroyed unfinished is aborted. Used
/// by one fiber or thread at a time; every call may suspend the fiber (or block the ordinary thread) that makes it.
///
/// **Size.** ClientOptions::max_transaction_bytes bounds what one transaction writes, in bytes; there is no limit on
/// the number of writes. [Thesis 3.2; protocol R1–R6]
class Transaction {
 public:
  ~Transaction();
  Transaction(Transaction&&) noexcept;
  Transaction& operator=(Transaction&&) noexcept;

  /// 0 for a read-only transaction, and for an upgradable one before its first write.
  TransactionId id() const;
  bool read_only() const;

  /// The record as this transaction sees it. kNotFound if there is none; kWrongTableKind for a non-transactional table;
  /// kSnapshotTooOld if the transaction has been open for too long; kFenced: the session that it began under has ended,
  /// run it again; kUnavailable, kTimeout. A node that does not answer is tried again until the request's time-out; one
  /// that has lost its records is named at once.
  Result<Record> get(const Table& table, Key key);
  /// These fields of it: a record of the projection to them. `get(projection, key)` with a Table::project() that is
  /// kept is the same, and saves making it each time; so it is with all that follows.
  Result<Record> get(const Table& table, Key key, std::initializer_list<std::string_view> fields);
  /// The same without waiting, and without a fiber. Own writes made after this call are not seen by it.
  Future<Record> get_async(const Table& table, Key key);
  /// Many at once, in one message to each storage node; answers in the order of the keys.
  std::vector<Result<Record>> get_many(const Table& table, std::span<const Key> keys);
  /// get(), and a promise that the record is not changed by another transaction that overlaps this one and commits:
  /// this transaction writes the record (of a projection, its fields) back as it was, unless it writes it anyway.
  Result<Record> get_for_update(const Table& table, Key key);

  // By index. What an index finds is what a get of each record would give: all that the snapshot holds and no more,
  // with the transaction's own writes. kUnavailable: the index was not ready when the transaction began, begin another;
  // kNoSuchTable: it did not exist then, or was dropped; kInvalidArgument: values of other types than the index's
  // fields, or a bound that they do not make. Otherwise as get().

  /// The record that has these values, all of a unique index and none of them NULL: kNotFound.
  Result<Record> get(const Index& index, const std::vector<Value>& values);
  /// Many at once; their round trips are made together.
  std::vector<Result<Record>> get_many(const Index& index, std::span<const std::vector<Value>> values);
  /// get(), with the promise of get_for_update().
  Result<Record> get_for_update(const Index& index, const std::vector<Value>& values);
  /// In the index's order; the limit bounds what is read, too.
  Result<std::vector<Record>> range(const Index& index, const IndexRange& range);
  /// Buffers the same update, or a remove, for each record of the range, and tells how many there are.
  Result<size_t> update(const Index& index, const IndexRange& range, std::initializer_list<FieldValue> values);
  Result<size_t> remove(const Index& index, const IndexRange& range);

  /// Buffered writes. kInvalidArgument names the table, key and field: wrong type, NULL in a field that has none, row
  /// over the limit, another table's record; also for a read-only or finished transaction, or beyond
  /// ClientOptions::max_transaction_bytes. kAlreadyExists and kNotFound where the transaction's own writes already
  /// tell. The first write of an upgradable transaction draws its id: kFenced, kUnavailable, kTimeout, kOverloaded; it
  /// may be repeated.
  Status insert(const Table& table, Key key, const Record& record);
  Status insert(const Table& table, Key key, std::initializer_list<Value> values);
  Status insert(const Table& table, Key key, std::span<const Value> values);
  /// Of a projection's record (Table::project) these fields change, and the others are those of the version that it
  /// replaces; atomically, and with the same conflicts as any write. A row that gets too large by that is commit()'s
  /// kInvalidArgument.
  Status update(const Table& table, Key key, const Record& record);
  Status update(const Table& table, Key key, std::initializer_list<Value> values);
  Status update(const Table& table, Key key, std::span<const Value> values);
  /// Of the named fields: {{"balance", Value::int64(5)}}.
  Status update(const Table& table, Key key, std::initializer_list<FieldValue> values);
  Status remove(const Table& table, Key key);

  /// A shared scan in this transaction's snapshot. The stream may outlive the transaction's calls but not the
  /// transaction. kInvalidArgument if this transaction has buffered writes to that table: a scan would not see them.
  Result<ScanStream> scan(const Table& table, const Query& query, const ScanOptions& options = {});

  /// Makes the writes durable in the cluster's memory and visible to all later transactions. Ok only after the commit
  /// manager has accepted it (R1). Afterwards the transaction is finished, whatever the answer:
  ///
  ///   * kConflict, kAlreadyExists, kNotFound, kNoSpace, kNoSuchTable, kOverloaded, kUnavailable, kTimeout: nothing
  ///     happened, all was taken back. kUnavailable also if a storage node has lost records since the transaction began
  ///     and an operator has accepted that (R9): run it again.
  ///   * kInvalidArgument: with the index entries that it changes the transaction is larger than
  ///     ClientOptions::max_transaction_bytes. Nothing happened.
  ///   * kFenced: the session ended, and the transaction is rolled back: run it again. Recovery undoes its writes;
  ///     until then, writes of the same records get kConflict.
  ///   * kUnknownOutcome: the session ended while the commit manager was asked to commit, and its answer could not be
  ///     found out within ClientOptions::commit_timeout_ns, or was forgotten (R4); or a CallScope of the caller ended
  ///     before the outcome was known, and the commit goes on. Look at the data before running it again.
  Status commit();
  /// Gives up. Ok also if it was finished already.
  Status abort();
  bool finished() const;

  class Impl;
  explicit Transaction(std::shared_ptr<Impl> impl);

 private:
  std::shared_ptr<Impl> impl_;  // a commit that the caller has left holds it, too
};

}  // namespace loam::client
