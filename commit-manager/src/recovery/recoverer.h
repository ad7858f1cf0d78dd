// Ends the transactions of dead clients, and clears away what they have left in indexes [Thesis 3.2.2; R2, R5, R8, R9,
// R11, R31; docs/decisions/0008-death-and-recovery.md].
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <loam/commit/core.h>
#include <loam/commit/statistics.h>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/base/thread.h"
#include "common/net/address.h"
#include "common/rpc/worker.h"
#include "common/wire/catalog.h"
#include "common/wire/fence_set.h"
#include "common/wire/identity.h"

namespace loam::commit {

/// All callbacks come on the recoverer's own thread, one at a time, from start() to the return of stop(). They must not
/// wait, and must not call stop(); they may call everything else.
struct RecovererOptions {
  /// Of the nodes' addresses: those of one cluster speak one protocol.
  net::Scheme scheme = net::Scheme::kTcp;
  uint64_t manager_epoch = 0;
  wire::ClusterId cluster{};
  /// The recoverer's own session: what it attaches to the nodes with, and what a later recoverer fences.
  SessionId session;
  /// Transactions worked on at one time. Those that wait for a node that does not answer are not counted.
  size_t parallel = 256;
  /// For one request and its answer; then the node counts as unreachable for a moment, and is asked again.
  uint64_t request_timeout_ns = 2'000'000'000;

  /// The outcome of an open transaction stands, and everything that follows from it is carried out: complete it, then
  /// call acknowledged(). May come again for an id, from this recoverer or a later one: the first outcome stands.
  std::function<void(TransactionId, bool committed)> on_recovered;
  /// Its undo record is gone.
  std::function<void(TransactionId)> on_cleared;
  /// Every undo record that scan() found has been dealt with, or kMalformed: all but some that cannot be read; those
  /// transactions stay as they are, and nothing may begin as if they were over.
  std::function<void(Status)> on_scan_done;
  /// The sweep is over: ok, or it has to be repeated, because a node did not answer.
  std::function<void(Status)> on_swept;
  /// This recoverer is fenced: it does nothing any more. Stop it, and start another one with a new session. At most
  /// once.
  std::function<void(Status)> on_failed;
  /// A line for operators: a node that is waited for, an undo record that cannot be read. May be empty.
  std::function<void(std::string_view)> on_note;
};

/// Most unreadable undo records that are listed at once; the operator sees further ones when these are dealt with.
inline constexpr size_t kMaxUnreadableListed = 64;

class RecoveryEngine;

/// What the recovery driver needs of a recoverer. Every function may be called from any thread and returns at once;
/// what one caller calls takes effect in that order.
class RecoveryWorker {
 public:
  /// Stops at the next step. Blocks; no callback comes after it.
  virtual ~RecoveryWorker() = default;

  /// Nodes, incarnations and shard map as they are now. What waited for a node that has changed is tried at once.
  virtual void set_catalog(wire::Catalog catalog) = 0;
  /// Tasks that it has already are ignored: give it the same again as often as is convenient.
  virtual void add(std::vector<RecoveryTask> tasks) = 0;
  /// on_recovered() of this id was carried out.
  virtual void acknowledged(TransactionId id) = 0;
  /// After a restart of the commit manager (R11), when every older session is fenced at every node: ends every
  /// transaction that has an undo record. A node that cannot be scanned is waited for. Another call while a scan is
  /// under way begins it anew.
  virtual void scan() = 0;
  /// Removes what sessions that are fenced by `ended`, at every node, have left half made in indexes (R31). Takes its
  /// time, beside everything else; ignored while one is under way.
  virtual void sweep(wire::FenceSet ended) = 0;
  /// An operator gives up a transaction whose undo record cannot be read: it ends as one whose undo record was lost,
  /// aborted, and what it has written stays as if it had been committed. Without effect for any other id.
  virtual void accept_unreadable(TransactionId id) = 0;
  /// As of the end of the thread's last round. Never waits. RecoveryStatistics::starts is the driver's.
  virtual RecoveryStatistics statistics() const = 0;
};

/// Runs one RecoveryMachine (commit-manager/src/recovery/recovery_machine.h) for every transaction that it is given,
/// many at once, over connections of its own. A transaction that needs a node which does not answer waits for that
/// node, which is asked again and again with growing pauses; the others go on (R9).
///
/// Owner: the recovery driver. Threads: one of its own, for everything that it does.
///
/// Invariants: (1) an id is worked on once at a time, however often it was given; (2) an undo record is removed only
/// after acknowledged(), so that a reader who finds none knows that the only outcome is aborted; (3) every step may be
/// repeated: being stopped or killed anywhere does no harm; the same tasks, given to the next recoverer, end in the
/// same way.
class Recoverer final : public RecoveryWorker {
 public:
  /// kUnavailable, kInternal: no thread or no socket. It knows no node before set_catalog().
  static Result<std::unique_ptr<Recoverer>> start(RecovererOptions options);
  ~Recoverer() override;
  Recoverer(const Recoverer&) = delete;
  Recoverer& operator=(const Recoverer&) = delete;

  void set_catalog(wire::Catalog catalog) override;
  void add(std::vector<RecoveryTask> tasks) override;
  void acknowledged(TransactionId id) override;
  void scan() override;
  void sweep(wire::FenceSet ended) override;
  void accept_unreadable(TransactionId id) override;
  RecoveryStatistics statistics() const override;

  /// As the destructor. Once it has returned, calls have no effect.
  void stop();

 private:
  explicit Recoverer(std::unique_ptr<rpc::Worker> worker);

  /// Runs `task` on the worker's thread, after all earlier tasks. Nothing after stop().
  template <class Task>
  void post(Task task) {
    const std::lock_guard lock(mutex_);
    if (!stopped_) worker_->scheduler().post(std::move(task));
  }

  Mutex mutex_;
  bool stopped_ = false;  // guarded by mutex_
  const std::unique_ptr<rpc::Worker> worker_;
  std::unique_ptr<RecoveryEngine> engine_;  // set before any other thread knows of it
};

}  // namespace loam::commit
