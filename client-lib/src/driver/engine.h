// Everything of one client that lives on its worker's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <loam/client/options.h>
#include <loam/client/statistics.h>
#include <loam/client/table.h>

#include "client-lib/src/core/catalog_cache.h"
#include "client-lib/src/driver/counters.h"
#include "client-lib/src/driver/gate.h"
#include "client-lib/src/driver/index_writer.h"
#include "client-lib/src/driver/outcomes.h"
#include "client-lib/src/driver/recent_writes.h"
#include "client-lib/src/driver/session.h"
#include "client-lib/src/driver/turns.h"
#include "common/base/status.h"
#include "common/fiber/limit.h"
#include "common/rpc/worker.h"

namespace loam::client {

/// Fibers for the library's own work and for calls of ordinary threads, beyond ClientOptions::max_fibers.
inline constexpr size_t kReservedFibers = 1'024;
/// Before a question to the commit manager is asked again whose answer was lost with the connection.
inline constexpr uint64_t kAskAgainNs = 5'000'000;

/// Holds the present session, the catalog and the counters of one client.
///
/// When a session ends, the engine opens the next one by itself, with growing waits while the commit manager is away or
/// recovering. Transactions of the old session fail with its status; new ones wait for the new session.
///
/// Owner: the client; made and used on the worker's thread, destroyed after the worker has stopped.
class Engine final : private rpc::RoundHook {
 public:
  Engine(rpc::Worker& worker, const std::string& manager_address, ClientOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// In a fiber.
  Status open();
  /// In a fiber; waits until nothing of the client's is under way. Afterwards the worker may stop.
  void close();
  bool closing() const { return closing_; }

  /// In a fiber: the session that lives now; waits for one until the deadline. kUnavailable says why there is none.
  Result<std::shared_ptr<Session>> session(uint64_t deadline_ns);
  /// Without waiting; it may have ended. Never null after open().
  const std::shared_ptr<Session>& present() const { return present_; }
  /// In a fiber: asks the commit manager something that may be asked again, under another session too.
  template <wire::Message Reply, wire::Message M>
  Result<Reply> ask_manager(const M& message) {
    bool may_have_happened = false;
    return ask_manager<Reply>(message, may_have_happened);
  }
  /// In a fiber: a request that changes the catalog once, however often it arrives; the catalog is known afterwards, if
  /// the commit manager answers. kUnknownOutcome: the catalog may have been changed, or may be later.
  template <wire::Message Reply, wire::Message M>
  Result<Reply> change_catalog(const M& message) {
    bool may_have_happened = false;
    auto reply = ask_manager<Reply>(message, may_have_happened);
    if (reply.ok()) {
      if (!refresh_catalog().ok()) refresh_soon();  // the change is made all the same
      return reply;
    }
    if (!may_have_happened) return reply;
    return Status(StatusCode::kUnknownOutcome,
                  "the commit manager's answer was lost, make the same call again to be sure: " +
                      std::string(reply.status().message()));
  }
  Status refresh_catalog();
  /// Who changes indexes for commits: set before the first one, outlives the last.
  void set_index_writer(IndexWriter& writer) { index_writer_ = &writer; }
  IndexWriter& index_writer() { return *index_writer_; }
  /// A newer catalog is needed, whenever it may come.
  void refresh_soon() { present_->manager().refresh_soon(); }

  struct Begun {
    std::shared_ptr<Session> session;
    BeginAnswer answer;
  };
  /// In a fiber. A session that ends meanwhile is replaced: nothing has happened under it.
  Result<Begun> begin(BeginKind kind);
  /// In a fiber: the id of an upgradable transaction that begins to write, and its answer's catalog is known.
  Result<BeginAnswer> upgrade(Session& session, uint64_t snapshot_number);
  /// A snapshot that lasts as long as the result. In a fiber.
  Result<std::shared_ptr<SnapshotLease>> lease_snapshot();

  /// Of a request of the running fiber: the client's time-out, or an earlier end of the fiber's limits.
  uint64_t request_deadline() const { return fiber::Limit::deadline(worker_.now_ns() + options_.request_timeout_ns); }
  /// Not bounded by limits: a commit that has begun goes on.
  uint64_t commit_deadline() const { return worker_.now_ns() + options_.commit_timeout_ns; }
  /// In a fiber: sleeps between two attempts. False if a limit of the fiber has ended: there is to be no other attempt.
  bool pause(uint64_t duration_ns) {
    worker_.scheduler().sleep_for(duration_ns);
    return !fiber::Limit::ended();
  }
  /// A server has refused something because it has too much to do; 0: it gave no advice.
  void on_overload(uint64_t retry_after_ns);
  /// Servers that said kOverloaded want no new attempts before this time has passed.
  uint64_t overload_wait_ns() const;
  /// Some shards answer nothing until an operator has acted: waiting is of no use.
  bool records_lost() const;

  rpc::Worker& worker() { return worker_; }
  CatalogCache& catalog() { return catalog_; }
  const ClientOptions& options() const { return options_; }
  EngineCounters& counters() { return counters_; }
  /// Of open transactions, and how many more may wait to begin.
  Gate& admission() { return admission_; }
  Outcomes& outcomes() { return outcomes_; }
  RecentWrites& recent_writes() { return recent_writes_; }
  Turns& turns() { return turns_; }
  uint64_t random() { return random_(); }
  /// Commits under way, the completion of an aborted one included.
  void run_started() { runs_.add(); }
  void run_ended() { runs_.done(); }
  /// A fiber of the engine's own, which close() waits for; `refused` is called instead if there is none.
  void spawn_own(std::function<void()> body, const std::function<void()>& refused);

  /// Any thread.
  ClientStatistics statistics() const;
  /// Any thread: number of the present session; and whether it lives.
  SessionId session_id() const { return SessionId(session_id_.load(std::memory_order_relaxed)); }
  bool session_open() const { return session_open_.load(std::memory_order_relaxed); }

 private:
  template <wire::Message Reply, wire::Message M>
  Result<Reply> ask_manager(const M& message, bool& may_have_happened) {
    const uint64_t deadline_ns = request_deadline();
    for (;;) {
      LOAM_ASSIGN_OR_RETURN(const std::shared_ptr<Session> asked, session(deadline_ns));
      rpc::Call<Reply> call;
      asked->manager().send(call, message, deadline_ns);
      const Status& told = call.wait();
      if (told.ok()) return std::move(call.reply());
      may_have_happened |= !rpc::has_no_effect(call.executed());
      const bool lost = told == StatusCode::kFenced || !asked->manager().connected();
      if (!lost || worker_.now_ns() + kAskAgainNs >= deadline_ns || !pause(kAskAgainNs)) return told;
    }
  }
  /// A place among the open transactions. kOverloaded.
  Status admit(uint64_t deadline_ns);
  uint64_t before_poll() override;
  void after_poll(uint64_t now_ns) override;
  std::shared_ptr<Session> make_session();
  void take(std::shared_ptr<Session> session);
  /// Opens sessions until one lives.
  void reopen();
  void on_session_end(const Session& session);

  /// The transaction knows every table and index that was there before its id was given (R29).
  Status know_catalog(Session& session, const BeginAnswer& answer);

  rpc::Worker& worker_;
  const std::string manager_address_;
  const ClientOptions options_;
  EngineCounters counters_;
  CatalogCache catalog_;
  IndexWriter* index_writer_ = nullptr;
  std::shared_ptr<Session> present_;
  std::vector<std::shared_ptr<Session>> sessions_;  // all with something under way, the present one among them
  std::vector<fiber::Event*> awaiting_session_;     // in the frames of the waiting fibers
  bool asking_catalog_ = false;                     // know_catalog() does
  std::vector<fiber::Event*> awaiting_catalog_;     // in the frames of the waiting fibers
  Status last_failure_;                             // of opening a session
  std::weak_ptr<Session> opening_;                  // the newest attempt to open one again
  bool reopening_ = false;
  bool closing_ = false;
  uint64_t overloaded_until_ns_ = 0;
  Gate admission_;
  Outcomes outcomes_{*this};
  RecentWrites recent_writes_;
  Turns turns_;
  fiber::WaitGroup runs_;
  fiber::WaitGroup own_;
  std::mt19937_64 random_;
  // Written by the worker's thread. Relaxed: readers want a recent value, nothing is reached through it.
  std::atomic<uint64_t> session_id_{0};
  std::atomic<bool> session_open_{false};
};

}  // namespace loam::client
