// Builds the parts of the commit manager in their order, runs the loop of the server thread, and ends all of them.
// src/server has one round of this loop, and src/core makes the decisions.
#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include <loam/commit/manager.h>

#include "commit-manager/src/admin/admin_server.h"
#include "commit-manager/src/log/commit_log_file.h"
#include "commit-manager/src/recovery/recovery_driver.h"
#include "commit-manager/src/server/server.h"
#include "commit-manager/src/store/state_file.h"
#include "commit-manager/src/store/state_writer.h"
#include "common/base/env.h"
#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/net/make_transport.h"
#include "common/net/transport/transport.h"

namespace loam::commit {

namespace {

/// Upper bound on the time between two checks of the stop flag by the server thread.
constexpr uint64_t kIdleNs = 1'000'000'000;

constexpr uint64_t kMinLeaseNs = 10'000'000;
constexpr uint64_t kMaxLeaseNs = 3'600'000'000'000;

Status out_of_range(const std::string& option, const std::string& range) {
  return {StatusCode::kInvalidArgument, "option " + option + " is out of its range: " + range};
}

}  // namespace

Status ManagerOptions::check() const {
  LOAM_RETURN_IF_ERROR(net::Address::parse(listen).status());
  if (!data.empty() && store != nullptr) return {StatusCode::kInvalidArgument, "option data: a store is given too"};
  const bool survives = !data.empty() || store != nullptr;
  if (commit_log && survives != (*commit_log != CommitLogMode::kNone)) {
    return {StatusCode::kInvalidArgument,
            survives ? "option commit-log: with a data folder commits need a log, or a restart would take back commits "
                       "that clients were told; choose os or sync"
                     : "option commit-log: there is no data folder to keep a commit log in; give one, or choose none"};
  }
  if (core.client_lease_ns < kMinLeaseNs || core.client_lease_ns > kMaxLeaseNs) {
    return out_of_range("client-lease", "10 ms to 1 h");
  }
  if (core.node_lease_ns < kMinLeaseNs || core.node_lease_ns > kMaxLeaseNs) {
    return out_of_range("node-lease", "10 ms to 1 h");
  }
  if (core.max_transaction_age_ns < kMinLeaseNs) return out_of_range("max-transaction-age", "10 ms or more");
  if (core.ids_ahead == 0 || core.ids_ahead > uint64_t{1} << 40) return out_of_range("ids-ahead", "1 to 2^40");
  if (core.max_sessions == 0 || core.max_sessions > kMaxSessions) {
    return out_of_range("max-sessions", "1 to " + std::to_string(kMaxSessions));
  }
  if (core.max_open_per_session == 0 || core.max_open_per_session > kMaxOpenPerSession) {
    return out_of_range("max-open-per-session", "1 to " + std::to_string(kMaxOpenPerSession));
  }
  if (core.publish_interval_ns < 100'000 || core.publish_interval_ns > 10'000'000'000) {
    return out_of_range("publish-interval", "100 us to 10 s");
  }
  if (sweep_interval_ns < 1'000'000) return out_of_range("sweep-interval", "1 ms or more");
  if (core.initial_nodes > kMaxNodes) return out_of_range("nodes", "0 to " + std::to_string(kMaxNodes));
  if (spin_ns > 1'000'000'000) return out_of_range("spin", "0 to 1 s");
  if (core.max_open == 0 || core.max_open > kMaxOpenIds) {
    return out_of_range("max-open", "1 to " + std::to_string(kMaxOpenIds));
  }
  if (core.first_transaction.value == 0 || core.first_session.value == 0) {
    return out_of_range("first transaction and session", "from 1 on");
  }
  return ok_status();
}

struct CommitManager::Parts {
  explicit Parts(const ManagerOptions& given) : options(given) {}

  Status start();
  Status start_server(const net::Address& wanted);
  std::string place() const { return file == nullptr ? "the store" : "folder " + options.data; }
  Status open_log(StableStorage& store);
  Status check_log(bool has_state) const;
  Status store_first_state();
  void serve();
  void stop();

  ManagerStatistics statistics(const Core& core) const {
    ManagerStatistics all;
    all.core = core.statistics();
    all.recovery = recovery->statistics();
    all.uptime_ns = Env::now_ns() - started_ns;
    statistics::add_counters<net::TransportNumbers>(server->counters(), all);
    return all;
  }

  latency::Latencies latencies(bool with_slow) const {
    latency::Latencies all;
    all.add(server->latencies(), with_slow);
    all.now_ns = Env::now_ns();
    return all;
  }

  const ManagerOptions options;
  std::string address;
  std::string admin_address;
  uint64_t started_ns = 0;

  // In the order of construction; stop() destroys them in the reverse order.
  std::unique_ptr<StateFile> file;  // if there is a data folder
  std::unique_ptr<net::Transport> transport;
  std::unique_ptr<Server> server;
  std::unique_ptr<StateWriter> writer;  // null without a folder or storage; its thread posts to the server
  std::unique_ptr<CommitLogFile> log;   // likewise; its threads wake the transport
  std::unique_ptr<RecoveryDriver> recovery;
  std::unique_ptr<AdminServer> admin;
  // Written by stop(), read by the server thread. Relaxed: wake() and join() order everything else.
  std::atomic<bool> stopping{false};
  Thread thread;
};

Status CommitManager::Parts::start() {
  LOAM_RETURN_IF_ERROR(options.check());
  LOAM_ASSIGN_OR_RETURN(const net::Address wanted, net::Address::parse(options.listen));
  // Step 1: folder, log, core and data address. No message is read before step 4, so peers that connect meanwhile wait.
  started_ns = Env::now_ns();
  LOAM_RETURN_IF_ERROR(start_server(wanted));
  // Step 2: the administration. Its calls may post tasks from now on, and the tasks run in step 4.
  if (!options.admin_listen.empty()) {
    AdminBackend backend;
    backend.post = [this](std::function<void(Core&)> task) { return server->post(std::move(task)); };
    backend.statistics = [this](const Core& core) { return statistics(core); };
    backend.address = [this] { return address; };
    backend.latencies = [this](bool with_slow) { return latencies(with_slow); };
    backend.peer_address = [this](PeerId peer) { return server->address_of(peer); };
    backend.timeout_ns = options.admin_timeout_ns;
    backend.token_file = options.admin_token_file;
    LOAM_ASSIGN_OR_RETURN(admin, AdminServer::start(options.admin_listen, std::move(backend)));
    admin_address = admin->address();
    server->core().set_admin_address(admin_address);
  }
  // Step 3: the state of this epoch. Step 4: the server thread.
  LOAM_RETURN_IF_ERROR(store_first_state());
  thread = Thread("loam-commit", [this] { serve(); });
  return ok_status();
}

/// Stores the new epoch (R11, commit log and restart of the commit manager) after both addresses are bound. A start
/// that fails at a port in use takes no epoch, so repeated starts by a supervisor do not fill the list of epochs with
/// which storage nodes are compared (R10, cluster identity and incarnations).
Status CommitManager::Parts::store_first_state() {
  server->core().on_timer(Env::now_ns());
  LOAM_RETURN_IF_ERROR(server->core().durable_status());
  // The threads start after the first store, which blocks. From here on no call of the core waits for a disk, and the
  // outcomes come back as tasks of the server thread.
  if (writer == nullptr) return ok_status();
  writer->start(
      [this](const Status& outcome) { server->post([outcome](Core& core) { core.on_state_stored(outcome); }); });
  log->start([this] { transport->wake(); },
             [this](const Status& why) { server->post([why](Core& core) { core.on_log_failed(why); }); });
  return ok_status();
}

Status CommitManager::Parts::open_log(StableStorage& store) {
  CommitLogOptions wanted;
  wanted.folder = options.data;  // for messages only: the storage opens the files
  wanted.mode = options.commit_log.value_or(CommitLogMode::kOs);
  LOAM_ASSIGN_OR_RETURN(std::unique_ptr<LogDevice> device, store.log_device());
  auto opened = CommitLogFile::open(wanted, std::move(device));
  if (!opened.ok()) {
    return {opened.code(), place() + ": commit log: " + std::string(opened.status().message())};
  }
  log = std::move(opened).value();
  return ok_status();
}

/// Refuses a log without its state. A new cluster would give out ids that this log names as committed. A state without
/// its log is accepted with a warning: every transaction that is not recovered yet then counts as aborted.
Status CommitManager::Parts::check_log(bool has_state) const {
  const uint64_t commits = log->initial_contents().end;
  if (!has_state && commits != 0) {
    return {StatusCode::kInvalidArgument,
            place() + " has a commit log of " + std::to_string(commits) +
                " commits, and no state: they belong together. Restore the state; or move the commit log away, and "
                "begin a new cluster"};
  }
  if (has_state && log->created()) {
    log_warning("commit_log.missing",
                place() +
                    " had a state, and no commit log: no transaction of before counts as committed. If there was "
                    "a commit log, stop the commit manager, restore the log, and start again");
  }
  return ok_status();
}

Status CommitManager::Parts::start_server(const net::Address& wanted) {
  net::TransportOptions transport_options;
  transport_options.spin_ns = options.spin_ns;
  LOAM_ASSIGN_OR_RETURN(transport, net::make_transport(wanted.scheme, transport_options));
  // The lock of the folder comes first: without it another commit manager may still write state and log.
  StableStorage* store = options.store;
  if (!options.data.empty()) {
    LOAM_ASSIGN_OR_RETURN(file, StateFile::open(options.data));
    store = file.get();
  }
  const Bytes state = store == nullptr ? Bytes() : store->stored_state();
  if (store != nullptr) LOAM_RETURN_IF_ERROR(open_log(*store));
  if (const Status status = Core::check_state(state); !status.ok()) {
    return {StatusCode::kInternal, place() + ": " + std::string(status.message())};
  }
  if (log != nullptr) LOAM_RETURN_IF_ERROR(check_log(!state.empty()));
  if (store != nullptr) writer = std::make_unique<StateWriter>(*store);
  server = std::make_unique<Server>(
      options.core, *transport, [] { return Env::now_ns(); }, Server::Persistence{writer.get(), state, log.get()});
  recovery = std::make_unique<RecoveryDriver>(
      [scheme = wanted.scheme](RecovererOptions recoverer) -> Result<std::unique_ptr<RecoveryWorker>> {
        recoverer.scheme = scheme;
        LOAM_ASSIGN_OR_RETURN(std::unique_ptr<RecoveryWorker> started, Recoverer::start(std::move(recoverer)));
        return started;
      },
      [] { return Env::now_ns(); }, [this] { transport->wake(); }, options.sweep_interval_ns);
  // The port is bound last, so an address is announced only by a commit manager that could read its state.
  LOAM_ASSIGN_OR_RETURN(const net::Address bound, server->listen(wanted));
  address = bound.to_string();
  return ok_status();
}

void CommitManager::Parts::serve() {
  bool ready = false;
  while (!stopping.load(std::memory_order_relaxed)) {
    const uint64_t now = Env::now_ns();
    const uint64_t due = recovery->next_deadline_ns();
    // A round waits for the next work of core or recovery, at most kIdleNs. The recovery driver runs after the round,
    // because a lease that ends or a fence that is acknowledged in it makes tasks.
    const bool changed = server->step(due <= now ? 0 : std::min(kIdleNs, due - now));
    recovery->step(server->core(), changed);
    if (admin != nullptr && server->core().ready() != ready) admin->set_serving(ready = !ready);
    if (const Status status = server->core().durable_status(); !status.ok()) {
      // Every reply that was sent depends on stored state only. A client without a reply asks the next commit
      // manager.
      server->close_task_queue();
      if (options.on_failure) options.on_failure(status);
      break;
    }
  }
  recovery.reset();  // the next manager's recoverer repeats unfinished work
  server->close_connections();
}

Result<std::unique_ptr<CommitManager>> CommitManager::start(const ManagerOptions& options) {
  auto parts = std::make_unique<Parts>(options);
  if (Status status = parts->start(); !status.ok()) {
    parts->stop();
    return status;
  }
  return std::unique_ptr<CommitManager>(new CommitManager(std::move(parts)));
}

CommitManager::CommitManager(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

CommitManager::~CommitManager() { stop(); }

void CommitManager::stop() { parts_->stop(); }

void CommitManager::Parts::stop() {
  if (admin != nullptr) admin->stop();  // first, because its calls post tasks to the server
  // Dropped tasks wake their callers, which then get kUnavailable or empty statistics.
  if (thread.joinable()) {
    server->close_task_queue();
    stopping.store(true, std::memory_order_relaxed);
    transport->wake();
    thread.join();
  }
  writer.reset();  // waits for the store that is under way
  log.reset();     // flushes the appended records
  admin.reset();
  transport.reset();  // drops its connections without calling the server
}

const std::string& CommitManager::address() const { return parts_->address; }
const std::string& CommitManager::admin_address() const { return parts_->admin_address; }

uint64_t CommitManager::rounds() const { return parts_->transport->counters().polls.read(); }

ManagerStatistics CommitManager::statistics() const {
  const Parts& parts = *parts_;
  struct Answer {
    ManagerStatistics statistics;
    OneShotEvent given;
  };
  const auto answer = std::make_shared<Answer>();
  // `end` is destroyed with the task, when it has run or is dropped. So this thread wakes up in both cases.
  std::shared_ptr<void> end(nullptr, [answer](void*) { answer->given.notify(); });
  if (!parts.server->post(
          [&parts, answer, end = std::move(end)](Core& core) { answer->statistics = parts.statistics(core); })) {
    return {};
  }
  answer->given.wait();
  return answer->statistics;
}

latency::Latencies CommitManager::latencies() const { return parts_->latencies(true); }

bool CommitManager::post(std::function<void(Core&)> task) { return parts_->server->post(std::move(task)); }

}  // namespace loam::commit
