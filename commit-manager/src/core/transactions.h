// Ids, the open set, snapshots and publications: what the commit manager promises about time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include <loam/commit/core.h>

#include "commit-manager/src/core/flat_table.h"
#include "commit-manager/src/core/id_set.h"
#include "commit-manager/src/core/open_snapshots.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/snapshot/publication.h"
#include "common/snapshot/snapshot.h"
#include "common/wire/manager.h"

namespace loam::commit {

/// How much one session holds; kept in the session, changed by Transactions alone.
struct SessionLoad {
  size_t open = 0;               ///< transactions begun and neither aborted nor accepted as committed
  size_t snapshots = 0;          ///< registered snapshots
  uint64_t newest_snapshot = 0;  ///< its number; 0: there is none
};

/// Transactions and snapshots of all sessions. Messages are decoded before, and encoded after.
///
/// Owner: Core. One thread. Per batch: O(open transactions) with about a nanosecond each (the snapshot is copied and
/// encoded, and completed ids are squeezed out of the open set); per transaction: two hash lookups.
///
/// State of an id: not given out → open → (accepted: in the commit log, but not yet seen) → finished, which is
/// committed or aborted. `first` up to last_id() have been given out; an id that is not in the table is finished. A
/// finished commit whose record in the log is not on the disk yet is *unflushed*: snapshots see it, publications and
/// seen_by_all() do not count on it (R13).
///
/// Invariants (check_invariants()):
/// 1. `open_` lists the ids of all transactions that are not finished, ascending; last_id_ is not below any.
/// 2. A new snapshot sees the ids up to `finished_` (the highest finished one) that are not in `open_`.
/// 3. Every open transaction and every upgradable snapshot holds one entry of `snapshots_` as writer; every registered
///    read-only snapshot, one as reader; there are no other holders.
/// 4. `newest_` is kNone, or an entry that sees exactly what a new snapshot would see.
class Transactions {
 public:
  explicit Transactions(const CoreOptions& options);

  struct Begun {
    TransactionId first;
    uint64_t snapshot_number = 0;
    uint64_t upgradable_number = 0;
    /// Lives until the next call.
    const Snapshot* snapshot = nullptr;
    Version seen_by_all;
    /// Commits up to here that the snapshot sees are on the disk. An id that stays open does not hold it back.
    Version durable;
  };

  /// Begins transactions with consecutive ids and registers snapshots, all on one snapshot, and draws ids for
  /// upgradable snapshots that the session holds (R12). All or nothing: kInvalidArgument, kOverloaded.
  Status begin(SessionId session, SessionLoad& load, const wire::Begin& asked, uint64_t now_ns, Begun& begun);

  /// Ends transactions of this session, all or none (R8): those that are aborted are finished, those that are committed
  /// are accepted and stand in `accepted`, in the order of `outcomes`. Ids up to `lost` cannot be committed (R9): they
  /// stay open and stand in `refused`. kInvalidArgument: not this session's, not open, an id twice.
  Status complete(SessionId session, SessionLoad& load, std::span<const wire::Complete::Outcome> outcomes,
                  TransactionId lost, std::vector<TransactionId>& accepted, std::vector<TransactionId>& refused);
  /// These commits, which were accepted, may be seen: they are finished, and `unflushed` until flush().
  void finish_commits(std::span<const TransactionId> ids, bool unflushed);
  /// The records of these finished commits are on the disk.
  void flush(std::span<const TransactionId> ids);

  /// Lets go of registered snapshots. Unknown numbers are passed over: releasing is idempotent.
  void release(SessionId session, SessionLoad& load, std::span<const uint64_t> numbers);

  /// Lets go of the session's registered snapshots with numbers up to `newest` that are not in `held`, which ascends.
  void keep_only(SessionId session, SessionLoad& load, uint64_t newest, std::span<const uint64_t> held);

  /// Ends these sessions (ascending). Their open transactions stay open, as orphans, and are named to `orphan` in no
  /// order. An accepted commit is no orphan. One pass over all transactions, for any number of sessions.
  using OrphanVisitor = std::function<void(SessionId, TransactionId)>;
  void end_sessions(std::span<const SessionId> sessions, const OrphanVisitor& orphan);
  /// Finishes orphans as aborted: all that they wrote is undone.
  void abort_orphans(std::span<const TransactionId> ids);
  /// Drops the snapshots of these ended sessions (ascending). Called once every node has fenced them: a node without
  /// the fence still answers them. Such a node cannot tell from index entries, which are in no version order, that the
  /// snapshot is gone.
  void drop_snapshots(std::span<const SessionId> sessions);

  /// This session's registered snapshot of this number, or, if `number` is 0, the snapshot that its open transaction
  /// holds; null if it does not hold it any more. Lives until the next call.
  const Snapshot* held_snapshot(SessionId session, TransactionId id, uint64_t number) const;
  /// The session of a transaction that is open and no orphan; 0: it is none.
  SessionId owner(TransactionId id) const;

