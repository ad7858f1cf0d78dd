// Transaction ids, the set of open ids, snapshots and publications.
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

/// The transactions and snapshots that one session holds. The session keeps it; Transactions alone changes it.
struct SessionUsage {
  size_t open = 0;               ///< transactions begun, and neither aborted nor accepted as committed
  size_t snapshots = 0;          ///< registered snapshots
  uint64_t newest_snapshot = 0;  ///< number of the newest registered snapshot; 0: there is none
};

/// The transactions and snapshots of all sessions. It knows no messages: Core decodes before and encodes after a
/// call.
///
/// Owner: Core. One thread. A batch costs O(open transactions), about a nanosecond each: the snapshot is copied and
/// encoded, and completed ids are removed from the open set. A transaction costs two hash lookups.
///
/// States of an id. An id that was given out and is not in transactions_ is finished.
///
///     not given out ── begin() ──▶ open ── complete(), committed ──▶ committing ── finish_commits() ──▶ finished
///                                   │                                                                   ▲
///                                   └── complete(), aborted ────────────────────────────────────────────┤
///                                   └── end_sessions() ──▶ open, orphaned ── abort_orphans() ───────────┘
///
/// * open: the session of the transaction may complete it.
/// * committing: the commit is in the commit log or on its way there, and snapshots do not see it yet. It cannot
///   become an orphan: once accepted, it stays a commit.
/// * orphaned: the session has ended, so no completion is accepted. Recovery undoes the writes before the id is
///   finished; otherwise a later snapshot would see writes of an aborted transaction.
/// * finished: committed or aborted; every later snapshot counts the id as such. A finished commit whose record is
///   not on the disk yet is *unflushed*: snapshots see it, but publications and seen_by_all() count it as open (R13,
///   atomic publication).
///
/// Invariants (check_invariants()):
/// 1. `open_` lists the ids of all transactions that are not finished, ascending; none is above last_id_.
/// 2. A new snapshot sees the ids up to `finished_` (the highest finished one) that are not in `open_`.
/// 3. Every transaction in transactions_ and every upgradable snapshot holds one entry of `snapshots_` as writer.
///    Every registered read-only snapshot holds one as reader. There are no other holders.
/// 4. `newest_` is kNone, or an entry that sees exactly what a new snapshot would see.
class Transactions {
 public:
  explicit Transactions(const CoreOptions& options);

  struct BeginResult {
    TransactionId first;             ///< the first of the consecutive ids; 0: none was drawn
    uint64_t snapshot_number = 0;    ///< of the registered read-only snapshot; 0: none
    uint64_t upgradable_number = 0;  ///< of the registered upgradable snapshot; 0: none
    /// Valid until the next call.
    const Snapshot* snapshot = nullptr;
    Version seen_by_all;  ///< see Transactions::seen_by_all()
    /// All commits up to this version that the snapshot sees are on the disk. Open ids do not hold it back.
    Version durable;
  };

  /// Begins transactions with consecutive ids and registers snapshots, all on one snapshot. Also draws ids for
  /// upgradable snapshots that the session holds (R12, ids at begin). After kInvalidArgument or kOverloaded nothing
  /// has changed.
  Status begin(SessionId session, SessionUsage& usage, const wire::Begin& request, uint64_t now_ns, BeginResult& begun);

  /// Completes transactions of this session (R8, completion by the owner). Aborted ids are finished. Committed ids
  /// become committing and are appended to `accepted`, in the order of `outcomes`. An id up to `lost` cannot be
  /// committed (R9, leases of storage nodes): it stays open and is appended to `refused`. kInvalidArgument, and
  /// nothing has changed: an id belongs to another session, is not open, or is named twice.
  Status complete(SessionId session, SessionUsage& usage, std::span<const wire::Complete::Completion> outcomes,
                  TransactionId lost, std::vector<TransactionId>& accepted, std::vector<TransactionId>& refused);
  /// Finishes accepted commits, so later snapshots see them. With `unflushed` they count as unflushed until flush().
  void finish_commits(std::span<const TransactionId> ids, bool unflushed);
  /// Notes that the records of these finished commits are on the disk.
  void flush(std::span<const TransactionId> ids);

