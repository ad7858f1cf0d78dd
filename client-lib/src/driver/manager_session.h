// The session with the commit manager: begins and completions of all fibers, in few messages.
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
#include "common/fiber/limit.h"
#include "common/rpc/channel.h"
#include "common/rpc/worker.h"
#include "common/wire/manager.h"

namespace loam::client {

/// Most outcomes of one Complete, ids of one AskOutcomes and numbers of one ReleaseSnapshots.
inline constexpr size_t kMaxCompletions = 4'096;

/// Who waits for the commit manager's answer to a completion.
class CompletionWaiter {
 public:
  /// `refused`: the transaction cannot be committed, and stays open until it is completed as aborted (R9).
  virtual void on_completed(bool refused) = 0;
  virtual void on_completion_failure(const Status& status, rpc::Executed executed) = 0;

 protected:
  ~CompletionWaiter() = default;
};

/// One registration at the commit manager (R3). It outlives its connections: a lost one is made anew and resumes the
/// session, and what had no answer is sent again.
///
/// Owner: a Session; the worker's thread only, in fibers where it says so. What fibers ask for during a round is
/// gathered and leaves in flush(): one Begin, one Complete. The lease is renewed four times in its length,
/// whether or not anything else is said. The session ends once, by close(), because the commit manager says kFenced, or
/// by end(); from then on everything fails with the reason.
class ManagerSession final : private rpc::Caller {
 public:
  struct Options {
    std::string address;
    std::string client_name;
    uint64_t request_timeout_ns = 0;
    uint64_t commit_timeout_ns = 0;  ///< of completions
    uint64_t renew_every_ns = 0;     ///< 0: a quarter of the lease
    std::function<void()> on_end;
    std::function<void(uint64_t retry_after_ns)> on_overload;
  };

  ManagerSession(rpc::Worker& worker, CatalogCache& catalog, EngineCounters& counters, Options options);

  /// In a fiber. Connects, registers, takes the catalog. While the cluster says that it is starting, or recovering,
  /// tries again until `deadline_ns`; a commit manager that cannot be reached is not waited for.
  Status open(uint64_t deadline_ns);
  /// In a fiber. Ends the session in order, after the messages that are still to be sent.
  void close(uint64_t deadline_ns);
  /// Marks the session as ended: a server said so, or this client gives it up. Idempotent.
  void end(const Status& status);
  /// Ends the session, and tells the commit manager to recover its open transactions (R2).
  void give_up(const Status& status);

  /// In a fiber. kUnavailable, kTimeout, kOverloaded; the session's end.
  BeginAnswer begin(BeginKind kind);
  /// In a fiber: draws an id for a transaction with this upgradable snapshot. Errors as begin().
  BeginAnswer upgrade(uint64_t snapshot_number);
  /// A registered snapshot is not needed any more. Snapshots of one Begin are shared: the last one tells the CM.
  void release(uint64_t snapshot_number);
  /// Tells the commit manager the transaction's outcome. `waiter` gets the answer. It may be null if the transaction is
  /// aborted and no fiber waits for its end.
  void complete(TransactionId id, bool committed, CompletionWaiter* waiter);
  /// Completes an id under which nothing was written, without waiting for the answer.
  void give_back(TransactionId id) { complete(id, false, nullptr); }

  /// In a fiber. Once the session has ended the call has failed.
  template <wire::Message Reply, wire::Message M>
  void send(rpc::Call<Reply>& call, const M& message, uint64_t deadline_ns) {
    call.send(end_.ok() ? Result<rpc::Channel*>(&channel_) : Result<rpc::Channel*>(end_), message, deadline_ns);
  }
  /// In a fiber: request and answer.
  template <wire::Message Reply, wire::Message M>
  Result<Reply> ask(const M& message) {
    LOAM_RETURN_IF_ERROR(end_);
    return rpc::call<Reply>(channel_, message, fiber::Limit::deadline(worker_.now_ns() + options_.request_timeout_ns));
  }
  /// In a fiber: the catalog as it is now.
  Status refresh_catalog();
  /// Asks for a newer catalog and does not wait: a server spoke of one, or refused us as behind the times.
  void refresh_soon();