  /// Remembers which ids have been given out by now. Called regularly: ages are as exact as the distance of the calls.
  void mark_age(uint64_t now_ns);
  /// So much time does not count: the commit manager itself did not run.
  void forget_time(uint64_t ns) {
    for (AgeMark& mark : age_marks_) mark.at_ns += ns;
  }
  /// Sessions with a transaction that has been open for max_transaction_age_ns, ascending, the ended ones not.
  std::vector<SessionId> overaged(uint64_t now_ns);

  /// Makes the next publication (R13) into `publication`, whose memory is used again.
  void publish(uint64_t now_ns, Publication& publication);
  /// Something has changed that the newest publication does not say.
  bool changed() const { return changed_; }
  /// The newest publication named a floor for young snapshots; when they have aged or gone, a new one says more.
  bool floor_may_rise() const { return floor_may_rise_; }

  TransactionId last_id() const { return TransactionId(last_id_); }
  /// Commits that are not flushed do not count.
  Version seen_by_all() const;
  /// Every id up to here is finished.
  Version base() const;
  /// Every id from `first` to `last` has been given out and is finished, and its commit is flushed.
  bool finished(TransactionId first, TransactionId last) const;
  size_t unflushed() const { return unflushed_.size(); }
  std::vector<Orphan> orphans() const;
  /// Fills in what concerns transactions and snapshots.
  void report(Statistics& statistics) const;
  void check_invariants() const;

 private:
  enum class State : uint8_t {
    kOpen,
    kNamed,  ///< in the message under way; no such state survives complete()
    kAccepted,
  };
  struct Transaction {
    uint64_t id = 0;
    SessionId session;
    OpenSnapshots::Slot snapshot = OpenSnapshots::kNone;
    State state = State::kOpen;
    bool orphaned = false;  ///< its session has ended, while it was open
  };
  struct Registered {
    uint64_t id = 0;  ///< the snapshot's number
    SessionId session;
    OpenSnapshots::Slot snapshot = OpenSnapshots::kNone;
    bool upgradable = false;
    uint64_t older = 0;  ///< number of the session's registered snapshot before it; `newer` likewise; 0: none
    uint64_t newer = 0;
  };
  struct VisibleNow {
    Version base;
    std::span<const Version> open;
  };

  VisibleNow visible_now() const;
  /// The transactions that snapshots see even after a power failure: visible_now() without the unflushed commits.
  VisibleNow durable_now() const;
  Version durable_base() const;
  Status admit(SessionId session, const SessionLoad& load, const wire::Begin& asked);
  void draw_id(SessionId session, OpenSnapshots::Slot snapshot);
  uint64_t add_registered(SessionId session, SessionLoad& load, bool upgradable);
  void end_registered(Registered* registered);
  /// Takes it out of the list of its session.
  void unlink(SessionLoad& load, const Registered& registered);
  Status take_newest(uint64_t now_ns);
  Status name(SessionId session, TransactionId id);
  /// Takes the transactions of named_ out: they are finished.
  void finish_named();
  void let_go(OpenSnapshots::Slot slot, uint32_t writers, uint32_t readers);
  void squeeze_open();
  void move_marks(uint64_t now_ns);
  OpenSnapshots::Slot list_exactly(uint64_t now_ns, std::vector<OldSnapshot>& old) const;

  const CoreOptions& options_;

  uint64_t last_id_;
  uint64_t finished_;
  std::vector<Version> open_;
  IdSet unflushed_;
  size_t accepted_ = 0;  // number of accepted transactions in transactions_
  FlatTable<Transaction> transactions_;
  FlatTable<Registered> registered_;
  uint64_t last_number_ = 0;
  OpenSnapshots snapshots_;
  OpenSnapshots::Slot newest_ = OpenSnapshots::kNone;

  // Publication.
  bool changed_ = true;
  bool floor_may_rise_ = false;
  uint64_t publication_number_ = 0;
  uint64_t exact_ = 0;
  uint64_t old_mark_;   ///< last_id_ as it was at least `young_ns` ago
  uint64_t next_mark_;  ///< as it was at mark_ns_
  uint64_t mark_ns_ = 0;

  /// Ids up to `last_id` had been given out at `at_ns`.
  struct AgeMark {
    uint64_t at_ns = 0;
    uint64_t last_id = 0;
  };
  std::deque<AgeMark> age_marks_;

  // Scratch.
  std::vector<uint64_t> named_;
  std::vector<Version> finished_ids_;
  mutable std::vector<Version> unflushed_ids_;
  mutable std::vector<Version> not_durable_;

  uint64_t begins_ = 0;
  uint64_t commits_ = 0;
  uint64_t aborts_ = 0;
  uint64_t read_only_begins_ = 0;
  uint64_t upgradable_begins_ = 0;
  uint64_t upgrades_ = 0;
  size_t upgradable_open_ = 0;  ///< of registered_
  uint64_t orphaned_open_ = 0;
};

}  // namespace loam::commit
