// The versions of one record form a chain. This file defines the steps by which threads and the compactor change it.
// [Thesis 4.4, with another order of steps; Harris 2001; rules R16 (claim first), R17 (freeze before unlink), R18 (page
// retirement), R20 (garbage and tombstones), R21 (exact-version writes)]
//
//   index slot ──▶ newest {open, n} ──▶ older {v1, n'} ──▶ oldest {v2, null}        versions fall from left to right
//                                                           (states of an entry's {valid_to, next}: log/entry.h)
//
// Transactional tables
//   write    1 find the newest version e; replace frozen heads; decide (e visible and open, put or tombstone)
//            2 append the new entry N {open → e}; the fill mark of its page covers it
//            3 claim: swap e's {open, n} to {id, n}            ◀ decides between writers; no later step can fail
//            4 link: index slot e → N                          ◀ linearization point of the write
//            If the record is absent, steps 3 and 4 are one: the index inserts N.
//            An update of some fields composes the row of N in step 2, from the row of e. It needs no further step,
//            because the row of e never changes, a copy of e has the same row, and the claim proves that e is still the
//            newest version. If the claim fails and step 1 finds another version, the writer kills N and composes anew.
//   revert   1 kill: swap the own head's {open, n} to dead     ◀ linearization point
//            2 unlink: index slot → n, or erase the key
//            3 re-open: swap n's {id, n'} to {open, n'}
//   get      walk from the slot to the first live version that the snapshot sees    ◀ linearization point: load of slot
//   move     copy the entry, swap {v, n} to {v, copy} moved, re-point the pointer that led to the original
//   collect  kill a version that is garbage (or a lone tombstone), re-point the pointer that led to it
//
// Why claim first. The thesis uses the order append, swap of the slot, valid_to of e. A writer W that sleeps before its
// swap of the slot can then succeed although another transaction has written and reverted meanwhile, because that
// revert has brought e back into the slot (ABA). The last step of the revert then clears the valid_to that W has set.
// Two versions are open for ever. Here the slot leaves e only after a claim on e. A claim needs {open, …}, and e
// becomes open again only after the slot has come back to it (the order of a revert).
//
// Non-transactional tables keep one version. `next` is null, or the successor in a frozen entry.
//   write    1 append N {pending}
//            2 swap the newest version's {open, null} to {N's version, N} replaced              ◀ linearization point
//            3 slot → N                                        any thread that meets the replaced entry can do it
//            4 N {pending} → {open}                            any thread that meets N in the slot can do it
//            If the record is absent, the index inserts N (◀ linearization point) instead of steps 2 and 3.
//   remove   kill the newest version: {open, null} to dead (◀ linearization point), then erase the key
//   One swap does the claim, the freeze and the pointer to the successor. So no writer waits for a sleeping writer, nor
//   fails because of it. kPending hides the entry of a failed write from scans, which promise only the records that do
//   not change (R21).
//
// Invariants, at every instant
//  C1. A slot or a live entry above the horizon leads, through moved entries, to the next older live version, possibly
//      over dead ones.
//  C2. If the slot leads to an entry that is live and open, this entry is the newest version.
//  C3. Until a version is re-opened, one claim on it succeeds at most, and only the claimer links its entry above it.
//  C4. Versions fall strictly along the chain.
//  C5. Frozen entries never change, so a swap that expects a live value fails once the entry is frozen.
//
// Horizon (Table::horizon()). Every open and every later snapshot sees all versions up to the horizon. So no thread
// needs an entry behind a version at or below the horizon, and no thread follows the pointer of such a version. The
// pointer may lead into a freed page. The compactor drops a version whose valid_to is not above the horizon: it reads
// the entry and neither freezes nor unlinks it, and looks up no chain. Proof that no followed pointer leads to a
// dropped version d. The pointer is in the successor of d, which is at or below the horizon, or in an entry that led
// to the successor when that one was dropped or collected.
//  * The successor was dropped: by induction, the entry is at or below the horizon too.
//  * The successor was collected, and was at or below the horizon then: it is frozen with null behind it.
//  * The successor was collected, and was above the horizon: a version above the present horizon may lead past it. Then
//    the compactor does not drop d. It kills and unlinks d (TableCompactor::droppable()).
//  * The successor was reverted: the slot takes over its pointer to d, but the revert opens d again, so d is not
//    dropped.
// The horizon rises before the compactor waits for an epoch, and entries are dropped only afterwards. So every later
// guard loads the new horizon (R18, decision 0011).
//
// Helping (R17). A write, a revert or the compactor that meets a frozen entry changes the pointer that led to it. It
// changes the slot by HashIndex::replace() or erase(), and a live predecessor by a double-width swap of exactly the
// pointer that it read. It always installs an entry that was live when this operation read it. A reader helps at the
// head of the chain only and passes through frozen entries behind it, because their pointers are constant and stay
// readable until its guard ends.
//
// Reclamation. repair() returns only after a walk from the slot has met no frozen entry. All entries of a page under
// compaction are frozen. A thread that can still install one of them has read it live, in a guard that began before the
// freeze. So an epoch after the last freeze, the compactor calls repair() for the key of each frozen entry. From then
// on no pointer leads into the page, except those that no thread follows (horizon). A further epoch later, no thread
// holds an address in the page (R18).
//
// ABA. Addresses are not used again within a guard, except those behind a version at or below the horizon, on which no
// decision depends. A live word {v, n} can come back: {open, n} after a claim and its revert. Then the newest version
// is the same as before, so the decisions that the expecting operation made from it are still right. A slot can come
// back to e in the same way. This is harmless, because only the claimer of e swaps the slot from e to a new entry, and
// while its claim stands no other claim on e succeeds.
//
// Progress: gets are wait-free except the index lookup. Writes and reverts are lock-free: a retry means that another
// operation or the compactor has made a step. While a writer sleeps after its claim, others get kConflict at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/ids.h"
#include "common/snapshot/publication.h"
#include "storage-node/src/index/hash_index.h"
#include "storage-node/src/log/entry.h"
#include "storage-node/src/log/thread_context.h"

