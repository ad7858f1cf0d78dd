// The versions of one record as a chain, and the steps by which threads and the compactor change it together.
// [Thesis 4.4, with another order of steps; Harris 2001; rules R16–R18, R20, R21]
//
//   index slot ──▶ newest {open, n} ──▶ older {v1, n'} ──▶ oldest {v2, null}        versions fall from left to right
//                                                           (states of an entry's {valid_to, next}: log/entry.h)
//
// Transactional tables
//   write    1 find the newest version e, mending frozen heads; decide (visible, open, put or tombstone)
//            2 append the new entry N {open → e}; its page's fill mark covers it
//            3 claim: swap e's {open, n} to {id, n}            ◀ decides between writers; nothing after it can fail
//            4 link: index slot e → N                          ◀ linearization point of the write
//            If the record is absent, 3 and 4 are one: the index inserts N.
//            An update of some fields makes the row of N in step 2, out of e's. No step of its own, and no
//            interleaving: e's row never changes, a moved e's copy has the same, and the claim proves that e is still
//            the newest. If the claim is lost and step 1 finds another version, N is killed and made anew of that.
//   revert   1 kill: swap the own head's {open, n} to dead     ◀ linearization point
//            2 unlink: index slot → n, or erase the key
//            3 re-open: swap n's {id, n'} to {open, n'}
//   get      walks from the slot to the first live version that the snapshot sees: ◀ the load of the slot
//   move     copy, swap {v, n} to {v, copy} moved, mend whatever led to the original
//   collect  kill a version that is garbage (or a lone tombstone) and mend whatever led to it
//
// Why claim first. In the thesis's order (append, swap the slot, then set e's valid_to), a writer that sleeps before
// its swap can succeed after another one's write and revert have brought e back into the slot (ABA), and that revert's
// last step then wipes the valid_to that the first writer has set: two open versions for good. Here the slot leaves e
// only after a claim on e, a claim needs {open, …}, and e is open again only after the slot has come back to it
// (revert's order).
//
// Non-transactional tables keep one version; `next` is null or, frozen, the successor:
//   write    append N {pending}; swap the newest one's {open, null} to {N's version, N} replaced   ◀ linearization
//   point
//            then slot → N, then N {pending} → {open}: both by anyone who comes by
//            If the record is absent: the index inserts N          ◀ linearization point; then N {pending} → {open}
//   remove   kill the newest: {open, null} to dead                 ◀ linearization point; then erase the key
//   Claim, freeze and the way to the successor are one swap, so no writer ever waits for or fails by a sleeping one.
//   kPending keeps the entry of a write that fails out of scans of keys that do not change (R21).
//
// Invariants, at every instant
//  C1. A slot or a live entry above the horizon leads, through moved entries, to the next older live version, possibly
//      over dead ones.
//  C2. An entry that the slot leads to and that is live and open is the newest version.
//  C3. Exactly one claim on a version succeeds until it is re-opened, and only the claimer's entry is linked above it.
//  C4. Versions fall strictly along the chain.
//  C5. Frozen entries never change, so a swap that expects a live value fails once the entry is dead or moved.
//
// Horizon (Table::horizon()). Every version up to it is seen by every open and every later snapshot. So what a version
// at or below it leads to is needed by nobody, and nobody follows that pointer: it may dangle. The compactor drops a
// version whose valid_to is not above the horizon by reading it, without a look at its chain: no freeze, no unlinking,
// no index. What may lead to it is its successor, which is at or below the horizon, or what had led there when that one
// was dropped or collected. Dropped: by induction at or below the horizon too. Collected: it is frozen with null
// behind it if it was at or below the horizon then; if it was above, a version above the present horizon may lead past
// it, and whatever it had superseded is not dropped but killed and unlinked (TableCompactor::droppable()). A reverted
// version hands its pointer up, but gives back the valid_to as well. The horizon rises before the compactor waits for
// an epoch, and only then entries are dropped: every later guard loads it (R18, decision 0011).
//
// Helping (R17). Who meets a frozen entry on the way to a write, or anywhere in the compactor, re-points what led to
// it: the slot by HashIndex::replace/erase, a live predecessor by a double-width swap of exactly the pointer that was
// read. Installed is always an entry that was live when this operation read it. A reader helps at the head, and else
// passes through: a dead or moved entry's pointer is frozen and stays readable for the length of its guard.
//
// Reclamation. mend() returns only after a walk from the slot met no frozen entry. Entries of a page that is being
// compacted are all frozen; a thread that still may install one of them read it live, in a guard that began before it
// was frozen. So a mend() of the key of each frozen one, an epoch after the last freeze, leaves nothing that leads into
// the page, for good, but for pointers that nobody follows (horizon); a further epoch later nobody holds an address in
// it (R18).
//
// ABA. Addresses are not reused within a guard, but for those behind a version at or below the horizon, which no
// decision depends on. A live word {v, n} can come back: {open, n} after a claim and its
// revert. Then the newest version is the same again, and so is whatever the expecting operation had decided from it. A
// slot can come back to e the same way: only the claimer of e swaps the slot from e to a new entry, and its claim
// excludes that.
//
// Progress: gets are wait-free but for the index. Writes and reverts are lock-free: a retry means that another
// operation or the compactor has made a step. A sleeping writer's claim makes others answer kConflict, at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/ids.h"
#include "common/snapshot/publication.h"
#include "storage-node/src/index/hash_index.h"
#include "storage-node/src/log/entry.h"
#include "storage-node/src/log/thread_context.h"

