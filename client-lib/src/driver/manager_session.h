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
#include "client-lib/src/driver/link.h"
#include "client-lib/src/driver/worker.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/wire/manager.h"

namespace loam::client {

/// Most outcomes of one Complete, ids of one Cleared and numbers of one ReleaseSnapshots.
inline constexpr size_t kMaxCompletions = 4'096;

/// Who waits for the acknowledgement of an outcome.
class CompletionWaiter {
 public:
  virtual void on_completed() = 0;
  /// `sent`: the commit manager may have done it.
  virtual void on_completion_failure(const Status& status, bool sent) = 0;

 protected:
  ~CompletionWaiter() = default;
};

/// One registration at the commit manager (R3).
///
/// Owner: the engine; the worker's thread only, in fibers where it says so. What fibers ask for during a round is
/// gathered and leaves in flush(): one Begin, one Complete, one Cleared. The session ends once, by close(), by the loss
/// of its connection or by give_up(); from then on everything fails with the reason.
class ManagerSession final : private Asker {
 public:
  ManagerSession(Worker& worker, CatalogCache& catalog, const std::string& address, uint64_t request_timeout_ns);

  /// In a fiber. Connects, registers, takes the catalog. While the cluster says that it is starting, tries again until
  /// `deadline_ns`.
  Status open(const std::string& client_name, uint64_t deadline_ns);
  /// In a fiber. Orderly end; what is still to be told is told first.
  void close(uint64_t deadline_ns);

  /// In a fiber. kUnavailable, kTimeout, kOverloaded.
  BeginAnswer begin(bool read_only);
  /// A read-only snapshot is not needed any more. Snapshots of one Begin are shared: the last one tells the CM.
  void release(uint64_t snapshot_number);
  /// `waiter` may be null: nobody waits.
  void complete(TransactionId id, bool committed, CompletionWaiter* waiter, uint64_t delay_ns = 0);
  void cleared(TransactionId id) { cleared_.push_back(id); }

  /// In a fiber: request and answer, with the request's deadline.
  template <wire::Message Reply, wire::Message M>
  Result<Reply> ask(const M& message) {
    return Question<Reply>::ask(link_, message, worker_.now_ns() + request_timeout_ns_);
  }
  /// In a fiber: the catalog as it is now.
  Status refresh_catalog();
  /// Asks for a newer catalog and does not wait: a server spoke of one, or refused us as behind the times.
  void refresh_soon();

  /// Sends what was gathered.
  void flush();
  void expire(uint64_t now_ns) { link_.expire(now_ns); }
  uint64_t earliest_deadline_ns() const { return link_.earliest_deadline_ns(); }

  /// Ok while the session lives.
  const Status& status() const { return end_; }
  /// This client must not go on: recovery will finish what it has left (R2).
  void give_up(const Status& status);

  SessionId id() const { return id_; }
  uint64_t manager_epoch() const { return manager_epoch_; }
  const std::string& admin_address() const { return admin_address_; }
  bool connection_gone() const { return link_.idle(); }

 private:
  /// One fiber's begin. If the fiber has gone, what comes is given back.
  struct Ticket final : BeginWaiter {
    explicit Ticket(ManagerSession& owner) : session(owner) {}
    void on_begun(const BeginAnswer& got) override;
    ManagerSession& session;
    BeginAnswer answer;
    fiber::Event answered;
    bool abandoned = false;
  };
  struct Completion {
    std::vector<wire::Complete::Outcome> outcomes;
    std::vector<CompletionWaiter*> waiters;
  };

  Status on_reply(uint64_t token, wire::Opcode opcode, ByteReader& body) override;
  void on_failure(uint64_t token, const Status& status, bool sent) override;
  Status on_begun(uint64_t token, wire::Opcode opcode, ByteReader& body);
  Status on_completed(uint64_t token, wire::Opcode opcode, ByteReader& body);
  void flush_begins();
  void flush_completions();
  void end(const Status& status);
  Status try_open(const std::string& client_name, uint64_t deadline_ns);

  Worker& worker_;
  CatalogCache& catalog_;
  const uint64_t request_timeout_ns_;
  Link link_;
  Status end_;
  SessionId id_;
  uint64_t manager_epoch_ = 0;
  std::string admin_address_;
  bool refreshing_ = false;
  bool closing_ = false;

  BeginBatcher begins_;
  Completion completions_;
  std::vector<TransactionId> cleared_;
  std::vector<uint64_t> released_;
  std::map<uint64_t, uint32_t> snapshot_holders_;  // by number
  // Under way, by token: begins have even tokens, completions odd ones.
  uint64_t next_token_ = 0;
  std::unordered_map<uint64_t, BeginGroup> open_begins_;
  std::unordered_map<uint64_t, Completion> open_completions_;
  wire::Begun begun_;  // reused
};

/// A read-only snapshot that is held until the object dies, on whatever thread.
class SnapshotLease {
 public:
  SnapshotLease(Worker& worker, ManagerSession& session, BeginAnswer answer)
      : worker_(worker), session_(session), answer_(std::move(answer)) {}
  ~SnapshotLease();
  SnapshotLease(const SnapshotLease&) = delete;
  SnapshotLease& operator=(const SnapshotLease&) = delete;

  const std::shared_ptr<const Snapshot>& snapshot() const { return answer_.snapshot; }

 private:
  Worker& worker_;
  ManagerSession& session_;
  const BeginAnswer answer_;
};

}  // namespace loam::client