  /// Sends the messages that were gathered.
  void flush();
  void expire(uint64_t now_ns) { channel_.expire(now_ns); }
  uint64_t earliest_deadline_ns() const;

  /// Ok while the session lives.
  const Status& status() const { return end_; }
  bool opened() const { return id_ != SessionId(); }
  /// Why the commit manager has not opened it yet; ok if it has said nothing.
  const Status& last_refusal() const { return last_refusal_; }
  SessionId id() const { return id_; }
  uint64_t manager_epoch() const { return manager_epoch_; }
  uint64_t lease_ns() const { return lease_ns_; }
  const std::string& admin_address() const { return admin_address_; }
  bool connected() const { return channel_.connected(); }
  uint64_t resent() const { return channel_.resent(); }
  /// Nothing is under way: may be destroyed.
  bool idle() const { return channel_.idle() && !refreshing_ && begins_.empty() && completions_.outcomes.empty(); }

 private:
  /// One fiber's begin. If the fiber has gone, what comes is given back.
  struct Ticket final : BeginWaiter {
    explicit Ticket(ManagerSession& owner, uint64_t snapshot = 0) : session(owner), upgrades(snapshot) {}
    void on_begun(const BeginAnswer& got) override;
    ManagerSession& session;
    const uint64_t upgrades;  // the upgradable snapshot, which is held until the answer; 0: none
    BeginAnswer answer;
    fiber::Event answered;
    bool abandoned = false;
  };
  struct Completion {
    std::vector<wire::Complete::Outcome> outcomes;
    std::vector<CompletionWaiter*> waiters;
    /// `refused` ascends.
    void tell_completed(const std::vector<TransactionId>& refused) const;
    void tell_failure(const Status& status, rpc::Executed executed) const;
  };

  BeginAnswer await(std::unique_ptr<Ticket> ticket);
  rpc::Channel::Options channel_options();
  Status on_greeted(wire::Opcode opcode, ByteReader& body);
  void on_lost(const Status& status, bool refused);
  void on_error(const wire::Error& error);
  Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint64_t token, const Status& status, rpc::Executed executed) override;
  Status on_begun(uint64_t token, wire::Opcode opcode, ByteReader& body);
  Status on_completed(uint64_t token, wire::Opcode opcode, ByteReader& body);
  Status on_renewed(wire::Opcode opcode, ByteReader& body);
  void renewal_failed(const Status& status, rpc::Executed executed);
  void flush_begins();
  void flush_completions();
  void renew();
  void opening_ends(const Status& status);

  rpc::Worker& worker_;
  CatalogCache& catalog_;
  EngineCounters& counters_;
  const Options options_;
  rpc::Channel channel_;
  Status end_;
  SessionId id_;
  uint64_t manager_epoch_ = 0;
  uint64_t lease_ns_ = 0;
  std::string admin_address_;
  bool refreshing_ = false;
  uint64_t refresh_again_ns_ = 0;
  bool closing_ = false;

  // While it opens.
  fiber::Event* opening_ = nullptr;
  Status open_result_;
  Status last_refusal_;

  uint64_t renew_at_ns_ = 0;
  bool renewing_ = false;
  uint64_t newest_snapshot_ = 0;

  BeginBatcher begins_;
  Completion completions_;
  std::vector<uint64_t> released_;
  std::map<uint64_t, uint32_t> snapshot_holders_;  // by number
  // Under way, by token: begins have even tokens, completions odd ones.
  uint64_t next_token_ = 0;
  std::unordered_map<uint64_t, BeginGroup> open_begins_;
  std::unordered_map<uint64_t, Completion> open_completions_;
  wire::Begun begun_;          // reused
  wire::Completed completed_;  // reused
};

}  // namespace loam::client
