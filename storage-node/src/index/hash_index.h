// Hash index of one table: key → newest version's entry. Lock-free, open addressing, resized and cleaned online by one
// mechanism, the incremental migration into a fresh array. [Thesis 4.2; resizing after Click's table and Maier et al.]
//
// Layout. An array has 2^k slots (slot.h, 8 bytes) in segments of at most one pool page. A key's home is the top k bits
// of its hash; it lies in the first slots from there (linear probing, wrapping), so that arrays of different size keep
// nearly the same order, and a migration reads and writes both sequentially. At most two arrays exist: current, and
// current.next while it is migrated.
//
// States of a slot, and all legal transitions (each by compare-and-swap of the word, the last by a store):
//
//   EMPTY ──insert/copy──▶ P(key k) ──replace──▶ P'(k) … ──erase──▶ DELETED
//     │                      │                                        │
//     │ seal                 │ freeze (migration)                     │ migration
//     ▼                      ▼                                        ▼
//   MOVED_EMPTY            FROZEN P(k) ──copied to next──▶         MOVED_FULL
//
// Invariants
//  I1. Within one array a slot never becomes EMPTY again and never holds a second key.
//  I2. A key has at most one slot in an array that is not DELETED or MOVED_FULL.
//      Two inserters of k walk the same path, pass only slots that are not and (I1) never will be k's, and meet at the
//      same first EMPTY slot, where one swap succeeds; the loser looks at that slot again.
//  I3. No MOVED or FROZEN slot exists before array.next is set; next is set once.
//  I4. While k's slot in the old array is FROZEN, k's slot in the next array (if it is there yet) is as it was copied:
//      who meets a FROZEN slot of its key and wants to change it, completes the copy and sets MOVED_FULL first.
//  I5. k enters the next array only by the copy of its FROZEN slot, or by an insert that has first sealed the EMPTY
//      slot at the end of k's path in the old array: no later insert into the old array can succeed.
//
// Copying. Several helpers may copy one FROZEN slot; k may be copied, changed and erased in the next array while one of
// them sleeps, and its late copy would bring k back. So a copier walks k's path in the next array to the first EMPTY
// slot y and, immediately before each swap of y, reads the old slot again: only if it is still FROZEN it swaps. If the
// swap succeeds, k had never been in the next array: its slot there would be (a) before y: the copier read it as the
// FROZEN word's address (then nothing is to be done), as another address or as DELETED; but a change of k comes after
// MOVED_FULL (I4), which the copier would then have seen in its later reading of the old slot; (b) y: the swap would
// fail; (c) behind y: y would have been non-empty. So no copier compares keys. Where the hash follows from the slot's
// word and place (array.h), it does not read the entry either, and its cache misses are those of two arrays read and
// written in order.
//
// FROZEN changes only to MOVED_FULL, whoever finishes the copy: that is a store, and it may be repeated. Who finds all
// slots of a chunk MOVED, or has moved them, sets the chunk's mark by fetch_or, which has one winner, and the winner
// counts the chunk: a chunk is counted once, and never before its last slot is MOVED. The count may miss a chunk whose
// winner sleeps before it counts; complete_alone() does not need it.
//
// Stages. look() walks by tags to the first slot that may hold the key, without its entry; confirm() reads that slot
// again. If it holds the key, it is the key's slot (I2). If it is EMPTY: the walk passed no slot that was k's or MOVED,
// and those slots cannot become k's (I1); k is not in the next array, because its path here is not sealed (I5) and no
// slot of it was FROZEN. Else a find begins anew. An insert starts from a confirmed EMPTY slot the same way: its swap
// succeeds only if the slot is EMPTY still. A find that ends in EMPTY in the next array, behind a path that it saw
// sealed, gives that slot: the sealed path held no pointer to k, FROZEN or not, and never will, so k is not copied any
// more, and the argument is the same with the next array for the only one.
//
// Linearization points
//  insert, replace, erase   the successful swap; if the key exists, or has another head: the load of that word.
//  find, present   the load of k's slot with a pointer, FROZEN or not. So for confirm(), and for an absent key too.
//  find, absent    the load of the EMPTY or MOVED_EMPTY slot that ends the path in the last array looked at; with one
//                  exception, below.
//  A find writes nothing. If its path in the old array ends in EMPTY and no slot of it is MOVED, k is in neither array
//  (I5). If a slot of it is MOVED, the find goes on to the next array. Suppose that it passed such a slot, ended in
//  EMPTY slot s, and does not find k in the next array either. If k ever was in the next array before s was read, it
//  had been copied from a slot before s (I5, s is not sealed); an insert that could still take s must have passed that
//  slot and would have met k or a MOVED word there: so nobody inserts k at s, and the end of the second path decides.
//  If k never was there, then k was absent when s was read: that is the exception.
//
// ABA. A swap expects a word with an address. Entries are freed through the epochs (memory/epoch.h), and every
// operation runs inside a guard, so an address it has read is not given to another entry before it ends. That an entry
// itself comes back as head of its chain (an undone update) is the chains' affair (R16).
//
// Migration starts when used slots (keys and DELETED) pass kMaxLoad, when DELETED ones pass kMaxDeletedOfKeys and
// kMaxDeletedOfSlots, or when keys fall below kMinLoad, into an array sized by the number of live keys: larger, equal
// or smaller. Every insert and erase then moves moves_per_write slots, step() moves more. The sizes leave room for
// everything: capacity(next) ≥ capacity(old) / kMaxShrink, and the keys to be copied fill it to kFreshLoad at most; at
// 16 moves a write the old array is empty after capacity(old) / 16 inserts, an eighth of capacity(next). An insert that
// finds kMaxInsertsMeanwhile of capacity(next) inserted already (the helpers must be asleep inside their chunks) moves
// all that is left by itself. A later migration waits for the end of the earlier one by that same way.
//
// Progress: lock-free. A stalled thread holds nothing that others need: half-copied slots are completed by others. If a
// pool is full, a growth fails: inserts go on to kHardLoad, then get kNoSpace; finds, replaces, erases go on.
//
// Reclamation: the old array goes to the caller's EpochThread when its last slot is moved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "common/base/env.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/index/slot.h"

