// Ids, the open set, snapshots and publications: what the commit manager promises about time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <loam/commit/core.h>

#include "commit-manager/src/core/flat_table.h"
#include "commit-manager/src/core/open_snapshots.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/snapshot/publication.h"
#include "common/snapshot/snapshot.h"
#include "common/wire/manager.h"

namespace loam::commit {

/// How much one session holds; kept in the session, changed by Transactions alone.
struct SessionLoad {
  size_t open = 0;       ///< transactions begun and not complete
  size_t uncleared = 0;  ///< complete, undo record not reported cleared
  size_t snapshots = 0;  ///< registered snapshots

  bool empty() const { return open + uncleared + snapshots == 0; }
};

/// Transactions and snapshots of all sessions. Messages are decoded before, and encoded after.
///
/// Owner: Core. One thread. Per batch: O(open transactions) with about a nanosecond each (the snapshot is copied and
/// encoded, and completed ids are squeezed out of the open set); per transaction: two hash lookups.
///
/// State of an id: not given out → open → committed or aborted → (cleared) forgotten. `first` up to last_id() have been
/// given out; an id that is not in the table is finished and cleared.
///
/// Invariants (check_invariants()):
/// 1. `open_` lists the ids of all open transactions, ascending; last_id_ is not below any.
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
  };

  /// Begins transactions with consecutive ids and registers snapshots, all on one snapshot, and draws ids for
  /// upgradable snapshots that the session holds (R12). All or nothing: kInvalidArgument, kOverloaded.
  Status begin(SessionId session, SessionLoad& load, const wire::Begin& asked, uint64_t now_ns, Begun& begun);

  /// Completes transactions of this session, all or none (R8). An outcome that was reported before is accepted again.
  /// kInvalidArgument: not this session's, not open, another outcome than before, an id twice.
  Status complete(SessionId session, SessionLoad& load, std::span<const wire::Complete::Outcome> outcomes);

  /// Forgets completed transactions (R5). Ids that are not this session's, or not complete, are passed over.
  void clear(SessionId session, SessionLoad& load, std::span<const TransactionId> ids);

  /// Lets go of registered snapshots. Unknown numbers are passed over: releasing is idempotent.
  void release(SessionId session, SessionLoad& load, std::span<const uint64_t> numbers);

  /// Lets go of the session's registered snapshots with numbers up to `newest` that are not in `held`, which ascends.
  void keep_only(SessionId session, SessionLoad& load, uint64_t newest, std::span<const uint64_t> held);

  /// These sessions (ascending) have ended: their transactions stay as they are, as orphans, and are named to `orphan`.
  /// One pass over everything, however many they are.
  using OrphanVisitor = std::function<void(SessionId, TransactionId, bool open)>;
  void end_sessions(std::span<const SessionId> sessions, const OrphanVisitor& orphan);
  /// Of these ended sessions (ascending), once they are fenced everywhere. A node that has no fence yet still answers
  /// them, and it cannot tell for the entries of an index, which are in no version order, that their snapshot is gone.
  void drop_snapshots(std::span<const SessionId> sessions);

  /// This session's registered snapshot of this number, or, if `number` is 0, the snapshot that its open transaction
  /// holds; null if it does not hold it any more. Lives until the next call.
  const Snapshot* held_snapshot(SessionId session, TransactionId id, uint64_t number) const;
  /// What is known of an id: open, one of the outcomes, or kForgotten.
  wire::Outcome outcome(TransactionId id) const;
  /// The session that left this transaction behind; 0: it is no orphan.
  SessionId orphan_of(TransactionId id) const;
  /// Completes an open orphan, exactly as its owner would have. False, and no effect, if it is no open orphan.
  bool recover(TransactionId id, bool committed);
  /// Forgets a complete orphan; nullopt if it is none, otherwise whether it was committed.
  std::optional<bool> forget_orphan(TransactionId id);

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
  Version seen_by_all() const;
  /// Every id up to here is finished.
  Version base() const;
  std::vector<Orphan> orphans() const;
  /// Fills in what concerns transactions and snapshots.
  void report(Statistics& statistics) const;
  void check_invariants() const;

 private:
  enum class State : uint8_t {
    kOpen,
    kCommitting,  ///< named in the message under way; no such state survives complete()
    kAborting,
    kCommitted,
    kAborted,
  };
  struct Transaction {
    uint64_t id = 0;
    SessionId session;
    OpenSnapshots::Slot snapshot = OpenSnapshots::kNone;
    State state = State::kOpen;
    bool orphaned = false;  ///< its session has ended
  };
  struct Registered {
    uint64_t id = 0;  ///< the snapshot's number
    SessionId session;
    OpenSnapshots::Slot snapshot = OpenSnapshots::kNone;
    bool upgradable = false;
  };
  struct VisibleNow {
    Version base;
    std::span<const Version> open;
  };

  VisibleNow visible_now() const;
  Status admit(SessionId session, const SessionLoad& load, const wire::Begin& asked);
  void draw_id(SessionId session, OpenSnapshots::Slot snapshot);
  uint64_t add_registered(SessionId session, SessionLoad& load, bool upgradable);
  void end_registered(Registered* registered);
  Status take_newest(uint64_t now_ns);
  Status check_outcome(SessionId session, const wire::Complete::Outcome& outcome);
  void apply_outcomes(SessionLoad& load);
  void let_go(OpenSnapshots::Slot slot, uint32_t writers, uint32_t readers);
  void squeeze_open();
  void move_marks(uint64_t now_ns);
  OpenSnapshots::Slot list_exactly(uint64_t now_ns, std::vector<OldSnapshot>& old) const;

  const CoreOptions& options_;

  uint64_t last_id_;
  uint64_t finished_;
  std::vector<Version> open_;
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

  // Scratch of complete().
  std::vector<Transaction*> named_;
  std::vector<Version> finished_ids_;

  uint64_t begins_ = 0;
  uint64_t commits_ = 0;
  uint64_t aborts_ = 0;
  uint64_t read_only_begins_ = 0;
  uint64_t upgradable_begins_ = 0;
  uint64_t upgrades_ = 0;
  size_t upgradable_open_ = 0;  ///< of registered_
  uint64_t orphaned_open_ = 0;
  uint64_t orphaned_uncleared_ = 0;
};

}  // namespace loam::commit
