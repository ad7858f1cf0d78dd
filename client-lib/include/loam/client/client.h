// The client library's main class: a process connects to a cluster with it.
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
#include "common/latency/recorder.h"
#include "common/schema/schema.h"

/// The client library, with which applications read and write the records of a cluster.
namespace loam::client {

/// Handle of a fiber that Client::spawn() started; like std::thread, but it can be copied, and dropping the last copy
/// detaches the fiber. Any thread, or fibers of the client.
class Task {
 public:
  /// Waits until the fiber has ended, and throws the exception that its function threw. The caller is a fiber of the
  /// same client, which the call suspends, or an ordinary thread, which it blocks. An exception that no join() has
  /// thrown is logged when the last handle is destroyed.
  void join();
  /// Waits at most `timeout_ns` nanoseconds for the fiber's end. Returns true if the fiber has ended. Never throws
  /// the function's exception.
  bool wait_for(uint64_t timeout_ns);
  /// True if the fiber has ended. Never waits.
  bool done() const;

  class Impl;
  /// For the library.
  explicit Task(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<Impl> impl_;
};

/// A connection to a cluster: the entry point for tables, transactions, scans, indexes and counters. It registers the
/// process at the commit manager as one session (R3, idempotent requests within a session). A worker thread of its
/// own runs the client's fibers and owns all connections.
///
///     auto client = Client::connect("tcp://127.0.0.1:7400");
///     auto accounts = client.value()->open_table("accounts");
///     Status moved = client.value()->run_transaction([&](Transaction& tx) -> Status {
///       LOAM_ASSIGN_OR_RETURN(Record from, tx.get(*accounts, Key(1)));
///       LOAM_RETURN_IF_ERROR(from.set("balance", Value::int64(from.int64("balance") - 10)));
///       return tx.update(*accounts, Key(1), from);
///     });
///
/// **Fibers and threads.** Every function of this library may be called from a fiber of its client (spawn(), run())
/// or from any ordinary thread. The call suspends only the calling fiber, or blocks the ordinary thread while a fiber
/// does the work. A program gets throughput from many fibers: their requests of one round to one server travel in one
/// message. A fiber must not block its thread by other means (locks, files, sleep), because that stops all other
/// fibers; the client logs a warning when a fiber holds the thread for over 10 ms. A function in a fiber has
/// ClientOptions::fiber_stack_bytes of stack.
///
/// **Exceptions.** The library reports its own errors as Status and Result, except for FieldError (record.h). An
/// exception of an application's function ends neither the fiber nor the event loop. It arrives at the call that runs
/// the function or waits for it: run(), Task::join(), run_transaction(), create_index(), ScanStream::next(). A
/// function may call the library inside a catch block.
///
/// **Owner and life.** connect() makes the client. Its owner destroys it, from an ordinary thread, after everything
/// that was obtained from it. The destructor waits for the fibers that still run, finishes open transactions and
/// commits, and closes the session.
///
/// **Lost connections and sessions.** A lost connection, to a storage node or to the commit manager, fails no call.
/// The client connects again and repeats the unanswered requests, and the server executes each of them once (R3).
/// Only the time-outs of ClientOptions end the wait. Scans are the exception: they end with kUnavailable.
///
/// A session can end before its client does. There are three causes: the commit manager has received nothing from the
/// session for longer than its lease (this process was stopped, or its network failed); the commit manager was
/// restarted; or a storage node did not answer a write. The client then opens a new session by itself:
///
///   * Transactions of the old session fail with kFenced at their next call, and so do their scans. Their writes
///     never become visible. run_transaction() runs them again.
///   * The client resolves a commit() under way through the new session (R4, outcomes from the commit log): ok if the
///     commit manager had accepted it, kFenced if not, kUnknownOutcome only if the commit log no longer has the
///     outcome, or no reply comes in time. An acknowledged commit stays committed. Recovery undoes the writes of a
///     transaction that was not accepted; until then, writes of the same records get kConflict.
///   * Begins and calls outside of transactions wait for the new session up to the request's time-out. Then they
///     fail with kUnavailable, and the message says why there is no session. If the commit manager that answers
///     belongs to another cluster, or works on an older state of this one, they fail with kWrongCluster until the
///     right one is back (R10, cluster identity and incarnations).
class Client {
 public:
  /// Connects to the commit manager at `address` ("tcp://host:port"), which names all storage nodes of the cluster.
  /// Blocks the thread up to ClientOptions::connect_timeout_ns, then kTimeout. kInvalidArgument: `address` is not an
  /// address; kUnavailable: no server listens there; kUnsupportedVersion: the server speaks another version of the
  /// protocol; kMalformed: the server is not a commit manager.
  static Result<std::unique_ptr<Client>> connect(std::string_view address, const ClientOptions& options = {});
  /// Waits for the fibers that still run and closes the session.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // ---- fibers ---------------------------------------------------------------------------------------------------

