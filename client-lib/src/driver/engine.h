// Engine: the state of one client on its worker thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <loam/client/options.h>
#include <loam/client/statistics.h>
#include <loam/client/table.h>

#include "client-lib/src/core/catalog_cache.h"
#include "client-lib/src/driver/admission_limiter.h"
#include "client-lib/src/driver/counters.h"
#include "client-lib/src/driver/hot_record_queues.h"
#include "client-lib/src/driver/index_writer.h"
#include "client-lib/src/driver/outcome_resolver.h"
#include "client-lib/src/driver/recent_writes.h"
#include "client-lib/src/driver/session.h"
#include "common/base/status.h"
#include "common/fiber/cancel_scope.h"
#include "common/latency/recorder.h"
#include "common/latency/request_timer.h"
#include "common/rpc/worker.h"

namespace loam::client {

/// Fibers for the library's own work and for calls of ordinary threads, beyond ClientOptions::max_fibers.
inline constexpr size_t kReservedFibers = 1'024;
/// Wait before a request to the commit manager is repeated after its reply was lost with the connection.
inline constexpr uint64_t kManagerRetryDelayNs = 5'000'000;

/// Holds the current session, the catalog, the limits and the counters of one client.
///
/// When a session ends, the engine opens the next one, with growing waits while the commit manager is away or
/// recovers. Transactions of the old session fail with its status. New ones wait for the new session.
///
/// Owner: the client. Threads: the worker thread, except where a function says otherwise. Destroyed after the worker
/// has stopped.
class Engine final : private rpc::PollHook {
 public:
  Engine(rpc::Worker& worker, const std::string& manager_address, ClientOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Opens the first session. In a fiber.
  Status open();
  /// Closes the session, and waits until no request of the client is under way. Afterwards the worker may stop. In a
  /// fiber.
  void close();
  bool closing() const { return closing_; }

  /// Returns the open session; waits for one until the deadline. kUnavailable: the message says why no session could
  /// be opened; kWrongCluster (R10, cluster identity and incarnations). In a fiber.
  Result<std::shared_ptr<Session>> session(uint64_t deadline_ns);
  /// Returns the newest session without waiting. It may have ended. Never null after open().
  const std::shared_ptr<Session>& current_session() const { return current_session_; }
  /// Sends a request to the commit manager that may be repeated, also under another session, and waits for the
  /// reply. In a fiber.
  template <wire::Message Reply, wire::Message M>
  Result<Reply> call_manager(const M& message) {
    bool may_have_happened = false;
    return call_manager<Reply>(message, may_have_happened);
  }
  /// Sends a request that changes the catalog, and waits for the reply. The request is idempotent, so it may arrive
  /// several times. Afterwards the client has fetched the new catalog, or will. kUnknownOutcome: the catalog may have
  /// been changed, or may be changed later. In a fiber.
  template <wire::Message Reply, wire::Message M>
  Result<Reply> change_catalog(const M& message) {
    bool may_have_happened = false;
    auto reply = call_manager<Reply>(message, may_have_happened);
    if (reply.ok()) {
      if (!refresh_catalog().ok()) refresh_catalog_async();  // the change is made in any case
      return reply;
    }
    if (!may_have_happened) return reply;
    return Status(StatusCode::kUnknownOutcome,
                  "the commit manager's reply was lost; repeat the call to learn the outcome: " +
                      std::string(reply.status().message()));
  }
  /// Fetches the catalog. In a fiber.
  Status refresh_catalog();
  /// Sets the object that changes indexes for commits. Called before the first commit; the writer outlives the last
  /// one.
  void set_index_writer(IndexWriter& writer) { index_writer_ = &writer; }
  IndexWriter& index_writer() { return *index_writer_; }
  /// Fetches a newer catalog without waiting for it.
  void refresh_catalog_async() { current_session_->manager().refresh_catalog_async(); }

  /// A transaction that has begun, with the session that it belongs to.
  struct OpenTransaction {
    std::shared_ptr<Session> session;
    BeginResult answer;
  };
  /// Admits and begins a transaction. If the session ends meanwhile, the begin is repeated under the next session,
  /// because it has had no effect. In a fiber.
  Result<OpenTransaction> begin(BeginKind kind);
  /// Draws the id of an upgradable transaction that begins to write. Afterwards the client has the catalog that the
  /// reply names. In a fiber.
  Result<BeginResult> upgrade(Session& session, uint64_t snapshot_number);
  /// Registers a read-only snapshot, which the result holds open. In a fiber.
  Result<std::shared_ptr<RegisteredSnapshot>> register_snapshot();

  /// Deadline of a request of the running fiber: the client's time-out, or the fiber's own earlier deadline.
  uint64_t request_deadline() const {
    return fiber::CancelScope::deadline(worker_.now_ns() + options_.request_timeout_ns);
  }
  /// Deadline of a step of a commit. The limits of the fiber do not bound it, because a commit that has begun goes
  /// on.
  uint64_t commit_deadline() const { return worker_.now_ns() + options_.commit_timeout_ns; }
  /// Sleeps between two attempts. False: a limit of the fiber has ended, so there must be no further attempt. In a
  /// fiber.
  bool sleep_before_retry(uint64_t duration_ns) {
    worker_.scheduler().sleep_for(duration_ns);
    return !fiber::CancelScope::ended();
  }
  /// A server has answered kOverloaded. `retry_after_ns`: the wait that it advises; 0: none.
  void on_overload(uint64_t retry_after_ns);
  /// Time for which servers that answered kOverloaded want no new attempts.
  uint64_t overload_wait_ns() const;
  /// True if a storage node has lost its records: its shards refuse requests until an operator acts, so waiting does
  /// not help.
  bool records_lost() const;

  rpc::Worker& worker() { return worker_; }
  CatalogCache& catalog() { return catalog_; }
  const ClientOptions& options() const { return options_; }
  EngineCounters& counters() { return counters_; }
  /// Returns a copy of the latencies of requests. Any thread.
  latency::Latencies latencies() const;
  /// Limits open transactions and the number of begins that may queue.
  AdmissionLimiter& admission() { return admission_; }
  OutcomeResolver& outcome_resolver() { return outcome_resolver_; }
  RecentWrites& recent_writes() { return recent_writes_; }
  HotRecordQueues& hot_record_queues() { return hot_record_queues_; }
  uint64_t random() { return random_(); }
  /// Count the commits in fibers of their own, which close() waits for.
  void commit_started() { commits_in_flight_.add(); }
  void commit_ended() { commits_in_flight_.done(); }
  /// Runs `body` in a fiber of the engine, which close() waits for. If there is no fiber, calls `refused` instead.
  void spawn_background(std::function<void()> body, const std::function<void()>& refused);

  /// The client's counts. Any thread.
  ClientStatistics statistics() const;
  /// Number of the current session, and whether it is open. Any thread.
  SessionId session_id() const { return SessionId(session_id_.load(std::memory_order_relaxed)); }
  bool session_open() const { return session_open_.load(std::memory_order_relaxed); }

 private:
  template <wire::Message Reply, wire::Message M>
  Result<Reply> call_manager(const M& message, bool& may_have_happened) {
    const uint64_t deadline_ns = request_deadline();
    for (;;) {
      LOAM_ASSIGN_OR_RETURN(const std::shared_ptr<Session> asked, session(deadline_ns));
      rpc::Call<Reply> call;
      asked->manager().send(call, message, deadline_ns);
      const Status& status = call.wait();
      if (status.ok()) return std::move(call.reply());
      may_have_happened |= !rpc::has_no_effect(call.executed());
      const bool lost = status == StatusCode::kFenced || !asked->manager().connected();
      if (!lost || worker_.now_ns() + kManagerRetryDelayNs >= deadline_ns || !sleep_before_retry(kManagerRetryDelayNs))
        return status;
    }
  }
  /// Acquires admission for a transaction. kOverloaded.
  Status admit(uint64_t deadline_ns);
  uint64_t before_poll() override;
  void after_poll(uint64_t now_ns) override;
  std::shared_ptr<Session> make_session();
  void set_current_session(std::shared_ptr<Session> session);
  /// Tries to open a session until one is open or the client closes.
  void reopen();
  void on_session_end(const Session& session);

  /// Fetches the catalog that the reply to a begin names, unless the client has it. So a transaction maintains every
  /// index that existed when its id was given (R29, index creation).
  Status ensure_catalog(Session& session, const BeginResult& answer);

  rpc::Worker& worker_;
  const std::string manager_address_;
  const ClientOptions options_;
  EngineCounters counters_;
  latency::Recorder latencies_;
  std::optional<latency::RequestTimer> timer_;  // from the first session on, because the worker thread makes it
  CatalogCache catalog_;
  IndexWriter* index_writer_ = nullptr;
  std::shared_ptr<Session> current_session_;
  std::vector<std::shared_ptr<Session>> sessions_;  // the current one, and old ones with requests under way
  std::vector<fiber::Event*> session_waiters_;      // in the frames of the waiting fibers
  bool refreshing_catalog_ = false;                 // a fiber in ensure_catalog() does it
  std::vector<fiber::Event*> catalog_waiters_;      // in the frames of the waiting fibers
  Status last_failure_;                             // result of the last attempt to open a session
  std::weak_ptr<Session> opening_;                  // the session of the newest attempt of reopen()
  bool reopening_ = false;
  bool closing_ = false;
  uint64_t overloaded_until_ns_ = 0;
  AdmissionLimiter admission_;
  OutcomeResolver outcome_resolver_{*this};
  RecentWrites recent_writes_;
  HotRecordQueues hot_record_queues_;
  fiber::WaitGroup commits_in_flight_;
  fiber::WaitGroup background_fibers_;
  std::mt19937_64 random_;
  // Written by the worker thread, read by any thread. Relaxed: readers want a recent value, and no other data depends
  // on it.
  std::atomic<uint64_t> session_id_{0};
  std::atomic<bool> session_open_{false};
};

}  // namespace loam::client
