// Ends the transactions of dead clients, and clears away what they have left in indexes [Thesis 3.2.2; R2, R5, R8, R9,
// R11, R31; docs/decisions/0008-death-and-recovery.md]. For the commit manager: it is not installed for applications.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/net/address.h"
#include "common/wire/catalog.h"
#include "common/wire/fence_set.h"
#include "common/wire/identity.h"

namespace loam::client {

/// One transaction to end. Its session is fenced at every node, or counted so (R9).
struct RecoveryTask {
  enum class Kind : uint8_t {
    kOpen,       ///< not completed: its outcome is decided, carried out, reported, and its undo record removed
    kUncleared,  ///< completed: only its undo record is still to be removed (R5)
    kFound,      ///< scan() found its undo record: as kOpen; if it is gone by then, another recoverer has ended it
  };
  TransactionId id;
  SessionId session;  ///< that began it
  Kind kind = Kind::kOpen;
};

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

/// Counts since the start, and levels.
struct RecovererStatistics {
  uint64_t committed = 0;   ///< open transactions whose mark stood
  uint64_t aborted = 0;     ///< the others
  uint64_t cleared = 0;     ///< undo records removed, or found to be gone
  uint64_t reverted = 0;    ///< records of aborted transactions, whether or not there was something to take back
  uint64_t repeated = 0;    ///< attempts that ended at a node that did not answer, or refused
  uint64_t unreadable = 0;  ///< undo records that are malformed: their transactions stay open
  /// Level: whose they are, the first kMaxUnreadableListed.
  std::vector<TransactionId> unreadable_ids;
  uint64_t rounds = 0;                 ///< of the recoverer's thread; each call from outside makes at least one
  uint64_t scans = 0;                  ///< of the transaction table, the repeated ones included
  uint64_t sweeps = 0;                 ///< of all indexes
  uint64_t swept_nodes = 0;            ///< nodes of indexes that ended sessions had left outside of their trees
  uint64_t queued = 0;                 ///< level: tasks that wait for their turn
  uint64_t running = 0;                ///< level: worked on now
  std::map<NodeId, uint64_t> waiting;  ///< level: tasks that wait for a node, where there are any
};

/// Runs one RecoveryMachine (client-lib/src/core/recovery_machine.h) for every transaction that it is given, many at
/// once, over connections of its own. A transaction that needs a node which does not answer waits for that node, which
/// is asked again and again with growing pauses; the others go on (R9).
///
/// Owner: the commit manager. Threads: one of its own, for everything that it does; every function but start() and
/// stop() may be called from any thread and returns at once. What one caller calls takes effect in that order.
///
/// Invariants: (1) an id is worked on once at a time, however often it was given; (2) an undo record is removed only
/// after acknowledged(), so that a reader who finds none knows that the only outcome is aborted; (3) every step may be
/// repeated: being stopped or killed anywhere does no harm; the same tasks, given to the next recoverer, end in the
/// same way.
class Recoverer {
 public:
  /// kUnavailable, kInternal: no thread or no socket. It knows no node before set_catalog().
  static Result<std::unique_ptr<Recoverer>> start(RecovererOptions options);
  ~Recoverer();
  Recoverer(const Recoverer&) = delete;
  Recoverer& operator=(const Recoverer&) = delete;

  /// Nodes, incarnations and shard map as they are now. What waited for a node that has changed is tried at once.
  void set_catalog(wire::Catalog catalog);
  /// Tasks that it has already are ignored: give it the same again as often as is convenient.
  void add(std::vector<RecoveryTask> tasks);
  /// on_recovered() of this id was carried out.
  void acknowledged(TransactionId id);
  /// After a restart of the commit manager (R11), when every older session is fenced at every node: ends every
  /// transaction that has an undo record. A node that cannot be scanned is waited for. Another call while a scan is
  /// under way begins it anew.
  void scan();

  /// Removes what sessions that are fenced by `ended`, at every node, have left half made in indexes (R31). Takes its
  /// time, beside everything else; ignored while one is under way.
  void sweep(wire::FenceSet ended);

  /// An operator gives up a transaction whose undo record cannot be read: it ends as one whose undo record was lost,
  /// aborted, and what it has written stays as if it had been committed. Without effect for any other id.
  void accept_unreadable(TransactionId id);

  /// Stops at the next step. Blocks; no callback comes after it. The destructor does the same.
  void stop();

  /// As of the end of the thread's last round. Never waits.
  RecovererStatistics statistics() const;

 private:
  class Impl;
  explicit Recoverer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::client
