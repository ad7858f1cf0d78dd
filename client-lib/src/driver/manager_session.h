// ManagerSession: the session at the commit manager, which batches the begins and completions of all fibers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "client-lib/src/core/begin_batcher.h"
#include "client-lib/src/core/catalog_cache.h"
#include "client-lib/src/driver/counters.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/fiber/cancel_scope.h"
#include "common/rpc/channel.h"
#include "common/rpc/worker.h"
#include "common/wire/manager.h"

namespace loam::client {

/// Most outcomes in one Complete, ids in one GetOutcomes, and snapshot numbers in one ReleaseSnapshots.
inline constexpr size_t kMaxCompletions = 4'096;

/// Receives the commit manager's reply to a completion.
class CompletionWaiter {
 public:
  /// The commit manager has answered. `refused`: the transaction cannot be committed, and stays open until it is
  /// completed as aborted (R9, leases of storage nodes).
  virtual void on_completed(bool refused) = 0;
  /// No reply will come. `executed` says whether the completion may have taken effect.
  virtual void on_completion_failure(const Status& status, rpc::ExecutionStatus executed) = 0;

 protected:
  ~CompletionWaiter() = default;
};

/// The registration of a client at the commit manager (R3, idempotent requests within a session). It outlives its
/// connections: after a lost connection it connects again, resumes the session, and repeats the unanswered requests.
///
/// Requests that fibers make during a round are gathered and sent by flush(): one Begin, one Complete. The lease is
/// renewed four times in its length, also if there is other traffic. The session ends once: by close(), by kFenced
/// from the commit manager, or by end(). From then on all calls fail with the reason of the end.
///
/// Owner: a Session. Threads: the worker thread only, in fibers where a function says so.
class ManagerSession final : private rpc::ResponseHandler {
 public:
  struct Options {
    std::string address;
    std::string client_name;
    uint64_t request_timeout_ns = 0;
    uint64_t commit_timeout_ns = 0;          ///< time-out of completions
    uint64_t renew_every_ns = 0;             ///< 0: a quarter of the lease
    latency::RequestTimer* timer = nullptr;  ///< as rpc::Channel::Options::timer
    std::function<void()> on_end;            ///< called once when the session ends
    std::function<void(uint64_t retry_after_ns)> on_overload;
  };

  ManagerSession(rpc::Worker& worker, CatalogCache& catalog, EngineCounters& counters, Options options);

  /// Connects, registers, and fetches the catalog. While the cluster starts or recovers, it tries again until
  /// `deadline_ns`. It does not wait for a commit manager that cannot be reached. In a fiber.
  Status open(uint64_t deadline_ns);
  /// Sends the gathered messages and closes the session in order. In a fiber.
  void close(uint64_t deadline_ns);
  /// Marks the session as ended, because a server said so or the client gives it up. Idempotent.
  void end(const Status& status);
  /// Ends the session, and asks the commit manager to recover its open transactions (R2, abort order).
  void give_up(const Status& status);

  /// Begins a transaction or registers a snapshot. kUnavailable, kTimeout, kOverloaded; the status of the session's
  /// end. In a fiber.
  BeginResult begin(BeginKind kind);
  /// Draws an id for a transaction with this upgradable snapshot. Errors as begin(). In a fiber.
  BeginResult upgrade(uint64_t snapshot_number);
  /// Releases a registered snapshot. Begins of one message share a snapshot; the last release tells the commit
  /// manager.
  void release(uint64_t snapshot_number);
  /// Tells the commit manager the outcome of a transaction. `waiter` gets the reply; it may be null if the
  /// transaction is aborted and no fiber waits for its end.
  void complete(TransactionId id, bool committed, CompletionWaiter* waiter);
  /// Completes an id under which nothing was written, without waiting for the reply.
  void release_id(TransactionId id) { complete(id, false, nullptr); }

  /// Sends a request, and returns before the reply. After the session's end the call fails at once. In a fiber.
  template <wire::Message Reply, wire::Message M>
  void send(rpc::Call<Reply>& call, const M& message, uint64_t deadline_ns) {
    call.send(end_status_.ok() ? Result<rpc::Channel*>(&channel_) : Result<rpc::Channel*>(end_status_), message,
              deadline_ns);
  }
  /// Sends a request and waits for the reply. In a fiber.
  template <wire::Message Reply, wire::Message M>
  Result<Reply> call(const M& message) {
    LOAM_RETURN_IF_ERROR(end_status_);
    return rpc::call<Reply>(channel_, message,
                            fiber::CancelScope::deadline(worker_.now_ns() + options_.request_timeout_ns));
  }
  /// Fetches the current catalog. In a fiber.
  Status refresh_catalog();
  /// Fetches the catalog without waiting, because a server has named a newer version or refused a request with an
  /// older one.
  void refresh_catalog_async();