namespace loam::storage {

/// Gives one operation access to the chain of one record: the steps above as functions.
///
/// Owner and thread: the operation. Life: within the caller's epoch guard.
class Chain {
 public:
  /// The newest version of the record as the operation saw it.
  struct NewestVersion {
    Entry* entry = nullptr;  ///< live when it was read; null: the record is absent
    Link link;               ///< the pair of the entry at that moment

    /// The version number. 0: the record is absent.
    Version version() const { return entry == nullptr ? Version() : entry->version(); }
  };
  /// The garbage that collect() has removed.
  struct CollectResult {
    uint64_t versions = 0;    ///< superseded versions
    uint64_t tombstones = 0;  ///< lone tombstones
    Version over_horizon;     ///< the highest removed version above the horizon; 0: none

    /// Counts a removed version.
    void add(const Entry& version, Version horizon) {
      ++versions;
      if (version.version() > horizon) over_horizon = std::max(over_horizon, version.version());
    }
  };

  /// Looks up the key.
  Chain(HashIndex& index, ThreadContext& thread, Key key) : Chain(index, thread, index.find(key)) {}
  /// Begins with a lookup that the caller has done in the present guard.
  Chain(HashIndex& index, ThreadContext& thread, const Cursor& found)
      : index_(index), thread_(thread), cursor_(found) {}

  /// Looks up the key again. An operation calls it after a swap that failed.
  void refresh() { cursor_ = index_.find(cursor_.key); }
  /// The latest lookup.
  const Cursor& cursor() const { return cursor_; }

  /// Returns the newest version. Re-points the slot until it leads to a live entry. If that entry is pending, publishes
  /// it, because a non-transactional version is valid as soon as the slot leads to it.
  NewestVersion newest();

  /// Removes all frozen entries from the chain, down to the horizon, and returns the newest version. Repeats newest()
  /// and a walk, which re-points each live entry that leads to a frozen one, until a walk meets no frozen entry.
  NewestVersion repair(Version horizon) { return collect(horizon, nullptr, nullptr); }
  /// Does the work of repair() and kills the garbage that it meets: older versions, and the newest one if it is a lone
  /// tombstone (R20). `publication` decides which versions are garbage; null: none. Adds to `collected` unless null.
  NewestVersion collect(Version horizon, const Publication* publication, CollectResult* collected);

  /// Steps 3 and 4 of a write of an absent record: the index inserts `entry`.
  InsertOutcome insert(Entry* entry, Reserve reserve) {
    return index_.insert(thread_.epochs(), entry, cursor_, reserve);
  }
  /// Step 4 of a write: links `entry` above `claimed`, which the caller has claimed. Cannot fail.
  void link(Entry* claimed, Entry* entry);
  /// Steps 3 and 4 of a non-transactional write, after `entry` has replaced the newest version.
  void link_successor(Entry* entry);

  // Steps on one entry.

  /// Claims the newest version: {open, n} → {id, n}. False: the pair has changed, and the caller looks up the key
  /// again.
  static bool claim(const NewestVersion& newest, Version id) {
    Link expected = newest.link;
    return newest.entry->compare_exchange_link(expected, {id.value, newest.link.address, EntryState::kLive});
  }
  /// Kills an entry if its pair is exactly `expected`.
  static bool kill(Entry* entry, Link expected) {
    return entry->compare_exchange_link(expected, {expected.valid_to, expected.address, EntryState::kDead});
  }
  /// Kills a superseded version that is garbage, if its pair is exactly `expected`. The dead entry of a version at or
  /// below the horizon leads to null, because the entry behind it may be freed, and a thread that has reached the dead
  /// entry continues from this pointer.
  static bool kill_collected(Entry* entry, Link expected, Version horizon) {
    Entry* const behind = entry->version() <= horizon ? nullptr : expected.address;
    return entry->compare_exchange_link(expected, {expected.valid_to, behind, EntryState::kDead});
  }
  /// Kills an appended entry that was never linked. No other operation changes such an entry.
  static void kill_unlinked(Entry* entry);
  /// Step 3 of a revert: {id, n} → {open, n}, at the present place of the version. Only the revert that has killed the
  /// entry of `id` calls it, so the claim is undone once.
  static void reopen(Entry* entry, Version id);
  /// Step 4 of a non-transactional write: {kPending, null} → {kOpen, null}. No effect on any other pair.
  static void publish_pending(Entry* entry);
  /// Sets the pointer of an appended entry, which is not linked yet, to the older version.
  static void set_older_unlinked(Entry* entry, Entry* older);

  /// Pointers to frozen entries that this operation has replaced, or found replaced by another thread.
  uint64_t helped() const { return helped_; }

 private:
  void repair_slot(Link head);
  bool repair_behind(const NewestVersion& head, Version horizon, const Publication* publication,
                     CollectResult* collected);
  static bool kill_lone_tombstone(Entry* entry, Version horizon, const Publication& publication);

  HashIndex& index_;
  ThreadContext& thread_;
  Cursor cursor_;
  uint64_t helped_ = 0;
};

}  // namespace loam::storage