namespace loam::storage {

namespace index_detail {
struct Array;
}

struct HashIndexOptions {
  /// Slots of the first array, a power of two of at least HashIndex::kMinCapacity; also the least that the index
  /// shrinks to. 512 slots are one block of 4 KiB.
  size_t initial_capacity = 512;
  /// Slots moved by one insert or erase while a migration runs; 1 to kMaxMovesPerWrite.
  size_t moves_per_write = 32;
};

/// Numbers of an index. Approximate while writers run.
struct HashIndexStatistics {
  size_t live = 0;      ///< keys
  size_t deleted = 0;   ///< dead slots in the array that inserts go to
  size_t capacity = 0;  ///< slots of that array
  size_t bytes = 0;     ///< of all arrays, the old one of a migration too
  bool migrating = false;
  uint64_t migrations = 0;      ///< completed
  uint64_t growth_refused = 0;  ///< by a full pool
  size_t moves_max = 0;         ///< the most slots moved inside one operation
};

/// A key's slot as it was seen, for a following insert(), replace() or erase(). Valid inside the guard it was made in.
struct Cursor {
  Key key;
  uint64_t hash = 0;  ///< HashIndex::hash(key)
  /// Newest version's entry; null: the key is absent.
  Entry* head = nullptr;
  // Where it was seen; the index's own. Of an absent key: the EMPTY slot that ended its path, which is sealed in the
  // array before if there is one; or null.
  SlotWord word = {};
  Env::Atomic<uint64_t>* slot = nullptr;
  index_detail::Array* array = nullptr;
  size_t distance = 0;  ///< of the EMPTY slot from the key's home
  bool found() const { return head != nullptr; }
};

enum class InsertOutcome : uint8_t {
  kInserted,
  kExists,   ///< the cursor shows the present head
  kNoSpace,  ///< the pool refused a larger array, and this one is full
};

/// The index. Owner: its table. Threads: any, each inside a guard of its own EpochThread (the `thread` argument) of the
/// domain and pool the index was made with. Nothing suspends; an insert or erase may take blocks from the pool.
///
/// The index reads nothing of an entry but its key. An entry that is put into the index is complete, and stays readable
/// until one grace period after the index no longer leads to it.
class HashIndex {
 public:
  /// Used slots (keys and DELETED) of the array at which a migration begins.
  static constexpr double kMaxLoad = 0.8;
  /// DELETED slots at which a clean-up begins: this share of the keys, and this share of the slots. Then a key is found
  /// within 1.2 times the slots of an index that never saw an erase, and one erase and insert pay for 7 slots moved at
  /// most.
  static constexpr double kMaxDeletedOfKeys = 0.75;
  static constexpr double kMaxDeletedOfSlots = 0.2;
  /// Keys a fresh array is filled with at most, after growth.
  static constexpr double kFreshLoad = 0.5;
  /// The same after a clean-up. Erased slots lengthen the paths of keys inserted later, so a churned index is kept
  /// emptier.
  static constexpr double kChurnLoad = 0.4;
  /// Keys below which the array shrinks.
  static constexpr double kMinLoad = 0.125;
  /// Used slots beyond which inserts are refused when the array cannot grow.
  static constexpr double kHardLoad = 0.9;
  /// A migration makes the array at most so many times smaller.
  static constexpr size_t kMaxShrink = 2;
  /// Share of the next array that may be inserted into before the old one is empty.
  static constexpr double kMaxInsertsMeanwhile = 0.25;
  static constexpr size_t kMaxMovesPerWrite = 64;
  static constexpr size_t kMinCapacity = 16;