  /// Releases registered snapshots of the session. Idempotent: unknown numbers are ignored.
  void release(SessionId session, SessionUsage& usage, std::span<const uint64_t> numbers);

  /// Releases the session's registered snapshots with numbers up to `newest`, except those in `held`, which ascends.
  void release_all_except(SessionId session, SessionUsage& usage, uint64_t newest, std::span<const uint64_t> held);

  /// Makes orphans of the open transactions of these sessions (ascending), and passes each to `orphan`, in any order.
  /// Accepted commits are not affected. Costs one pass over all transactions, for any number of sessions.
  using OrphanVisitor = std::function<void(SessionId, TransactionId)>;
  void end_sessions(std::span<const SessionId> sessions, const OrphanVisitor& orphan);
  /// Finishes orphans as aborted. Recovery has undone all their writes.
  void abort_orphans(std::span<const TransactionId> ids);
  /// Releases the registered snapshots of these ended sessions (ascending). Called when the sessions are fenced
  /// everywhere: a node without the fence still answers them, and it cannot detect from a read of an index node,
  /// which carries no snapshot, that the snapshot is gone (R14, refusal of old snapshots).
  void drop_snapshots(std::span<const SessionId> sessions);

  /// Returns this session's registered snapshot with this number; if `number` is 0, the snapshot of its transaction
  /// `id`. Null if the session does not hold it any more. Valid until the next call.
  const Snapshot* held_snapshot(SessionId session, TransactionId id, uint64_t number) const;
  /// Returns the session of a transaction that is not finished and no orphan; 0 for any other id.
  SessionId owner(TransactionId id) const;

  /// Records the highest id given out up to now. Ages are as exact as the interval between calls is short.
  void mark_age(uint64_t now_ns);
  /// Excludes this time from all ages, because the commit manager did not run.
  void exclude_downtime(uint64_t ns) {
    for (AgeMark& mark : age_marks_) mark.at_ns += ns;
  }
  /// Returns the sessions that have not ended and have a transaction open for max_transaction_age_ns, ascending.
  std::vector<SessionId> sessions_over_max_age(uint64_t now_ns);

  /// Writes the next publication (R13) into `publication` and uses its memory again.
  void publish(uint64_t now_ns, Publication& publication);
  /// True if something has changed since the newest publication.
  bool changed() const { return changed_; }
  /// True if the newest publication has a floor for young snapshots. A later one, when they are old or gone, says
  /// more.
  bool floor_may_rise() const { return floor_may_rise_; }

  TransactionId last_id() const { return TransactionId(last_id_); }
  /// Returns the version up to which every open and later snapshot sees all versions. Unflushed commits count as
  /// open.
  Version seen_by_all() const;
  /// Returns the id up to which every id is finished.
  Version base() const;
  /// True if every id from `first` to `last` was given out and is finished, and no commit of them is unflushed.
  bool finished(TransactionId first, TransactionId last) const;
  size_t unflushed() const { return unflushed_.size(); }
  std::vector<Orphan> orphans() const;
  /// Sets the fields of `statistics` about transactions and snapshots, except those about their ages.
  void report(Statistics& statistics) const;
  /// Sets the fields of `statistics` about the ages of snapshots.
  void report_ages(uint64_t now_ns, Statistics& statistics) const;
  /// Returns at most `max` open transactions and registered snapshots, those with the oldest snapshots first, without
  /// the names of their clients. Costs one pass over all.
  std::vector<TransactionStatus> oldest(size_t max, uint64_t now_ns) const;
  void check_invariants() const;

