// Implementation of Transaction.
#pragma once

#include <memory>
#include <optional>

#include <loam/client/transaction.h>

#include "client-lib/src/api/client_impl.h"
#include "client-lib/src/core/write_buffer.h"
#include "client-lib/src/driver/engine.h"
#include "client-lib/src/index/index_changes.h"

namespace loam::client {

/// State of one transaction. Functions that use the network run on the worker thread. The write buffer belongs to the
/// fiber or thread that uses the transaction, one at a time.
class Transaction::Impl {
 public:
  /// Begins a transaction. In a fiber.
  static Result<Transaction> begin(Client::Impl& client, const TransactionOptions& options);

  /// `registered`: the snapshot of a read-only or upgradable transaction.
  Impl(Client::Impl& client, BeginKind kind, std::shared_ptr<Session> session, const BeginResult& begun,
       std::shared_ptr<RegisteredSnapshot> registered)
      : engine_(client.engine()),
        kind_(kind),
        private_trees_(client.trees().private_trees(begun.id)),
        trees_(private_trees_ ? *private_trees_ : client.trees()),
        session_(std::move(session)),
        id_(begun.id),
        snapshot_(begun.snapshot),
        catalog_version_(begun.catalog_version),
        seen_by_all_(begun.seen_by_all),
        durable_(begun.durable),
        indexes_(client.engine().catalog().indexes()),
        registered_snapshot_(std::move(registered)),
        writes_(client.engine().options().max_transaction_bytes) {}
  ~Impl();

  Engine& engine() { return engine_; }
  TransactionId id() const { return id_; }
  bool read_only() const { return kind_ == BeginKind::kReadOnly; }
  bool finished() const { return finished_; }
  const std::shared_ptr<Session>& session() const { return session_; }
  const std::shared_ptr<const Snapshot>& snapshot() const { return snapshot_; }
  const std::shared_ptr<RegisteredSnapshot>& registered_snapshot() const { return registered_snapshot_; }
  WriteBuffer& writes() { return writes_; }

  /// Checks that a read is possible: the transaction is not finished, and the table is a transactional table of an
  /// application.
  Status check_read(const Table& table) const;
  /// Checks that a write is possible.
  Status check_write(const Table& table) const;
  /// Checks that a read by the index is possible.
  Status check_read(const Index& index) const;
  IndexContext index_context() { return index_context(*indexes_); }
  IndexContext index_context(const IndexCatalog& indexes) {
    return {engine_, trees_, session_, snapshot_, indexes, seen_by_all_};
  }
  /// The record as the own write has it, if the write covers all fields of `table`.
  std::optional<Result<Record>> own(const Table& table, Key key) const;
  /// The own write that must be applied to the record that is read, if there is one.
  std::optional<WriteBuffer::Write> own_fields(const Table& table, Key key) const;
  /// Applies the own write to a record that was read.
  static Result<Record> with_own(const std::optional<WriteBuffer::Write>& own, Result<Record> read);
  Status write(wire::WriteKind kind, const Table& table, Key key, const Record* record);
  /// Draws the id of an upgradable transaction, before its first write.
  Status allocate_id();

  /// Commits, and waits for the result. In a fiber without limits.
  Status commit();
  /// Commits in a fiber of its own, and stops waiting for it when a limit of the calling fiber ends. In a fiber with
  /// limits.
  static Status commit_bounded(const std::shared_ptr<Impl>& transaction);
  /// Aborts. On the worker thread; never waits.
  void abort();
  /// The record at which commit() lost against another transaction of this client.
  const std::optional<wire::RecordId>& conflicting_record() const { return conflicting_record_; }
  static Impl& of(Transaction& transaction) { return *transaction.impl_; }

 private:
  /// Commits; called once for each transaction.
  Status finish();
  /// Aborts a transaction that has sent no write: gives its id back.
  void abort_unsent();
  /// Releases the registered snapshot and the admission.
  void release_admission();

  Engine& engine_;
  const BeginKind kind_;
  const std::shared_ptr<IndexTrees> private_trees_;
  IndexTrees& trees_;
  const std::shared_ptr<Session> session_;  // the session under which it began
  TransactionId id_;
  std::shared_ptr<const Snapshot> snapshot_;
  const wire::CatalogVersion catalog_version_;         // at its begin
  const Version seen_by_all_;                          // at its begin
  const Version durable_;                              // at its begin
  const std::shared_ptr<const IndexCatalog> indexes_;  // at its begin
  std::shared_ptr<const IndexCatalog> write_indexes_;  // upgradable transactions: the indexes when the id was drawn
  std::shared_ptr<RegisteredSnapshot> registered_snapshot_;  // held by read-only and upgradable transactions
  WriteBuffer writes_;
  std::optional<wire::RecordId> conflicting_record_;
  bool finished_ = false;
};

}  // namespace loam::client