  /// kNoSpace if the pool refuses the first array, kInvalidArgument for options out of range.
  static Result<std::unique_ptr<HashIndex>> create(PagePool& pool, const HashIndexOptions& options = {});
  /// No operation may be under way.
  ~HashIndex();
  HashIndex(const HashIndex&) = delete;
  HashIndex& operator=(const HashIndex&) = delete;

  static uint64_t hash(Key key);

  /// The key's newest version. Wait-free but for migrations that overtake it.
  Cursor find(Key key) const;

  // The same in three stages, for the keys of a group one after another in each: so their cache misses overlap. The
  // caller hashes a key once.

  /// Stage 1: fetches the key's home slot; `to_write` if it is likely to be changed.
  void prefetch_slot(uint64_t hash, bool to_write) const;
  /// Stage 2: walks to the first slot that may be the key's, and fetches its entry. The result is for confirm() alone.
  Cursor look(Key key, uint64_t hash, bool fetch) const;
  /// Stage 3: makes a cursor of look() or find() what find() would return now. If nothing has changed, one load.
  void confirm(Cursor& cursor) const;

  /// Makes `head` the key's entry if the key is absent. `cursor` is what find() or confirm() gave, or anything with the
  /// right key and hash and no slot. It shows the present head afterwards, unless kNoSpace. `reserve` is the claim on
  /// memory if the array has to grow.
  InsertOutcome insert(EpochThread& thread, Entry* head, Cursor& cursor, Reserve reserve = Reserve::kWrite);
  /// The same, of a key that was not looked up.
  InsertOutcome insert(EpochThread& thread, Key key, Entry* head, Cursor& cursor, Reserve reserve = Reserve::kWrite) {
    cursor = {.key = key, .hash = hash(key)};
    return insert(thread, head, cursor, reserve);
  }
  /// If cursor.head is still the key's head, makes it `desired` (of the same key), and the cursor shows it. Otherwise
  /// the cursor shows the present head (null: the key is gone), and false. Never needs memory.
  bool replace(Cursor& cursor, Entry* desired);
  /// If cursor.head is still the key's head, takes the key out, and the cursor shows null. Otherwise as replace().
  /// Frees an array at times, never needs one.
  bool erase(EpochThread& thread, Cursor& cursor);