 private:
  enum class State : uint8_t {
    kOpen,
    kCompleting,  ///< named by the message under way; exists within complete() only
    kCommitting,  ///< accepted as committed, and not visible to snapshots yet
  };
  struct Transaction {
    uint64_t id = 0;
    SessionId session;
    OpenSnapshots::Slot snapshot = OpenSnapshots::kNone;
    State state = State::kOpen;
    bool orphaned = false;  ///< its session ended while it was open
  };
  struct RegisteredSnapshot {
    uint64_t id = 0;  ///< the snapshot's number
    SessionId session;
    OpenSnapshots::Slot snapshot = OpenSnapshots::kNone;
    bool upgradable = false;
    uint64_t older = 0;  ///< number of the session's previous registered snapshot; 0: none
    uint64_t newer = 0;  ///< number of the session's next registered snapshot; 0: none
  };
  /// The content of a snapshot taken now, whose high is finished_.
  struct VisibleNow {
    Version base;
    std::span<const Version> open;
  };

  VisibleNow visible_now() const;
  /// visible_now() with the unflushed commits counted as open: what snapshots see even after a power cut.
  VisibleNow durable_now() const;
  Version durable_base() const;
  Status check_begin(SessionId session, const SessionUsage& usage, const wire::Begin& request);
  void assign_id(SessionId session, OpenSnapshots::Slot snapshot);
  uint64_t register_snapshot(SessionId session, SessionUsage& usage, bool upgradable);
  void unregister_snapshot(RegisteredSnapshot* registered);
  /// Removes the snapshot from the list of its session.
  void unlink(SessionUsage& usage, const RegisteredSnapshot& registered);
  Status ensure_newest_snapshot(uint64_t now_ns);
  Status mark_completing(SessionId session, TransactionId id);
  /// Finishes the transactions of completing_ and removes them from transactions_.
  void finish_completing();
  void release_snapshot(OpenSnapshots::Slot slot, uint32_t writers, uint32_t readers);
  void remove_finished_from_open();
  void advance_age_bound(uint64_t now_ns);
  OpenSnapshots::Slot list_old_snapshots(uint64_t now_ns, std::vector<OldSnapshot>& old) const;

  const CoreOptions& options_;

  uint64_t last_id_;
  uint64_t finished_;
  std::vector<Version> open_;
  IdSet unflushed_;
  size_t committing_ = 0;  // number of transactions in state kCommitting
  FlatTable<Transaction> transactions_;
  FlatTable<RegisteredSnapshot> registered_snapshots_;
  uint64_t last_number_ = 0;
  OpenSnapshots snapshots_;
  OpenSnapshots::Slot newest_ = OpenSnapshots::kNone;

  // Publication.
  bool changed_ = true;
  bool floor_may_rise_ = false;
  uint64_t publication_number_ = 0;
  uint64_t exact_ = 0;
  uint64_t old_id_bound_;   ///< last_id_ at some time at least `young_ns` ago
  uint64_t next_id_bound_;  ///< last_id_ at id_bound_ns_; becomes old_id_bound_
  uint64_t id_bound_ns_ = 0;

  /// At `at_ns` ids up to `last_id` had been given out.
  struct AgeMark {
    uint64_t at_ns = 0;
    uint64_t last_id = 0;
  };
  std::deque<AgeMark> age_marks_;

  // Scratch memory of single calls.
  std::vector<uint64_t> completing_;
  std::vector<Version> finished_ids_;
  mutable std::vector<Version> unflushed_ids_;
  mutable std::vector<Version> not_durable_;

  uint64_t begins_ = 0;
  uint64_t commits_ = 0;
  uint64_t aborts_ = 0;
  uint64_t read_only_begins_ = 0;
  uint64_t upgradable_begins_ = 0;
  uint64_t upgrades_ = 0;
  size_t upgradable_open_ = 0;  ///< upgradable ones in registered_snapshots_
  uint64_t orphaned_transactions_ = 0;
};

}  // namespace loam::commit
