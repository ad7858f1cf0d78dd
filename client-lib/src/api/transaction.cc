// Transactions: local checks, the reads, the write buffer, and the end of a transaction. commit_driver.cc sends a
// commit; index.cc has the functions that take an Index.
#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <utility>

#include <loam/client/transaction.h>

#include "client-lib/src/api/fiber_call.h"
#include "client-lib/src/api/scan_impl.h"
#include "client-lib/src/api/transaction_impl.h"
#include "client-lib/src/core/describe.h"
#include "client-lib/src/driver/cancel_scope_status.h"
#include "client-lib/src/driver/commit_driver.h"
#include "client-lib/src/driver/point_reads.h"
#include "common/fiber/cancel_scope.h"
#include "common/fiber/wait.h"

namespace loam::client {
namespace {

/// A call that has its result already.
class ReadyCall final : public PendingCall {
 public:
  bool ready() const override { return true; }
  Status wait() override { return ok_status(); }
  bool wait_for(uint64_t) override { return true; }
  void on_ready(std::function<void()> callback) override { call_logged(callback, "on_ready"); }
  void cancel() override {}
};

Future<Record> ready_record(Result<Record> record) {
  return {std::make_shared<ReadyCall>(), std::make_shared<Future<Record>::SharedResult>(std::move(record))};
}

/// The asynchronous read of one record. It needs no fiber until a caller waits for it.
class RecordCall final : public PendingCall {
 public:
  /// `own`: the transaction's own write of some fields, which is applied to the record that is read.
  RecordCall(Engine& engine, std::shared_ptr<PointReads> reads, std::optional<WriteBuffer::Write> own,
             std::shared_ptr<Future<Record>::SharedResult> slot)
      : engine_(engine), reads_(std::move(reads)), own_(std::move(own)), slot_(std::move(slot)) {}
  ~RecordCall() override {
    // The reads belong to the worker thread, which must destroy them.
    engine_.worker().call_without_fiber([this] { reads_.reset(); });
  }

  bool ready() const override {
    bool done = false;
    engine_.worker().call_without_fiber([&] { done = reads_->done(); });
    return done;
  }
  Status wait() override {
    if (slot_->has_value()) return ok_status();
    return in_fiber(engine_, [&]() -> Status {
      // A wait with limits lets a background fiber make further attempts, so that the end of the wait does not end
      // the read.
      if (watcher_ == nullptr && !reads_->await_answers()) return cancel_scope_status();
      if (watcher_ == nullptr && !reads_->done() && fiber::CancelScope::any()) watch({});
      if (watcher_ != nullptr && !watcher_->wait_until(fiber::kForever)) return cancel_scope_status();
      reads_->wait();
      slot_->emplace(Transaction::Impl::with_own(own_, reads_->take_result(0)));
      return ok_status();
    });
  }
  bool wait_for(uint64_t timeout_ns) override {
    const CallScope scope({.timeout_ns = std::max<uint64_t>(timeout_ns, 1)});
    return wait().ok();
  }
  void on_ready(std::function<void()> callback) override {
    engine_.worker().call_without_fiber([&] { watch(callback); });
  }
  void cancel() override {
    engine_.worker().call_without_fiber([&] { reads_->cancel({StatusCode::kCancelled, "the read was cancelled"}); });
  }

 private:
  struct NotifyOnExit {
    fiber::Event& event;
    ~NotifyOnExit() { event.notify(); }
  };
  static void run_callback(const std::function<void()>& callback) {
    if (callback) call_logged(callback, "on_ready");
  }
  void watch(const std::function<void()>& callback) {
    if (reads_->done()) return run_callback(callback);
    watcher_ = std::make_shared<fiber::Event>();
    const auto wait = [reads = reads_, ended = watcher_, callback] {
      const NotifyOnExit end{*ended};
      reads->wait();
      run_callback(callback);
    };
    engine_.spawn_background(wait, [&] {  // no fiber: wait() makes the attempts itself
      watcher_.reset();
      run_callback(callback);
    });
  }