  /// Background work: begins a migration that is due (an index that is only erased from shrinks here), moves up to
  /// `budget` slots. True if more is left that can be done now; false also if the pool refuses, or if what is left is
  /// in the hands of another thread.
  bool step(EpochThread& thread, size_t budget);

  /// Off: no migration begins any more (for baselines that measure without growth). A running one completes.
  void set_growth(bool enabled) { growth_enabled_.store(enabled, std::memory_order_relaxed); }  // a hint: no ordering

  /// Calls fn(Entry* head) for every key. Exact only while nobody writes and no migration runs; otherwise keys that
  /// move may be seen twice.
  template <class Fn>
  void for_each(Fn&& fn) const {
    for_each_of_part(0, 1, std::forward<Fn>(fn));
  }
  /// The same for the keys of one of `parts` partitions: runs of slots, equally long. Each key lies in one of them, as
  /// long as for_each() is exact; so several threads share a walk, each inside a guard of its own. part < parts.
  template <class Fn>
  void for_each_of_part(size_t part, size_t parts, Fn&& fn) const {
    visit(
        part, parts, [](void* context, Entry* head) { (*static_cast<std::remove_reference_t<Fn>*>(context))(head); },
        &fn);
  }

  /// Inside a guard, like everything here.
  HashIndexStatistics statistics() const;
  /// Mean number of slots that a find of a present key looks at. Walks the whole index; no concurrent writers.
  double mean_probe_length() const;
  /// I1 to I5 as far as a quiet index shows them, and the counters. Aborts on a breach. No operation may be under way.
  void check_invariants() const;

 private:
  using Array = index_detail::Array;
  using Slot = Env::Atomic<uint64_t>;

  HashIndex(PagePool& pool, const HashIndexOptions& options, Array* first);

  Cursor find_from(const Array* array, Key key, uint64_t hash) const;
  /// Puts `head` into the EMPTY slot of `array` that ends the key's path. False: another was faster.
  bool put(EpochThread& thread, Entry* head, Cursor& cursor, Reserve reserve);
  /// A cursor's slot to `desired` (null: DELETED), if it holds the cursor's head.
  bool change(Cursor& cursor, Entry* desired);
  void visit(size_t part, size_t parts, void (*fn)(void*, Entry*), void* context) const;

  // Migration (migration.cc).
  static bool copy(Array& to, Slot& old_slot, SlotWord frozen, uint64_t hash);
  static void finish_slot(Array& from, Slot& slot, SlotWord frozen, uint64_t hash);
  static size_t move_slots(Array& from, size_t begin, size_t count);
  static void mark_chunk(Array& from, size_t index, bool moved);
  static void prefetch_chunk(const Array& from, size_t begin);
  bool help(EpochThread& thread, Array& from, size_t budget, size_t* moved = nullptr);
  void complete_alone(EpochThread& thread, Array& from);
  void finish(EpochThread& thread, Array& from);
  bool start_migration(Array& array, Reserve reserve);
  size_t target_capacity(const Array& array) const;
  bool wants_migration(const Array& array) const;
  void check_load(EpochThread& thread, Array& array, Reserve reserve);
  bool make_room(EpochThread& thread, Array& array, Reserve reserve);
  void count_moves(size_t moves);

  PagePool& pool_;
  const size_t min_capacity_;
  const size_t moves_per_write_;
  // Read by every operation; written when a migration completes.
  alignas(64) Env::Atomic<Array*> current_;
  Env::Atomic<bool> growth_enabled_{true};
  // Counters, written by writers, read by statistics.
  alignas(64) Env::Atomic<uint64_t> migrations_{0};
  Env::Atomic<uint64_t> growth_refused_{0};
  Env::Atomic<uint64_t> moves_max_{0};
};

}  // namespace loam::storage
