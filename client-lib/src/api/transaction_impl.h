// The inside of a transaction.
#pragma once

#include <memory>
#include <optional>

#include <loam/client/transaction.h>

#include "client-lib/src/api/client_impl.h"
#include "client-lib/src/core/write_buffer.h"
#include "client-lib/src/driver/engine.h"
#include "client-lib/src/index/index_changes.h"

namespace loam::client {

/// State of one transaction. What touches the network runs on the worker's thread; the write buffer belongs to whoever
/// uses the transaction, one at a time.
class Transaction::Impl {
 public:
  /// In a fiber.
  static Result<Transaction> begin(Client::Impl& client, const TransactionOptions& options);

  /// `lease`: of a read-only or upgradable one.
  Impl(Client::Impl& client, BeginKind kind, std::shared_ptr<Session> session, const BeginAnswer& begun,
       std::shared_ptr<SnapshotLease> lease)
      : engine_(client.engine()),
        kind_(kind),
        apart_(client.trees().of_transaction(begun.id)),
        trees_(apart_ ? *apart_ : client.trees()),
        session_(std::move(session)),
        id_(begun.id),
        snapshot_(begun.snapshot),
        catalog_version_(begun.catalog_version),
        seen_by_all_(begun.seen_by_all),
        durable_(begun.durable),
        indexes_(client.engine().catalog().indexes()),
        lease_(std::move(lease)),
        writes_(client.engine().options().max_transaction_bytes) {}
  ~Impl();

  Engine& engine() { return engine_; }
  TransactionId id() const { return id_; }
  bool read_only() const { return kind_ == BeginKind::kReadOnly; }
  bool finished() const { return finished_; }
  const std::shared_ptr<Session>& session() const { return session_; }
  const std::shared_ptr<const Snapshot>& snapshot() const { return snapshot_; }
  const std::shared_ptr<SnapshotLease>& lease() const { return lease_; }
  WriteBuffer& writes() { return writes_; }

  /// Reading is possible: not finished, and the table is a transactional one of an application.
  Status check_read(const Table& table) const;
  /// The same for writing.
  Status check_write(const Table& table) const;
  /// And of an index.
  Status check_read(const Index& index) const;
  IndexUser index_user() { return index_user(*indexes_); }
  IndexUser index_user(const IndexCatalog& indexes) {
    return {engine_, trees_, session_, snapshot_, indexes, seen_by_all_};
  }
  /// The record, if the own writes tell all of it that is asked for.
  std::optional<Result<Record>> own(const Table& table, Key key) const;
  /// The own write of some fields that what is read is to be shown with.
  std::optional<WriteBuffer::Write> own_fields(const Table& table, Key key) const;
  /// A record read, with the own write's fields in it.
  static Result<Record> with_own(const std::optional<WriteBuffer::Write>& own, Result<Record> read);
  Status write(wire::WriteKind kind, const Table& table, Key key, const Record* record);
  /// Before the first write: draws the id of an upgradable transaction.
  Status draw_id();

  /// In a fiber without limits: a commit that has begun is not left.
  Status commit();
  /// In a fiber with limits: commits in a fiber of its own, and leaves that when a limit ends.
  static Status commit_bounded(const std::shared_ptr<Impl>& transaction);
  /// On the worker's thread; never waits.
  void abort();
  /// Where commit() lost against another transaction of this client.
  const std::optional<wire::RecordId>& lost_at() const { return lost_at_; }
  static Impl& of(Transaction& transaction) { return *transaction.impl_; }

 private:
  /// The work of commit(), once a transaction.
  Status finish();
  /// Nothing was sent yet: the id is all there is to give back.
  void give_back();
  /// Gives the place among the open transactions back.
  void leave();

  Engine& engine_;
  const BeginKind kind_;
  const std::shared_ptr<Trees> apart_;
  Trees& trees_;
  const std::shared_ptr<Session> session_;  // that it began under
  TransactionId id_;
  std::shared_ptr<const Snapshot> snapshot_;
  const wire::CatalogVersion catalog_version_;         // at its begin
  const Version seen_by_all_;                          // at its begin
  const Version durable_;                              // at its begin
  const std::shared_ptr<const IndexCatalog> indexes_;  // at its begin
  std::shared_ptr<const IndexCatalog> write_indexes_;  // upgradable transactions: the indexes when the id was drawn
  std::shared_ptr<SnapshotLease> lease_;               // held by read-only and upgradable transactions
  WriteBuffer writes_;
  std::optional<wire::RecordId> lost_at_;
  bool finished_ = false;
};

}  // namespace loam::client