  Engine& engine_;
  std::shared_ptr<PointReads> reads_;
  const std::optional<WriteBuffer::Write> own_;
  const std::shared_ptr<Future<Record>::SharedResult> slot_;
  std::shared_ptr<fiber::Event> watcher_;  // notified when the fiber that on_ready() started has all results
};

}  // namespace

// ---- Transaction::Impl ---------------------------------------------------------------------------------------------

Result<Transaction> Transaction::Impl::begin(Client::Impl& client, const TransactionOptions& options) {
  if (options.read_only && options.upgradable) {
    return Status(StatusCode::kInvalidArgument, "a transaction is read-only or upgradable, not both");
  }
  Engine& engine = client.engine();
  engine.counters().round_trips.add(1);
  // A read-only transaction has a registered snapshot, and neither an id nor admission.
  if (options.read_only) {
    LOAM_ASSIGN_OR_RETURN(std::shared_ptr<RegisteredSnapshot> registered, engine.register_snapshot());
    engine.counters().read_only.add(1);
    return Transaction(std::make_shared<Impl>(client, BeginKind::kReadOnly, registered->session(),
                                              registered->begin_result(), registered));
  }
  const BeginKind kind = options.upgradable ? BeginKind::kUpgradable : BeginKind::kReadWrite;
  LOAM_ASSIGN_OR_RETURN(Engine::OpenTransaction begun, engine.begin(kind));
  engine.counters().begun.add(1);
  std::shared_ptr<RegisteredSnapshot> registered;
  if (options.upgradable)
    registered = std::make_shared<RegisteredSnapshot>(engine.worker(), begun.session, begun.answer);
  return Transaction(
      std::make_shared<Impl>(client, kind, std::move(begun.session), begun.answer, std::move(registered)));
}

Transaction::Impl::~Impl() {
  // The abort needs no fiber, so it never fails. A transaction that stayed open would end the whole session when it
  // reaches the maximum age.
  if (!finished_) engine_.worker().call_without_fiber([this] { abort(); });
}

Status Transaction::Impl::check_read(const Table& table) const {
  if (finished_) return {StatusCode::kInvalidArgument, "the transaction is finished; begin a new one"};
  return check_access(table, TableKind::kTransactional);
}

Status Transaction::Impl::check_write(const Table& table) const {
  LOAM_RETURN_IF_ERROR(check_read(table));
  if (!read_only()) return ok_status();
  return {StatusCode::kInvalidArgument, "table " + table.name() + ": a read-only transaction cannot write"};
}

std::optional<Result<Record>> Transaction::Impl::own(const Table& table, Key key) const {
  const WriteBuffer::Write* write = writes_.find(table.id(), key);
  if (write == nullptr) return std::nullopt;
  if (write->kind == wire::WriteKind::kRemove) {
    return Status(StatusCode::kNotFound, describe(table, key) + " was removed by this transaction");
  }
  // The other fields must be read; with_own() then applies the write to them.
  if (!WriteBuffer::covers(*write, table)) return std::nullopt;
  auto row = WriteBuffer::own_row(*write, table, nullptr);
  if (!row.ok()) return row.status();
  return Record(table, key, Version(), std::move(row).value());
}

std::optional<WriteBuffer::Write> Transaction::Impl::own_fields(const Table& table, Key key) const {
  const WriteBuffer::Write* write = writes_.find(table.id(), key);
  return write == nullptr ? std::nullopt : std::optional(*write);
}

Result<Record> Transaction::Impl::with_own(const std::optional<WriteBuffer::Write>& own, Result<Record> read) {
  if (!own || !read.ok()) return read;
  const RowView view = read->view();
  auto row = WriteBuffer::own_row(*own, read->table(), &view);
  if (!row.ok()) {
    return Status(row.code(), describe(read->table(), read->key()) + ", " + std::string(row.status().message()));
  }
  return Record(read->table(), read->key(), Version(), std::move(row).value());
}

Status Transaction::Impl::allocate_id() {
  if (id_ != TransactionId()) return ok_status();
  return in_fiber(engine_, [&]() -> Status {
    engine_.counters().round_trips.add(1);
    LOAM_ASSIGN_OR_RETURN(const BeginResult drawn,
                          engine_.upgrade(*session_, registered_snapshot_->begin_result().snapshot_number));
    // The reply also has a snapshot, which is not used. With it a write could replace a version that the transaction
    // has not seen (R12, ids at begin).
    id_ = drawn.id;
    if (private_trees_ != nullptr) private_trees_->bind_transaction(id_, private_trees_);
    // The transaction maintains every index that existed when its id was given (R29, index creation).
    write_indexes_ = engine_.catalog().indexes();
    return ok_status();
  });
}

Status Transaction::Impl::write(wire::WriteKind kind, const Table& table, Key key, const Record* record) {
  LOAM_RETURN_IF_ERROR(check_write(table));
  // An upgradable transaction draws its id before its first write is buffered, so that a failure leaves the buffer as
  // it is and the write may be repeated.
  LOAM_RETURN_IF_ERROR(allocate_id());
  if (record != nullptr && record->table().id() != table.id()) {
    return {StatusCode::kInvalidArgument,
            describe(table, key) + ": the record given belongs to table " + record->table().name()};
  }
  switch (kind) {
    case wire::WriteKind::kInsert:
      LOAM_RETURN_IF_ERROR(check_whole(record->table(), "an insert"));
      return writes_.insert(record->table(), key, record->bytes());
    case wire::WriteKind::kUpdate:
      return writes_.update(record->table(), key, record->bytes());
    default:
      return writes_.remove(table.whole(), key);
  }
}

Status Transaction::Impl::commit() {
  if (std::exchange(finished_, true)) {
    return {StatusCode::kInvalidArgument, "the transaction is finished; begin a new one"};
  }
  return finish();
}

Status Transaction::Impl::finish() {
  // Case 1: a read-only transaction has no id, so there is nothing to complete.
  if (read_only()) {
    registered_snapshot_.reset();
    return ok_status();
  }
  if (writes_.empty()) {
    // Case 2: there is no write to make visible. The client gives the id back, and the commit log gets no record.
    if (id_ != TransactionId()) session_->manager().release_id(id_);
    engine_.counters().committed.add(1);
    release_admission();
    return ok_status();
  }
  // Case 3, phase 1: conflicts within this client. They are found before anything is sent, so the abort costs only the
  // id.
  RecentWrites::InFlightCommit in_flight(engine_.recent_writes());
  Status foreseen = session_->status().ok() ? in_flight.register_writes(id_, *snapshot_, writes_) : ok_status();
  if (!session_->status().ok()) {  // before the wait for concurrent commits, or during it
    engine_.counters().aborted.add(1);
    release_admission();
    return session_->status();
  }
  if (!foreseen.ok()) {
    engine_.counters().conflicts.add(1);
    engine_.counters().local_conflicts.add(1);
    conflicting_record_ = in_flight.conflicting_record();
    abort_unsent();
    return foreseen;
  }
  // Phase 2: compute the index changes from the values in the snapshot. Nothing was sent yet, so an error needs no
  // undo.
  auto changes = index_changes(index_context(write_indexes_ ? *write_indexes_ : *indexes_), writes_);
  if (!changes.ok()) {
    abort_unsent();
    return changes.status();
  }
  // Phase 3: record writes, index changes and completion (R1, commit order).
  Status status =
      CommitDriver::commit(engine_, session_, {id_, snapshot_, engine_.catalog().catalog(), seen_by_all_, durable_},
                           std::move(writes_), std::move(changes).value());
  in_flight.end(status.ok());
  release_admission();
  return status;
}

Status Transaction::Impl::commit_bounded(const std::shared_ptr<Impl>& transaction) {
  // A transaction without writes commits without a wait.
  if (transaction->finished_ || transaction->writes_.empty()) return transaction->commit();
  // Nothing was sent yet, so the transaction can still be aborted without an unknown outcome.
  if (fiber::CancelScope::ended()) {
    transaction->abort();
    return {cancel_scope_status().code(), "the transaction was aborted: the call ended before its commit began"};
  }
  struct CommitResult {
    fiber::Event known;
    Status status;
    std::exception_ptr thrown;
  };
  /// Lets Engine::close() wait for the commit before it closes the session.
  struct CommitTracker {
    Engine& engine;
    ~CommitTracker() { engine.commit_ended(); }
  };
  // From here on the writes may reach storage nodes, and the limit of the caller must not stop their completion or
  // undo. A fiber without limits does the work, and the caller only waits. The result outlives the caller.
  const auto outcome = std::make_shared<CommitResult>();
  const auto commit = [transaction, outcome] {
    const CommitTracker running{transaction->engine_};
    try {
      outcome->status = transaction->finish();
    } catch (...) {
      outcome->thrown = std::current_exception();
    }
    outcome->known.notify();
  };
  transaction->finished_ = true;
  bool refused = false;
  transaction->engine_.commit_started();
  transaction->engine_.spawn_background(commit, [&] { refused = true; });
  if (refused) transaction->engine_.commit_ended();
  if (refused) {
    transaction->abort_unsent();
    return {StatusCode::kOverloaded, "the transaction was aborted: the client has no free fiber for its commit"};
  }
  if (!outcome->known.wait_until(fiber::kForever)) {
    return {StatusCode::kUnknownOutcome, "the call ended before the commit, which goes on (" +
                                             std::string(cancel_scope_status().message()) + "): look at the data"};
  }
  if (outcome->thrown) std::rethrow_exception(outcome->thrown);
  return outcome->status;
}

void Transaction::Impl::abort_unsent() {
  if (id_ != TransactionId()) session_->manager().release_id(id_);
  engine_.counters().aborted.add(1);
  release_admission();
}

void Transaction::Impl::abort() {
  if (std::exchange(finished_, true)) return;
  registered_snapshot_.reset();
  if (read_only()) return;
  abort_unsent();
}

void Transaction::Impl::release_admission() {
  registered_snapshot_.reset();
  engine_.admission().release();
}

// ---- Transaction ---------------------------------------------------------------------------------------------------

Transaction::Transaction(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Transaction::~Transaction() = default;
Transaction::Transaction(Transaction&&) noexcept = default;
Transaction& Transaction::operator=(Transaction&&) noexcept = default;

TransactionId Transaction::id() const { return impl_->id(); }
bool Transaction::read_only() const { return impl_->read_only(); }
bool Transaction::finished() const { return impl_->finished(); }

Result<Record> Transaction::get(const Table& table, Key key) {
  LOAM_RETURN_IF_ERROR(impl_->check_read(table));
  if (auto own = impl_->own(table, key)) return std::move(*own);
  return in_fiber(impl_->engine(), [&] {
    auto reads = std::make_shared<PointReads>(impl_->engine(), impl_->session(), table, impl_->snapshot());
    reads->start(std::span(&key, 1));
    reads->wait();
    return Impl::with_own(impl_->own_fields(table, key), reads->take_result(0));
  });
}

Result<Record> Transaction::get(const Table& table, Key key, std::initializer_list<std::string_view> fields) {
  LOAM_ASSIGN_OR_RETURN(const Table projection, table.project(fields));
  return get(projection, key);
}

Future<Record> Transaction::get_async(const Table& table, Key key) {
  if (Status status = impl_->check_read(table); !status.ok()) {
    return ready_record(std::move(status));
  }
  if (auto known = impl_->own(table, key)) return ready_record(std::move(*known));
  std::optional<WriteBuffer::Write> own = impl_->own_fields(table, key);
  std::shared_ptr<PointReads> reads;
  const Status started = in_fiber(impl_->engine(), [&] {
    reads = std::make_shared<PointReads>(impl_->engine(), impl_->session(), table, impl_->snapshot());
    reads->start(std::span(&key, 1));
    return ok_status();
  });
  if (!started.ok()) return ready_record(started);
  auto slot = std::make_shared<Future<Record>::SharedResult>();
  return {std::make_shared<RecordCall>(impl_->engine(), std::move(reads), std::move(own), slot), slot};
}

std::vector<Result<Record>> Transaction::get_many(const Table& table, std::span<const Key> keys) {
  if (Status status = impl_->check_read(table); !status.ok()) return {keys.size(), Result<Record>(status)};
  std::vector<std::optional<Result<Record>>> found(keys.size());
  std::vector<Key> missing;
  for (size_t i = 0; i < keys.size(); ++i) {
    found[i] = impl_->own(table, keys[i]);
    if (!found[i]) missing.push_back(keys[i]);
  }
  const Status status = missing.empty() ? ok_status() : in_fiber(impl_->engine(), [&] {
    auto reads = std::make_shared<PointReads>(impl_->engine(), impl_->session(), table, impl_->snapshot());
    // The other records are read together, with one message to each storage node.
    reads->start(missing);
    reads->wait();
    size_t next = 0;
    for (auto& slot : found) {
      if (slot) continue;
      const Key key = missing[next];
      slot = Impl::with_own(impl_->own_fields(table, key), reads->take_result(next++));
    }
    return ok_status();
  });
  std::vector<Result<Record>> results;
  results.reserve(keys.size());
  for (auto& slot : found) results.push_back(slot ? std::move(*slot) : Result<Record>(status));
  return results;
}

Result<Record> Transaction::get_for_update(const Table& table, Key key) {
  LOAM_RETURN_IF_ERROR(impl_->check_write(table));
  LOAM_ASSIGN_OR_RETURN(Record record, get(table, key));
  LOAM_RETURN_IF_ERROR(impl_->allocate_id());
  LOAM_RETURN_IF_ERROR(impl_->writes().touch(record.table(), key, record.bytes()));
  return record;
}

Status Transaction::insert(const Table& table, Key key, const Record& record) {
  return impl_->write(wire::WriteKind::kInsert, table, key, &record);
}
Status Transaction::insert(const Table& table, Key key, std::initializer_list<Value> values) {
  return insert(table, key, std::span<const Value>(values.begin(), values.size()));
}
Status Transaction::insert(const Table& table, Key key, std::span<const Value> values) {
  LOAM_ASSIGN_OR_RETURN(const Record record, Record::make(table, values));
  return insert(table, key, record);
}
Status Transaction::update(const Table& table, Key key, const Record& record) {
  return impl_->write(wire::WriteKind::kUpdate, table, key, &record);
}
Status Transaction::update(const Table& table, Key key, std::initializer_list<Value> values) {
  return update(table, key, std::span<const Value>(values.begin(), values.size()));
}
Status Transaction::update(const Table& table, Key key, std::span<const Value> values) {
  LOAM_ASSIGN_OR_RETURN(const Record record, Record::make(table, values));
  return update(table, key, record);
}
Status Transaction::update(const Table& table, Key key, std::initializer_list<FieldValue> values) {
  LOAM_ASSIGN_OR_RETURN(const Record record, Record::make(table, values));
  return update(table, key, record);
}
Status Transaction::remove(const Table& table, Key key) {
  return impl_->write(wire::WriteKind::kRemove, table, key, nullptr);
}

Result<ScanStream> Transaction::scan(const Table& table, const Query& query, const ScanOptions& options) {
  LOAM_RETURN_IF_ERROR(impl_->check_read(table));
  LOAM_RETURN_IF_ERROR(check_whole(table, "a scan"));
  OwnWrites own;
  if (!options.explain) own.keys = impl_->writes().keys_of(table.id());
  if (own.keys.size() > wire::kMaxScanWithout) {
    return Status(StatusCode::kInvalidArgument,
                  "table " + table.name() + ": this transaction has written " + std::to_string(own.keys.size()) +
                      " records of it, and a scan considers at most " + std::to_string(wire::kMaxScanWithout) +
                      " own writes; scan first, or commit");
  }
  for (Result<Record>& record : get_many(table, own.keys)) {
    if (record.ok()) {
      own.records.push_back(std::move(*record));
    } else if (record.code() != StatusCode::kNotFound) {
      return record.status();
    }
  }
  return in_fiber(impl_->engine(), [&] {
    return ScanStream::Impl::start(impl_->engine(), impl_->session(), table, query, options, impl_->snapshot(),
                                   impl_->registered_snapshot(), std::move(own));
  });
}

Status Transaction::commit() {
  return in_fiber(impl_->engine(),
                  [&] { return fiber::CancelScope::any() ? Impl::commit_bounded(impl_) : impl_->commit(); });
}

Status Transaction::abort() {
  impl_->engine().worker().call_without_fiber([&] { impl_->abort(); });
  return ok_status();
}

}  // namespace loam::client
