// Client and Task: fibers, transactions with retries, scans, counters. catalog.cc has the functions for tables,
// index.cc those for indexes; engine.cc has the sessions.
#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include <unistd.h>

#include <loam/client/client.h>

#include "client-lib/src/api/call_scope.h"
#include "client-lib/src/api/client_impl.h"
#include "client-lib/src/api/fiber_call.h"
#include "client-lib/src/api/plain_table_impl.h"
#include "client-lib/src/api/scan_impl.h"
#include "client-lib/src/api/transaction_impl.h"
#include "client-lib/src/core/backoff.h"
#include "client-lib/src/driver/cancel_scope_status.h"
#include "client-lib/src/driver/counter_impl.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/fiber/stack.h"
#include "common/net/transport/address.h"

namespace loam::client {
namespace {

constexpr size_t kMaxNameBytes = 256;
constexpr uint64_t kMaxCounterBlock = uint64_t{1} << 32;
constexpr size_t kMaxCounterNameBytes = 1'024;
/// Wait before another attempt to start a fiber, if the system has no memory for its stack. Other fibers may have
/// ended by then.
constexpr uint64_t kSpawnRetryDelayNs = 1'000'000;

Status check(const ClientOptions& options) {
  // The library needs fibers beside the application's: kReservedFibers for its own work, and at most as many again for
  // commits under a CallScope (connect()).
  if (options.max_fibers == 0 || options.max_fibers > fiber::kMaxFibers - 2 * kReservedFibers) {
    return {StatusCode::kInvalidArgument,
            "max_fibers must be 1 to " + std::to_string(fiber::kMaxFibers - 2 * kReservedFibers)};
  }
  if (options.fiber_stack_bytes < fiber::kMinStackBytes) {
    return {StatusCode::kInvalidArgument,
            "fiber_stack_bytes must be at least " + std::to_string(fiber::kMinStackBytes)};
  }
  if (options.request_timeout_ns == 0 || options.commit_timeout_ns == 0 || options.connect_timeout_ns == 0) {
    return {StatusCode::kInvalidArgument,
            "request_timeout_ns, commit_timeout_ns and connect_timeout_ns must be above 0"};
  }
  if (options.max_transactions == 0) {
    return {StatusCode::kInvalidArgument, "max_transactions must be at least 1"};
  }
  return ok_status();
}

/// "program (4711 on host)".
std::string default_name() {
#ifdef LOAM_ENV_SIM
  return sim_scheduler->process();
#else
  char host[128] = "";
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return std::string(program_invocation_short_name) + " (" + std::to_string(getpid()) + " on " + host + ")";
#endif
}

}  // namespace

// ---- Task ----------------------------------------------------------------------------------------------------------

void Task::Impl::end() {
  for (fiber::Event* event : waiting_) event->notify();
  waiting_.clear();
  done_.store(true, std::memory_order_release);  // pairs with done(): callers see all effects of the fiber
  ended_.notify();
  call_back();
}

void Task::Impl::call_back() {
  if (on_end_) call_logged(std::exchange(on_end_, nullptr), "on_ready");
}

void Task::Impl::on_end(std::function<void()> callback) {
  worker_.call_without_fiber([&] {
    on_end_ = std::move(callback);
    if (done()) call_back();
  });
}

Task::Impl::~Impl() {
  // relaxed: no join() is running, because its caller holds this object.
  if (!thrown_ || rethrown_.load(std::memory_order_relaxed)) return;
  std::string what = "client: an exception ended a fiber, and no join() has received it";
  try {
    std::rethrow_exception(thrown_);
  } catch (const std::exception& error) {
    what += ": " + std::string(error.what());
  } catch (...) {
    what += "; it is no std::exception";
  }
  log_warning("client.exception_lost", what);
}

void Task::Impl::run(const std::function<void()>& function) {
  try {
    function();
  } catch (...) {
    thrown_ = std::current_exception();
  }
}

Status Task::Impl::join() {
  LOAM_RETURN_IF_ERROR(wait());
  rethrow();
  return ok_status();
}

void Task::Impl::join_in_thread() {
  ended_.wait();
  rethrow();
}

void Task::Impl::rethrow() {
  if (!thrown_) return;
  rethrown_.store(true, std::memory_order_relaxed);  // relaxed: read by the destructor only
  std::rethrow_exception(thrown_);
}

Status Task::Impl::wait() {
  if (done()) return ok_status();
  // Three kinds of callers: a fiber of the client waits itself; a thread without a CallScope blocks until the end; a
  // thread with a CallScope lets a fiber wait, because only fibers have limits.
  const CallScope::Impl* const scope = CallScope::Impl::of_thread();
  if (worker_.on_worker() && fiber::FiberScheduler::in_fiber()) return wait_in_fiber();
  if (scope == nullptr) {
    ended_.wait();
    return ok_status();
  }
  std::optional<Status> waited;
  const auto wait = [&] {
    std::optional<TokenCancelScope> bound;
    scope->enter(bound);
    waited = wait_in_fiber();
  };
  while (!worker_.call(wait)) {  // no fiber is free
    if (Status end = scope->status(); !end.ok()) return end;
    if (done()) return ok_status();
    sleep_ns(kSpawnRetryDelayNs);
  }
  return *waited;
}

bool Task::Impl::wait_for(uint64_t timeout_ns) {
  const CallScope scope({.timeout_ns = std::max<uint64_t>(timeout_ns, 1)});
  return wait().ok();
}

Status Task::Impl::wait_in_fiber() {
  if (done()) return ok_status();
  fiber::Event ended;
  waiting_.push_back(&ended);
  if (ended.wait_until(fiber::kForever)) return ok_status();
  std::erase(waiting_, &ended);
  return cancel_scope_status();
}

void Task::join() { static_cast<void>(impl_->join()); }
bool Task::wait_for(uint64_t timeout_ns) { return impl_->wait_for(timeout_ns); }
bool Task::done() const { return impl_->done(); }

void call_logged(const std::function<void()>& callback, std::string_view what) {
  try {
    callback();
  } catch (...) {
    log_warning("client.callback_threw", "client: " + std::string(what) + " threw an exception");
  }
}

// ---- Client::Impl --------------------------------------------------------------------------------------------------

Status Client::Impl::open(const std::string& address, const ClientOptions& options) {
  Status status(StatusCode::kUnavailable, "the client's thread has no fiber");
  worker_->call([&] {
    engine_ = std::make_unique<Engine>(*worker_, address, options);
    trees_ = std::make_unique<IndexTrees>(*engine_);
    engine_->set_index_writer(*trees_);
    status = engine_->open();
  });
  return status;
}

Client::Impl::~Impl() {
  const auto close = [this] {
    // First the application's fibers, because they use all else. The trees come last, because commits that the engine
    // finishes change indexes.
    tasks_.wait();
    if (engine_ != nullptr) engine_->close();
    trees_.reset();
  };
  while (!worker_->call(close)) sleep_ns(kSpawnRetryDelayNs);
  worker_->stop();
}

void Client::Impl::start_fiber(const std::shared_ptr<Task::Impl>& task, std::function<void()> function) {
  const auto body = std::make_shared<std::function<void()>>(std::move(function));  // may throw, the rest does not
  fiber_limiter_.acquire();
  tasks_.add();
  const auto run = [this, task, body] {
    struct OnExit {
      Client::Impl& client;
      Task::Impl& task;
      ~OnExit() {
        // tasks_.done() comes last: the client's destructor waits for it, and the other two calls use the client.
        task.end();
        client.fiber_limiter_.release();
        client.tasks_.done();
      }
    } end{*this, *task};
    task->run(std::exchange(*body, nullptr));
  };
  while (!worker_->scheduler().spawn(run).ok()) worker_->scheduler().sleep_for(kSpawnRetryDelayNs);
}

std::shared_ptr<Task::Impl> Client::Impl::spawn(std::function<void()> function) {
  auto task = std::make_shared<Task::Impl>(*worker_);
  // The library has reserved fibers for itself, so this call fails only if the system has no memory for a stack.
  while (!worker_->call([&] { start_fiber(task, std::move(function)); })) sleep_ns(kSpawnRetryDelayNs);
  return task;
}

// ---- Client --------------------------------------------------------------------------------------------------------

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::connect(std::string_view address, const ClientOptions& options) {
  LOAM_RETURN_IF_ERROR(check(options));
  LOAM_ASSIGN_OR_RETURN(const net::Address parsed, net::Address::parse(address));
  ClientOptions effective = options;
  if (effective.name.empty()) effective.name = default_name();
  if (effective.name.size() > kMaxNameBytes) effective.name.resize(kMaxNameBytes);
  if (!effective.on_warning) {
    effective.on_warning = [](std::string_view text) {
      log_warning("client.thread_held", "client: " + std::string(text));
    };
  } else {
    // The scheduler calls it between two fibers, so no caller could receive an exception.
    effective.on_warning = [given = options.on_warning](std::string_view text) {
      call_logged([&] { given(text); }, "on_warning, told '" + std::string(text) + "',");
    };
  }
  rpc::WorkerOptions worker;
  worker.thread_name = "loam-client";
  worker.scheme = parsed.scheme;
  // A commit under a CallScope runs in a fiber of its own (Transaction::Impl::commit_bounded()).
  worker.max_fibers = effective.max_fibers + kReservedFibers + std::min(effective.max_transactions, kReservedFibers);
  worker.stack_bytes = effective.fiber_stack_bytes;
  worker.spin_ns = effective.spin_ns;
  worker.on_warning = effective.on_warning;
  LOAM_ASSIGN_OR_RETURN(std::unique_ptr<rpc::Worker> started, rpc::Worker::start(worker));
  auto impl = std::make_unique<Impl>(std::move(started), effective.max_fibers);
  LOAM_RETURN_IF_ERROR(impl->open(parsed.to_string(), effective));
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Task Client::spawn(std::function<void()> function) { return Task(impl_->spawn(std::move(function))); }

std::shared_ptr<PendingCall> Client::start_call(std::function<void()> function, const CallOptions& options) {
  const CancelToken own;
  const auto bounded = [function = std::move(function), options, own] {
    // Two scopes, because a call has the token of its future and the token in its options.
    const CallScope cancellable({.cancel = own});
    const CallScope scope(options);
    function();
  };
  return std::make_shared<AsyncCall>(impl_->spawn(bounded), own);
}

void Client::run_and_wait(const std::function<void()>& function) {
  const CallScope::Impl* const scope = CallScope::Impl::of_thread();
  const auto bounded = [&] {
    std::optional<TokenCancelScope> bound;
    if (scope != nullptr) scope->enter(bound);
    function();
  };
  if (!impl_->worker().call(bounded)) impl_->spawn(bounded)->join_in_thread();  // no free fiber now: wait for one
}

void Client::sleep_for(uint64_t duration_ns) {
  run_and_wait([&] { impl_->worker().scheduler().sleep_for(duration_ns); });
}

void Client::yield() {
  impl_->worker().call([&] { impl_->worker().scheduler().yield(); });
}

// ---- transactions --------------------------------------------------------------------------------------------------

Result<Transaction> Client::begin(const TransactionOptions& options) {
  return in_fiber(impl_->engine(), [&] { return Transaction::Impl::begin(*impl_, options); });
}

Status Client::run_transaction(const std::function<Status(Transaction&)>& body, const TransactionOptions& options) {
  Engine& engine = impl_->engine();
  std::optional<wire::RecordId> conflicting_record;  // of the last attempt
  std::exception_ptr thrown;                         // by the body
  // One attempt. An exception of the body is kept until the transaction is aborted and the fiber has left the queues.
  const auto attempt = [&]() -> Status {
    LOAM_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Impl::begin(*impl_, options));
    Status status;
    try {
      status = body(transaction);
    } catch (...) {
      thrown = std::current_exception();
    }
    if (thrown) {
      LOAM_RETURN_IF_ERROR(transaction.abort());
      return {StatusCode::kCancelled, "the transaction's body threw an exception"};
    }
    if (!transaction.finished()) {
      if (!status.ok()) {
        LOAM_RETURN_IF_ERROR(transaction.abort());
        return status;
      }
      status = transaction.commit();
    }
    conflicting_record = Transaction::Impl::of(transaction).conflicting_record();
    return status;
  };
  Status result = in_fiber(engine, [&]() -> Status {
    // The attempts. A transaction that waits in the queues of its contended records begins with a snapshot that sees
    // the writes of the transactions before it.
    const uint64_t last_start_ns = engine.worker().now_ns() + options.retry.max_elapsed_ns;
    std::vector<wire::RecordId> contended;
    contended.reserve(options.contended.size());
    for (const RecordRef& record : options.contended) contended.push_back({record.table.id(), record.key});
    HotRecordQueues::Guard guard(engine.hot_record_queues());
    for (uint32_t tried = 1;; ++tried) {
      if (!contended.empty()) guard.acquire(contended);
      Status status = attempt();
      if (thrown) return status;
      if (status.ok() || !is_retryable(status.code()) || tried >= options.retry.max_attempts) return status;
      if (status == StatusCode::kUnavailable && engine.records_lost()) return status;  // waiting does not help
      const uint64_t wait_ns = std::max(retry_wait_ns(options.retry, status.code(), tried - 1, engine.random()),
                                        status == StatusCode::kOverloaded ? engine.overload_wait_ns() : 0);
      if (engine.worker().now_ns() + wait_ns >= last_start_ns) return status;
      engine.counters().retries.add(1);
      // A conflict with another transaction of this client shows a contended record, also if the application has not
      // named it.
      const auto there = std::exchange(conflicting_record, std::nullopt);
      if (there && std::ranges::find(contended, *there) == contended.end()) {
        contended.push_back(*there);  // no wait: the queue of the record starts the next attempt in time
        continue;
      }
      if (!engine.sleep_before_retry(wait_ns)) return status;
    }
  });
  if (thrown) std::rethrow_exception(std::move(thrown));
  return result;
}

// ---- scans ---------------------------------------------------------------------------------------------------------

Result<ScanStream> Client::scan(const Table& table, const Query& query, const ScanOptions& options) {
  LOAM_ASSIGN_OR_RETURN(std::vector<ScanStream> streams, scan({{table, query}}, options));
  return std::move(streams[0]);
}

Result<std::vector<ScanStream>> Client::scan(const std::vector<ScanRequest>& requests, const ScanOptions& options) {
  if (requests.empty() || requests.size() > kMaxScanBatch) {
    return Status(StatusCode::kInvalidArgument,
                  "1 to " + std::to_string(kMaxScanBatch) + " queries at once, not " + std::to_string(requests.size()));
  }
  for (const ScanRequest& request : requests) {
    LOAM_RETURN_IF_ERROR(check_access(request.table, request.table.kind()));
    LOAM_RETURN_IF_ERROR(check_whole(request.table, "a scan"));
  }
  Engine& engine = impl_->engine();
  return in_fiber(engine, [&]() -> Result<std::vector<ScanStream>> {
    // Non-transactional tables have no snapshots (R21).
    std::shared_ptr<RegisteredSnapshot> registered;
    std::shared_ptr<const Snapshot> snapshot;
    LOAM_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, engine.session(engine.request_deadline()));
    if (std::any_of(requests.begin(), requests.end(),
                    [](const ScanRequest& request) { return request.table.kind() == TableKind::kTransactional; })) {
      LOAM_ASSIGN_OR_RETURN(registered, engine.register_snapshot());
      snapshot = registered->snapshot();
      session = registered->session();
    }
    std::vector<ScanStream> streams;
    streams.reserve(requests.size());
    for (const ScanRequest& request : requests) {
      LOAM_ASSIGN_OR_RETURN(ScanStream stream, ScanStream::Impl::start(engine, session, request.table, request.query,
                                                                       options, snapshot, registered));
      streams.push_back(std::move(stream));
    }
    return streams;
  });
}