  /// Runs `function` in a new fiber. Task::join() throws what `function` throws. If ClientOptions::max_fibers fibers
  /// are alive, the call waits until one of them ends; a CallScope does not bound this wait.
  Task spawn(std::function<void()> function);
  /// Runs `function` once in a fiber and waits for it. Returns the function's result or throws its exception. If the
  /// caller is a fiber of this client, the function runs in the caller.
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
  /// Runs `function` in a new fiber and returns a future of its result. This is the asynchronous form of every call
  /// of this library. `function` returns a Status, for a Future<void>, or a Result<T>, for a Future<T>. `options`
  /// bound the calls that it makes.
  ///
  ///     Future<Record> record = client->async([&] { return tx.get(accounts, Key(1)); }, {.timeout_ns = 50'000'000});
  ///
  /// The variables that the function refers to must live until the future is ready.
  template <class Function>
  auto async(Function function, const CallOptions& options = {}) {
    using Answer = std::invoke_result_t<Function>;
    using Call = Future<typename ValueOf<Answer>::Type>;
    auto slot = std::make_shared<typename Call::SharedResult>();
    auto run = [slot, function = std::make_shared<Function>(std::move(function))] { slot->emplace((*function)()); };
    return Call(start_call(std::move(run), options), std::move(slot));
  }
  /// Suspends the calling fiber, or blocks the calling thread, for at least `duration_ns` nanoseconds; less if a
  /// CallScope ends.
  void sleep_for(uint64_t duration_ns);
  /// Lets the other fibers that are ready run once before the calling fiber continues.
  void yield();

  // ---- catalog --------------------------------------------------------------------------------------------------

  /// Creates a table, and returns when every live storage node has it (R30, table creation and drop). If a table of
  /// that name, schema and kind exists already, returns that table. Fields that were added to it (add_field()) may lack
  /// in `schema`, and then lack in the handle. kAlreadyExists: a table of that name has another schema or kind.
  /// kInvalidArgument: the name is empty, over 128 bytes, or begins with "loam.". kUnknownOutcome: the table may exist
  /// or may come into being later; repeat the call to learn it.
  Result<Table> create_table(std::string_view name, TableKind kind, const Schema& schema);
  /// Returns a handle of an existing table. kNoSuchTable; the message names the table. kWrongTableKind: the name
  /// belongs to an index. The other errors are kUnavailable and kTimeout.
  Result<Table> open_table(std::string_view name);
  /// Drops a table with its records and its indexes, for all clients at once. The call drops the table that has the
  /// name when the call begins, never a later table of that name. kNoSuchTable. kUnknownOutcome: the table may have
  /// been dropped, or may be dropped later; repeat the call to learn it.
  Status drop_table(std::string_view name);
  /// Gives a table another name, and returns its handle with that name. The table keeps its id, records and indexes.
  /// Handles with the old name stay valid, in this client and in others, and so do open transactions, scans and Index
  /// objects. open_table() of the old name gets kNoSuchTable, also in other clients.
  ///
  /// kNoSuchTable; kAlreadyExists: a table or an index has the new name. kInvalidArgument: the new name is the old one,
  /// or create_table() would refuse it. kWrongTableKind: the old name belongs to an index, which keeps its name.
  /// kUnknownOutcome: the table may have been renamed, or may be renamed later; open_table() tells.
  Result<Table> rename_table(std::string_view name, std::string_view new_name);
  /// Adds a nullable field at the end of a table's schema, and returns a handle with it. No record is rewritten:
  /// records that were written before read NULL in the field. Handles without the field stay valid (Table), and open
  /// transactions and scans go on. Returns when every live storage node knows the field. If the table has an added
  /// field of this name and type, the call changes nothing.
  ///
  /// Other changes of a schema do not exist: create another table, and copy the records. kNoSuchTable. kAlreadyExists:
  /// another field has the name. kInvalidArgument: the field is not nullable, its name or type is invalid, or the table
  /// has kMaxFields fields or kMaxAddedFields added ones. kOverloaded: another field is being added to the table; try
  /// again later. kUnknownOutcome: repeat the call to learn it.
  Result<Table> add_field(const Table& table, const Field& field);
  /// Returns all tables, ordered by name, without indexes and the system's own tables.
  Result<std::vector<Table>> list_tables();