namespace loam::storage {

/// Role: one operation's hold of one record's chain; the steps above as functions. Owner and thread: the operation.
/// Life: within the caller's epoch guard.
class Chain {
 public:
  /// The newest version as it was seen: live, or null if the record is absent.
  struct Newest {
    Entry* entry = nullptr;
    Link link;

    /// 0: absent.
    Version version() const { return entry == nullptr ? Version() : entry->version(); }
  };
  /// What collect() took out.
  struct Collected {
    uint64_t versions = 0;
    uint64_t tombstones = 0;
    Version over_horizon;  ///< the highest of the versions that lay above the horizon, 0: none

    void add(const Entry& version, Version horizon) {
      ++versions;
      if (version.version() > horizon) over_horizon = std::max(over_horizon, version.version());
    }
  };

  /// Looks the key up.
  Chain(HashIndex& index, ThreadContext& thread, Key key) : Chain(index, thread, index.find(key)) {}
  /// Begins with what was found earlier in this guard.
  Chain(HashIndex& index, ThreadContext& thread, const Cursor& found)
      : index_(index), thread_(thread), cursor_(found) {}

  /// Looks the key up again, after a lost race.
  void refresh() { cursor_ = index_.find(cursor_.key); }
  const Cursor& cursor() const { return cursor_; }

  /// The newest version. Mends the slot until it leads to a live entry, and publishes a pending one (a
  /// non-transactional version that is linked counts).
  Newest newest();

  /// newest(), then walks the chain down to the horizon and re-points every live entry that leads to a frozen one,
  /// until a walk meets none. Returns the newest version.
  Newest mend(Version horizon) { return collect(horizon, nullptr, nullptr); }
  /// The same, and kills on the way what is garbage by the publication (null: nothing): versions below the newest, and
  /// the newest if it is a lone tombstone (R20).
  Newest collect(Version horizon, const Publication* publication, Collected* collected);

  /// Tries to make `entry` the record, which was absent.
  InsertOutcome insert(Entry* entry, Reserve reserve) {
    return index_.insert(thread_.epochs(), entry, cursor_, reserve);
  }
  /// Step 4 of a write: puts `entry` above `claimed`, which the caller has claimed. Cannot fail.
  void link(Entry* claimed, Entry* entry);
  /// Non-transactional write: the newest was replaced by `entry`; brings slot and entry up to date.
  void link_successor(Entry* entry);

  // Steps on one entry.

  /// {open, n} → {id, n}. False: somebody else changed it; look again.
  static bool claim(const Newest& newest, Version id) {
    Link expected = newest.link;
    return newest.entry->compare_exchange_link(expected, {id.value, newest.link.address, EntryState::kLive});
  }
  /// To dead, from exactly `expected`.
  static bool kill(Entry* entry, Link expected) {
    return entry->compare_exchange_link(expected, {expected.valid_to, expected.address, EntryState::kDead});
  }
  /// The same, of a version that was superseded and is garbage. One at or below the horizon leads nowhere any more:
  /// what is behind it may be gone, and whoever stands on it goes on from what it reads here.
  static bool kill_collected(Entry* entry, Link expected, Version horizon) {
    Entry* const behind = entry->version() <= horizon ? nullptr : expected.address;
    return entry->compare_exchange_link(expected, {expected.valid_to, behind, EntryState::kDead});
  }
  /// An appended entry that was never linked: nobody else changes it.
  static void kill_unlinked(Entry* entry);
  /// {id, n} → {open, n}, where the version lies now. By the revert that killed id's entry, alone: so the claim is
  /// undone once.
  static void reopen(Entry* entry, Version id);
  /// {kPending, null} → {kOpen, null}, if it is still so.
  static void publish_pending(Entry* entry);
  /// Sets the older version of an appended entry that is not linked yet.
  static void point_unlinked(Entry* entry, Entry* older);

  /// Links mended so far.
  uint64_t helped() const { return helped_; }

 private:
  void mend_slot(Link head);
  bool mend_behind(const Newest& head, Version horizon, const Publication* publication, Collected* collected);
  static bool kill_lone_tombstone(Entry* entry, Version horizon, const Publication& publication);

  HashIndex& index_;
  ThreadContext& thread_;
  Cursor cursor_;
  uint64_t helped_ = 0;
};

}  // namespace loam::storage
