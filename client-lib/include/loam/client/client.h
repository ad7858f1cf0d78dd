// The client: one process's session with a cluster.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <loam/client/call.h>
#include <loam/client/counter.h>
#include <loam/client/future.h>
#include <loam/client/index.h>
#include <loam/client/options.h>
#include <loam/client/plain_table.h>
#include <loam/client/scan.h>
#include <loam/client/statistics.h>
#include <loam/client/table.h>
#include <loam/client/transaction.h>

#include "common/base/status.h"
#include "common/schema/schema.h"

namespace loam::client {

/// A fiber that was spawned. Copyable handle; dropping it detaches.
class Task {
 public:
  /// Waits for the fiber's end, from a fiber of the same client or an ordinary thread. Throws what the fiber's function
  /// threw. An exception that no join() has thrown is logged when the last handle is gone.
  void join();
  /// Waits for the fiber's end at most `timeout_ns` nanoseconds; true if it has ended. Throws nothing.
  bool wait_for(uint64_t timeout_ns);
  bool done() const;

  class Impl;
  explicit Task(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

/// A program's registration with a cluster (R3), with a worker thread of its own that runs fibers and owns all
/// connections.
///
///     auto client = Client::connect("tcp://127.0.0.1:7400");
///     auto accounts = client.value()->open_table("accounts");
///     Status moved = client.value()->run_transaction([&](Transaction& tx) -> Status {
///       LOAM_ASSIGN_OR_RETURN(Record from, tx.get(*accounts, Key(1)));
///       LOAM_RETURN_IF_ERROR(from.set("balance", Value::int64(from.int64("balance") - 10)));
///       return tx.update(*accounts, Key(1), from);
///     });
///
/// **Fibers and threads.** Every function of this library may be called from a fiber of its client (spawn(), run()),
/// where it suspends that fiber only, or from any ordinary thread, which it blocks while a fiber does the work. Many
/// fibers at once are how a program gets throughput: what they ask of one server in one round travels in one message. A
/// fiber must not block its thread by other means (locks, files, sleep): it would stop all the others; a warning is
/// logged when one holds the thread for over 10 ms. Code that runs in a fiber has ClientOptions::fiber_stack_bytes of
/// stack.
///
/// **Exceptions.** The library reports its own errors as Status and Result, except for FieldError (record.h). What a
/// function of the application throws ends no fiber and no event loop: it arrives at the call that runs the function or
/// waits for it (run(), Task::join(), run_transaction(), create_index(), ScanStream::next()). A function may call the
/// library inside a catch block.
///
/// Owner and life: made by connect(), destroyed by its owner from an ordinary thread, after everything that was
/// obtained from it. The destructor waits for the fibers that still run, finishes what is open and closes the session.
///
/// **What a client survives.** A lost connection, to a storage node or to the commit manager, fails nothing: it is made
/// anew and what had no answer is sent again, and executed once (R3); only the time-outs of ClientOptions end the wait.
/// Scans are the exception: they end with kUnavailable. A session can end while the client lives: the commit manager
/// has heard nothing of it for longer than its lease (this process was stopped, or cut off), was itself restarted, or a
/// storage node did not answer a write. The client then opens a new session by itself, and:
///
///   * transactions of the old session fail with kFenced at their next call, and so do their scans; nothing of them
///     will ever be visible. run_transaction() runs them again.
///   * a commit() under way is resolved through the new session (R4): ok if the commit manager had accepted it, kFenced
///     if not, kUnknownOutcome only if nobody can tell. Whatever was acknowledged before holds. What a transaction had
///     written that was not accepted is undone by recovery; until then, writes of the same records get kConflict.
///   * begins and calls outside of transactions wait for the new session, as long as a request may take, and then fail
///     with kUnavailable, which says why there is none. If the commit manager that answers is of another cluster, or
///     works on an older state of this one, they fail with kWrongCluster until the right one is back (R10).
class Client {
 public:
  /// Connects to the commit manager at `address` ("tcp://host:port") and from there to the whole cluster. Blocks the
  /// thread. kInvalidArgument: not an address; kUnavailable: nobody listens there; kUnsupportedVersion: another
  /// protocol; kTimeout; kMalformed: something else than a commit manager answers.
  static Result<std::unique_ptr<Client>> connect(std::string_view address, const ClientOptions& options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // ---- fibers ---------------------------------------------------------------------------------------------------

  /// Runs `function` in a new fiber. What it throws arrives at Task::join(). Waits while ClientOptions::max_fibers
  /// live, which no CallScope ends.
  Task spawn(std::function<void()> function);
  /// Runs `function` once, in a fiber (or at once, if this is one), waits, and returns what it returned or throws what
  /// it threw.
  template <class Function>
  auto run(Function&& function) -> std::invoke_result_t<Function> {
    if constexpr (std::is_void_v<std::invoke_result_t<Function>>) {
      run_and_wait([&] { function(); });
    } else {
      std::optional<std::invoke_result_t<Function>> result;
      run_and_wait([&] { result.emplace(function()); });
      return std::move(*result);
    }
  }
  /// Runs `function`, which returns a Status or a Result<T>, in a new fiber and gives its answer as a Future<void> or
  /// Future<T>: the asynchronous form of every call of this library. `options` bound the calls in it.
  ///
  ///     Future<Record> record = client->async([&] { return tx.get(accounts, Key(1)); }, {.timeout_ns = 50'000'000});
  ///
  /// What the function refers to must live until the answer is there.
  template <class Function>
  auto async(Function function, const CallOptions& options = {}) {
    using Answer = std::invoke_result_t<Function>;
    using Call = Future<typename ValueOf<Answer>::Type>;
    auto slot = std::make_shared<typename Call::Slot>();
    auto run = [slot, function = std::make_shared<Function>(std::move(function))] { slot->emplace((*function)()); };
    return Call(start_call(std::move(run), options), std::move(slot));
  }
  /// Lets other fibers run for at least so long.
  void sleep_for(uint64_t duration_ns);
  /// Lets the other fibers run that are ready.
  void yield();

  // ---- catalog --------------------------------------------------------------------------------------------------

  /// Returns when every live storage node has the table (R30). If a table of that name exists with the same schema and
  /// kind, that table; with others kAlreadyExists. kInvalidArgument: a name that is empty, over 128 bytes, or begins
  /// with "loam.". kUnknownOutcome: the table may have been created, or may be later; the same call tells.
  Result<Table> create_table(std::string_view name, TableKind kind, const Schema& schema);
  /// kNoSuchTable names the table.
  Result<Table> open_table(std::string_view name);
  /// Drops the table that has the name when the call begins, never a later one of that name. Its records are gone for
  /// everyone at once, and so are its indexes. kNoSuchTable. kUnknownOutcome: the table may have been dropped, or may
  /// be later; the same call tells.
  Status drop_table(std::string_view name);
  /// In the order of names; without the system's own tables and indexes.
  Result<std::vector<Table>> list_tables();

  // ---- indexes --------------------------------------------------------------------------------------------------

  /// An index of some fields of a transactional table, in this order. Returns when it can be read: transactions
  /// maintain it from the beginning, and the records that are there already are entered meanwhile, by this client,
  /// while others read and write (R29). It waits first for the transactions that are open now. If the client dies or
  /// fails before the end, the index stays as it is, maintained and not readable, and the same call goes on with it.
  ///
  /// kAlreadyExists: a table or index of that name and another definition; or the records there are not unique, which
  /// the message names two of, and the index is dropped again. kInvalidArgument: no field, one that does not exist or
  /// comes twice, a value that is too long for a key. kWrongTableKind. The other errors are those of scans and plain
  /// writes.
  Result<Index> create_index(std::string_view name, const Table& table, const std::vector<IndexField>& fields,
                             const IndexOptions& options = {});
  /// kNoSuchTable names the index.
  Result<Index> open_index(std::string_view name);
  /// kNoSuchTable; kUnknownOutcome as drop_table().
  Status drop_index(std::string_view name);
  /// In the order of names, those that are being built too.
  Result<std::vector<Index>> list_indexes();

  // ---- transactions ---------------------------------------------------------------------------------------------

  /// kOverloaded: ClientOptions::max_transactions are open, and none ended in time; kUnavailable: there is no session,
  /// and none could be opened in time; kTimeout.
  Result<Transaction> begin(const TransactionOptions& options = {});

  /// Begins, calls `body`, commits; if the body or the commit fails with kConflict (or kFenced, kUnavailable,
  /// kOverloaded, kSnapshotTooOld, kWrongShard: nothing happened, and a new attempt may succeed) waits and begins anew,
  /// up to the options' number of attempts and time. Any other error of the body aborts and is returned; so is the last
  /// of those, and kUnavailable while shards wait for an operator. kUnknownOutcome is never retried. An exception of
  /// the body aborts, is not retried, and arrives at the caller. The body may run several times: it must have no effect
  /// outside of the transaction, and must not call commit().
  Status run_transaction(const std::function<Status(Transaction&)>& body, const TransactionOptions& options = {});

  // ---- scans ----------------------------------------------------------------------------------------------------

  /// Starts a query in a snapshot of its own. kInvalidArgument: Query::check; kNoSuchTable.
  Result<ScanStream> scan(const Table& table, const Query& query, const ScanOptions& options = {});
  /// Several queries in one and the same snapshot: their results fit together. Up to kMaxScanBatch.
  Result<std::vector<ScanStream>> scan(const std::vector<ScanRequest>& requests, const ScanOptions& options = {});

  // ---- the rest -------------------------------------------------------------------------------------------------

  /// A handle for access to a non-transactional table; kWrongTableKind for the other kind.
  Result<PlainTable> plain(const Table& table);
  /// The cluster's counter of that name; made when it does not exist. `block_size` numbers are drawn at once, 1 to
  /// 2^32.
  Result<Counter> counter(std::string_view name, uint64_t block_size = 1'000);

  /// The present session's number at the commit manager. It changes when the client was fenced and has opened another.
  SessionId session() const;
  /// False from the moment when the client learns that its session has ended until the next one is open.
  bool session_open() const;
  /// gRPC address of the commit manager's administration; empty if it has none.
  std::string admin_address() const;
  /// Any thread, never waits.
  ClientStatistics statistics() const;

  class Impl;
  /// What the library's own parts share; nothing for applications.
  Impl& impl() { return *impl_; }

 private:
  template <class Answer>
  struct ValueOf {
    using Type = std::decay_t<decltype(*std::declval<Answer>())>;
  };

  explicit Client(std::unique_ptr<Impl> impl);
  std::shared_ptr<PendingCall> start_call(std::function<void()> function, const CallOptions& options);
  void run_and_wait(const std::function<void()>& function);

  std::unique_ptr<Impl> impl_;
};

template <>
struct Client::ValueOf<Status> {
  using Type = void;
};

}  // namespace loam::client