  /// Sends the gathered messages. Called once a round.
  void flush();
  /// Fails the requests whose deadline has passed.
  void expire(uint64_t now_ns) { channel_.expire(now_ns); }
  uint64_t earliest_deadline_ns() const;

  /// Ok until the session ends.
  const Status& status() const { return end_status_; }
  bool opened() const { return id_ != SessionId(); }
  /// The commit manager's reason for not opening the session yet; ok if it has given none.
  const Status& last_refusal() const { return last_refusal_; }
  SessionId id() const { return id_; }
  uint64_t manager_epoch() const { return manager_epoch_; }
  uint64_t lease_ns() const { return lease_ns_; }
  const std::string& admin_address() const { return admin_address_; }
  bool connected() const { return channel_.connected(); }
  uint64_t resent() const { return channel_.resent(); }
  /// True if no request is under way, so that the session may be destroyed.
  bool idle() const { return channel_.idle() && !refreshing_ && begins_.empty() && completions_.outcomes.empty(); }

 private:
  /// The begin of one fiber. If the fiber has stopped waiting, the id or snapshot that arrives is given back.
  struct PendingBegin final : BeginWaiter {
    explicit PendingBegin(ManagerSession& owner, uint64_t snapshot = 0) : session(owner), upgraded_snapshot(snapshot) {}
    void on_begun(const BeginResult& got) override;
    ManagerSession& session;
    const uint64_t upgraded_snapshot;  // the upgradable snapshot, which is held until the reply; 0: none
    BeginResult answer;
    fiber::Event answered;
    bool abandoned = false;
  };
  struct CompletionBatch {
    std::vector<wire::Complete::Completion> outcomes;
    std::vector<CompletionWaiter*> waiters;
    /// `refused`: the refused ids in ascending order.
    void notify_completed(const std::vector<TransactionId>& refused) const;
    void notify_failure(const Status& status, rpc::ExecutionStatus executed) const;
  };

  BeginResult await(std::unique_ptr<PendingBegin> pending_begin);
  rpc::Channel::Options channel_options();
  Status on_startup_reply(wire::Opcode opcode, ByteReader& body);
  void on_disconnect(const Status& status, bool refused);
  void on_error(const wire::Error& error);
  Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint64_t token, const Status& status, rpc::ExecutionStatus executed) override;
  Status on_begun(uint64_t token, wire::Opcode opcode, ByteReader& body);
  Status on_completed(uint64_t token, wire::Opcode opcode, ByteReader& body);
  Status on_renewed(wire::Opcode opcode, ByteReader& body);
  void renewal_failed(const Status& status, rpc::ExecutionStatus executed);
  void flush_begins();
  void flush_completions();
  void renew();
  void finish_open(const Status& status);

  rpc::Worker& worker_;
  CatalogCache& catalog_;
  EngineCounters& counters_;
  const Options options_;
  rpc::Channel channel_;
  Status end_status_;
  SessionId id_;
  uint64_t manager_epoch_ = 0;
  uint64_t lease_ns_ = 0;
  std::string admin_address_;
  bool refreshing_ = false;
  uint64_t next_refresh_ns_ = 0;
  bool closing_ = false;

  // Used while the session opens.
  fiber::Event* open_waiter_ = nullptr;
  Status open_result_;
  Status last_refusal_;

  uint64_t next_renewal_ns_ = 0;
  bool renewing_ = false;
  uint64_t newest_snapshot_ = 0;

  BeginBatcher begins_;
  CompletionBatch completions_;
  std::vector<uint64_t> released_;
  std::map<uint64_t, uint32_t> snapshot_holders_;  // number of users of each registered snapshot
  // Messages under way, by token: begins have even tokens, completions odd ones.
  uint64_t next_token_ = 0;
  std::unordered_map<uint64_t, BeginBatch> open_begins_;
  std::unordered_map<uint64_t, CompletionBatch> open_completions_;
  wire::BeginReply begun_;         // kept between replies for its memory
  wire::CompleteReply completed_;  // kept between replies for its memory
};

}  // namespace loam::client