  // ---- indexes --------------------------------------------------------------------------------------------------

  /// Creates an index on the given fields of a transactional table, in their order, and returns when the index can be
  /// read. Other clients read and write the table meanwhile: their transactions maintain the index from the
  /// beginning, and this client enters the existing records (R29, index creation). The call first waits for the
  /// transactions that are open at its begin. If the client dies or the call fails before the end, the index stays in
  /// the catalog, maintained and not readable; the same call continues the build.
  ///
  /// kAlreadyExists: a table or index of that name has another definition; or the records are not unique, then the
  /// message names two of them, and the call drops the index again. kInvalidArgument: no field, a field that does not
  /// exist or occurs twice, or a value that is too long for a key. kWrongTableKind: the table is non-transactional.
  /// The other errors are those of scans and plain writes.
  Result<Index> create_index(std::string_view name, const Table& table, const std::vector<IndexField>& fields,
                             const IndexOptions& options = {});
  /// Returns a handle of an existing index. kNoSuchTable; the message names the index.
  Result<Index> open_index(std::string_view name);
  /// Drops an index. The table stays. kNoSuchTable; kUnknownOutcome as drop_table().
  Status drop_index(std::string_view name);
  /// Returns all indexes, ordered by name, including those that are still being built.
  Result<std::vector<Index>> list_indexes();

  // ---- transactions ---------------------------------------------------------------------------------------------

  /// Begins a transaction: gets its snapshot, and an id if it may write. kOverloaded: ClientOptions::max_transactions
  /// are open and none ended in time, or too many begins wait already; kUnavailable: the client has no session and
  /// could not open one in time; kTimeout.
  Result<Transaction> begin(const TransactionOptions& options = {});

  /// Begins a transaction, calls `body`, commits, and repeats all of it after errors that a new attempt can avoid.
  /// Those errors are kConflict, kFenced, kUnavailable, kOverloaded, kSnapshotTooOld and kWrongShard; the failed
  /// attempt has had no effect. The call waits before each new attempt, as TransactionOptions::retry says.
  ///
  /// Returns the error of the last attempt when the attempts or their time are used up. Any other error of `body`
  /// aborts the transaction and is returned at once, and so is kUnavailable while shards wait for an operator.
  /// kUnknownOutcome is never retried. An exception of `body` aborts the transaction and arrives at the caller
  /// without a retry. `body` may run several times, so it must have no effect outside of the transaction; it must not
  /// call commit().
  Status run_transaction(const std::function<Status(Transaction&)>& body, const TransactionOptions& options = {});

  // ---- scans ----------------------------------------------------------------------------------------------------

  /// Starts a query over a table in a snapshot of its own. kInvalidArgument: the query does not fit the table
  /// (Query::check); kNoSuchTable.
  Result<ScanStream> scan(const Table& table, const Query& query, const ScanOptions& options = {});
  /// Starts up to kMaxScanBatch queries in one snapshot, so that their results are consistent with each other. The
  /// streams have the order of the requests. Errors as above.
  Result<std::vector<ScanStream>> scan(const std::vector<ScanRequest>& requests, const ScanOptions& options = {});

  // ---- non-transactional tables, counters, state ----------------------------------------------------------------

  /// Returns a handle for reads and writes of a non-transactional table. kWrongTableKind: the table is transactional.
  Result<PlainTable> plain(const Table& table);
  /// Returns the cluster's counter of that name, and creates it if it does not exist. The counter draws `block_size`
  /// numbers at once, 1 to 2^32.
  Result<Counter> counter(std::string_view name, uint64_t block_size = 1'000);

  /// The number of the current session at the commit manager. It changes when the client has been fenced and has
  /// opened another session.
  SessionId session() const;
  /// False from the moment when the client learns that its session has ended until the next session is open.
  bool session_open() const;
  /// The gRPC address of the commit manager's administration service; empty if it has none.
  std::string admin_address() const;
  /// The client's counts since it connected. Any thread; never waits.
  ClientStatistics statistics() const;
  /// The latencies of the client's requests since it connected, and the slowest requests of the last minute with the
  /// stages of their time. Any thread; waits for a short lock at most.
  latency::Latencies latencies() const;

  class Impl;
  /// For the library's own parts, not for applications.
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

/// @cond
template <>
struct Client::ValueOf<Status> {
  using Type = void;
};
/// @endcond

}  // namespace loam::client