// ---- non-transactional tables, counters, state ---------------------------------------------------------------------

Result<PlainTable> Client::plain(const Table& table) {
  LOAM_RETURN_IF_ERROR(check_access(table, TableKind::kNonTransactional));
  return PlainTable(table, std::make_shared<PlainTable::Impl>(impl_->engine()));
}

Result<Counter> Client::counter(std::string_view name, uint64_t block_size) {
  if (name.empty() || name.size() > kMaxCounterNameBytes) {
    return Status(StatusCode::kInvalidArgument,
                  "a counter's name has 1 to " + std::to_string(kMaxCounterNameBytes) + " bytes");
  }
  if (block_size == 0 || block_size > kMaxCounterBlock) {
    return Status(StatusCode::kInvalidArgument,
                  "counter " + std::string(name) + ": block_size must be 1 to " + std::to_string(kMaxCounterBlock));
  }
  auto impl = std::make_unique<Counter::Impl>(impl_->engine(), std::string(name), block_size);
  LOAM_RETURN_IF_ERROR(in_fiber(impl_->engine(), [&] { return impl->open(); }));
  return Counter(std::move(impl));
}

SessionId Client::session() const { return impl_->engine().session_id(); }
bool Client::session_open() const { return impl_->engine().session_open(); }
std::string Client::admin_address() const {
  std::string address;
  impl_->worker().call_without_fiber([&] { address = impl_->engine().current_session()->manager().admin_address(); });
  return address;
}
ClientStatistics Client::statistics() const { return impl_->engine().statistics(); }
latency::Latencies Client::latencies() const { return impl_->engine().latencies(); }

}  // namespace loam::client
