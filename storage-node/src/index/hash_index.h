// The hash index of one table. It maps a key to the entry of the newest version. It is lock-free and uses open
// addressing. One mechanism, the incremental migration into a new array, grows it, shrinks it and removes deleted
// slots. [Thesis 4.2; resizing after Click's table and Maier et al.]
//
// Layout. An array has 2^k slots (slot.h, 8 bytes) in segments of at most one pool page. The home of a key is the top k
// bits of its hash. The key lies in one of the first slots from its home on (linear probing, wrapping). So arrays of
// different sizes keep nearly the same order, and a migration reads and writes both sequentially. At most two arrays
// exist: the current one, and current.next during a migration.
//
// States of a slot, and all legal transitions (each by compare-and-swap of the word, the last one by a store):
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
//      Two threads that insert k walk the same path and pass only slots that are not k's and (I1) never will be. They
//      meet at the same first EMPTY slot, where one swap succeeds. The other thread reads that slot again.
//  I3. No MOVED or FROZEN slot exists before array.next is set. next is set once.
//  I4. While k's slot in the old array is FROZEN, k's slot in the next array, if it exists, is as it was copied. A
//      thread that meets the FROZEN slot of its key and wants to change the key first completes the copy and sets
//      MOVED_FULL.
//  I5. k enters the next array in two ways only: by the copy of its FROZEN slot, or by an insert that has first sealed
//      the EMPTY slot at the end of k's path in the old array. So no later insert of k into the old array can succeed.
//
// Copying. Several helpers may copy one FROZEN slot. While one of them sleeps, k may be copied, changed and erased in
// the next array, and the late copy of the sleeper would bring k back. Therefore a helper walks k's path in the next
// array to the first EMPTY slot y and reads the old slot again immediately before each swap of y. It swaps only if the
// old slot is still FROZEN. If the swap succeeds, k was never in the next array before. Proof: suppose that k had a
// slot there.
//  (a) The slot is before y. The helper has read it. If it held the address of the FROZEN word, the helper has stopped.
//      If it held another address or DELETED, then k was changed after MOVED_FULL (I4), and the helper has seen
//      MOVED_FULL when it read the old slot afterwards.
//  (b) The slot is y. Then the swap fails.
//  (c) The slot is behind y. Then y was not EMPTY.
// So a helper compares no keys. If the word and the place of a slot determine the hash (array.h), the helper does not
// read the entry either. Its cache misses are then those of two arrays that are read and written in order.
//
// End of a chunk. FROZEN changes only to MOVED_FULL, by a store that several helpers may repeat. A thread that has
// moved all slots of a chunk, or finds them all MOVED, sets the mark of the chunk by fetch_or. One thread wins the
// fetch_or and counts the chunk. So a chunk is counted once, and never before its last slot is MOVED. A chunk is
// missing in the count while its winner sleeps before it counts; complete_migration() does not need the count.
//
// Stages. find_candidate() walks by tags to the first slot that may hold the key, without a read of the entry.
// confirm() reads that slot again. There are three cases:
//  * The slot holds the key: it is the key's slot (I2).
//  * The slot is EMPTY: the key is absent. The walk passed no slot that was k's or MOVED, and those slots cannot become
//    k's (I1). k is not in the next array either, because its path here is not sealed (I5) and had no FROZEN slot of k.
//  * Otherwise a new find begins.
// An insert starts from a confirmed EMPTY slot in the same way: its swap succeeds only if the slot is still EMPTY. A
// find that passes a sealed path and ends in EMPTY in the next array returns that slot. The sealed path held no
// pointer to k, FROZEN or not, and never will. So k is not copied any more, and the argument holds with the next array
// as the only one.
//
// Linearization points
//  insert, replace, erase   the successful swap; if the key exists, or has another head: the load of that word
//  find, present   the load of k's slot with a pointer, FROZEN or not; the same for confirm()
//  find, absent    the load of the EMPTY or MOVED_EMPTY slot that ends the path in the last array of the find, with the
//                  exception below; the same for confirm()
//  A find writes nothing. If its path in the old array ends in EMPTY and has no MOVED slot, k is in neither array (I5).
//  If the path has a MOVED slot, the find continues in the next array. Suppose that the find passed a MOVED slot, ended
//  in the EMPTY slot s, and does not find k in the next array either.
//  * k was in the next array before s was read. Then k was copied from a slot before s (I5, since s is not sealed). An
//    insert that could still use s must have passed that slot, where it would have met k or a MOVED word. So no thread
//    inserts k at s, and the end of the second path is the linearization point.
//  * k was never there. Then k was absent when s was read. This load is the linearization point: the exception.
//
// ABA. A swap expects a word with an address. Entries are freed through epochs (memory/epoch.h), and every operation
// runs inside a guard. So an address that an operation has read does not become the address of another entry before
// the operation ends. An entry may return as the head of its own chain, after an undone update; chain.h treats that
// (R16, claim first).
//
// Migration begins in one of three cases: used slots (keys and DELETED) exceed kMaxLoad; DELETED slots exceed both
// kMaxDeletedOfKeys and kMaxDeletedOfSlots; keys fall below kMinLoad. The size of the new array follows from the
// number of keys: larger, equal or smaller. Every insert and every erase then moves moves_per_write slots, and step()
// moves more. The sizes suffice: capacity(next) ≥ capacity(old) / kMaxShrink, and the copied keys fill it to
// kFreshLoad at most. With 16 moves a write, the old array is empty after capacity(old) / 16 inserts, which is an
// eighth of capacity(next). If an insert finds that kMaxInsertsDuringMigration of capacity(next) is inserted already,
// helpers sleep inside their chunks. The insert then moves all remaining slots itself. A later migration waits for the
// end of the earlier one in this way.
//
// Progress: lock-free. A stalled thread holds nothing that others need, because others complete its half-copied slots.
// If the pool is full, a growth fails. Inserts then continue up to kHardLoad and get kNoSpace beyond it, while find(),
// replace() and erase() work as before.
//
// Reclamation: the thread that ends a migration retires the old array through its EpochThread.
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

/// The sizes of a hash index.
struct HashIndexOptions {
  /// Slots of the first array, a power of two of at least HashIndex::kMinCapacity. The index does not shrink below this
  /// size. 512 slots are one block of 4 KiB.
  size_t initial_capacity = 512;
  /// Slots that one insert or erase moves during a migration, 1 to kMaxMovesPerWrite.
  size_t moves_per_write = 32;
};

/// The statistics of a hash index. Approximate while writers run.
struct HashIndexStatistics {
  size_t live = 0;              ///< keys
  size_t deleted = 0;           ///< DELETED slots in the newest array
  size_t capacity = 0;          ///< slots of the newest array
  size_t bytes = 0;             ///< memory of all arrays; during a migration there are two
  bool migrating = false;       ///< a migration is under way
  uint64_t migrations = 0;      ///< completed migrations
  uint64_t growth_refused = 0;  ///< migrations that did not begin because the pool was full
  size_t moves_max = 0;         ///< the largest number of slots that one operation has moved
};

/// The result of a lookup: the head of a key's chain, and the slot where the lookup ended.
///
/// A later insert(), replace() or erase() of the same operation starts from it. Valid inside the epoch guard in which
/// it was made. One thread.
struct Cursor {
  Key key;
  uint64_t hash = 0;  ///< HashIndex::hash(key)
  /// The entry of the newest version. Null: the key is absent.
  Entry* head = nullptr;
  // Only the index uses the rest. For a key that was found: its slot and the word in it. For an absent key: the EMPTY
  // slot that ended its path, or null; if there are two arrays and the slot is in the next one, the path in the old one
  // is sealed.
  SlotWord word = {};
  Env::Atomic<uint64_t>* slot = nullptr;
  index_detail::Array* array = nullptr;
  size_t distance = 0;  ///< slots between the key's home and `slot`
  /// True if the key was found.
  bool found() const { return head != nullptr; }
};

/// The outcome of an insert.
enum class InsertOutcome : uint8_t {
  kInserted,
  kExists,   ///< the key is present; the cursor holds its head
  kNoSpace,  ///< the array is full, and the pool refused a larger one
};

/// A hash index maps the keys of one table to the entries of their newest versions.
///
/// Owner: the table. Threads: any thread, inside a guard of its own EpochThread, which it passes as `thread`. All
/// threads use one epoch domain. No function waits. An insert or an erase may allocate from the pool.
///
/// The index reads only the key of an entry. The caller passes complete entries, and keeps an entry readable until a
/// reclamation epoch after the index stopped leading to it.
/// Invariants, linearization points and source: at the head of this file.
class HashIndex {
 public:
  /// Share of used slots (keys and DELETED) above which a migration begins.
  static constexpr double kMaxLoad = 0.8;
  /// A clean-up begins when the DELETED slots exceed kMaxDeletedOfKeys of the keys and kMaxDeletedOfSlots of the slots.
  /// With these limits, a find reads at most 1.2 times as many slots as in an index without erases, and the migrations
  /// move at most 7 slots for each pair of an erase and an insert.
  static constexpr double kMaxDeletedOfKeys = 0.75;
  static constexpr double kMaxDeletedOfSlots = 0.2;
  /// Share of keys in a new array after growth, at most.
  static constexpr double kFreshLoad = 0.5;
  /// Share of keys in a new array after a clean-up, at most. It is lower than kFreshLoad, because the erases that
  /// follow lengthen the paths of keys inserted later.
  static constexpr double kChurnLoad = 0.4;
  /// Share of keys below which the array shrinks.
  static constexpr double kMinLoad = 0.125;
  /// Share of used slots above which an insert is refused if the array cannot grow.
  static constexpr double kHardLoad = 0.9;
  /// A migration shrinks the array by at most this factor.
  static constexpr size_t kMaxShrink = 2;
  /// Share of the next array up to which inserts are accepted before the old array must be empty.
  static constexpr double kMaxInsertsDuringMigration = 0.25;
  static constexpr size_t kMaxMovesPerWrite = 64;
  static constexpr size_t kMinCapacity = 16;

  /// Creates an empty index. kNoSpace if the pool refuses the first array, kInvalidArgument for options out of range.
  static Result<std::unique_ptr<HashIndex>> create(PagePool& pool, const HashIndexOptions& options = {});
  /// No operation may be under way.
  ~HashIndex();
  HashIndex(const HashIndex&) = delete;
  HashIndex& operator=(const HashIndex&) = delete;

  /// The hash of a key. Every bit of the key influences the highest and the lowest bits of the hash.
  static uint64_t hash(Key key);

  /// Looks a key up. Wait-free, except that a migration may begin and end several times during the call.
  Cursor find(Key key) const;

  // A find in three stages. The caller runs each stage for all keys of a group before the next one, so that their cache
  // misses overlap.

  /// Stage 1: prefetches the home slot of a hash. `to_write` says that the operation will probably change the slot.
  void prefetch_slot(uint64_t hash, bool to_write) const;
  /// Stage 2: walks to the first slot that may hold the key; prefetches its entry if `fetch`. Only confirm() may use
  /// the result.
  Cursor find_candidate(Key key, uint64_t hash, bool fetch) const;
  /// Stage 3: brings a cursor of find_candidate() or find() up to date, as a new find() would. Costs one load if the
  /// slot has not changed.
  void confirm(Cursor& cursor) const;

  /// Inserts `head` as the entry of the key if the key is absent.
  ///
  /// `cursor` stems from find() or confirm(), or has the key, its hash and no slot. Afterwards it holds the present
  /// head, unless the outcome is kNoSpace. `reserve` is the memory class to use if the array has to grow.
  InsertOutcome insert(EpochThread& thread, Entry* head, Cursor& cursor, Reserve reserve = Reserve::kWrite);
  /// Inserts the entry of a key that the caller has not looked up.
  InsertOutcome insert(EpochThread& thread, Key key, Entry* head, Cursor& cursor, Reserve reserve = Reserve::kWrite) {
    cursor = {.key = key, .hash = hash(key)};
    return insert(thread, head, cursor, reserve);
  }
  /// Replaces the head of the key by `desired`, an entry of the same key, if cursor.head is still the head.
  ///
  /// True on success. The cursor then holds the present head, in both cases; null means that the key is absent. Never
  /// allocates.
  bool replace(Cursor& cursor, Entry* desired);
  /// Removes the key if cursor.head is still its head. True on success, and the cursor then holds null. Otherwise the
  /// cursor holds the present head. May begin or end a migration; its success needs no memory.
  bool erase(EpochThread& thread, Cursor& cursor);

  /// Background work: begins a migration that is due and moves up to `budget` slots. An index with erases only shrinks
  /// here.
  ///
  /// True if the caller can do more work now. False also if the pool refuses memory, or if another thread has begun
  /// the rest.
  bool step(EpochThread& thread, size_t budget);

  /// Allows or forbids migrations; for benchmarks without growth. A running migration completes.
  void set_growth(bool enabled) { growth_enabled_.store(enabled, std::memory_order_relaxed); }  // a hint: no ordering

  /// Calls fn(Entry* head) for every key. Exact only while no thread writes and no migration runs. Otherwise a key that
  /// moves may be visited twice.
  template <class Fn>
  void for_each(Fn&& fn) const {
    for_each_of_part(0, 1, std::forward<Fn>(fn));
  }
  /// Calls fn(Entry* head) for the keys of one of `parts` partitions of the slots, equally long; part < parts. So
  /// several threads can share a walk, each inside a guard of its own. Each key lies in one partition while for_each()
  /// is exact.
  template <class Fn>
  void for_each_of_part(size_t part, size_t parts, Fn&& fn) const {
    visit(
        part, parts, [](void* context, Entry* head) { (*static_cast<std::remove_reference_t<Fn>*>(context))(head); },
        &fn);
  }

  /// The numbers of the index now. The caller is inside a guard.
  HashIndexStatistics statistics() const;
  /// The mean number of slots that a find of a present key reads. Visits the whole index; no concurrent writers.
  double mean_probe_length() const;
  /// Checks I1 to I5 as far as an idle index shows them, and the counters. Aborts on a breach. No operation may be
  /// under way.
  void check_invariants() const;

 private:
  using Array = index_detail::Array;
  using Slot = Env::Atomic<uint64_t>;

  HashIndex(PagePool& pool, const HashIndexOptions& options, Array* first);

  /// A find that begins in `array`.
  Cursor find_from(const Array* array, Key key, uint64_t hash) const;
  /// Swaps the cursor's EMPTY slot to `head`. False: another thread has changed the slot.
  bool put(EpochThread& thread, Entry* head, Cursor& cursor, Reserve reserve);
  /// Swaps the cursor's slot to `desired` (null: to DELETED) if it still holds the cursor's head.
  bool change(Cursor& cursor, Entry* desired);
  void visit(size_t part, size_t parts, void (*fn)(void*, Entry*), void* context) const;

  // Migration (migration.cc describes each function).
  static bool copy(Array& to, Slot& old_slot, SlotWord frozen, uint64_t hash);
  static void finish_slot(Array& from, Slot& slot, SlotWord frozen, uint64_t hash);
  static size_t move_slots(Array& from, size_t begin, size_t count);
  static void mark_chunk(Array& from, size_t index, bool moved);
  static void prefetch_chunk(const Array& from, size_t begin);
  bool help(EpochThread& thread, Array& from, size_t budget, size_t* moved = nullptr);
  void complete_migration(EpochThread& thread, Array& from);
  void finish(EpochThread& thread, Array& from);
  bool start_migration(Array& array, Reserve reserve);
  size_t target_capacity(const Array& array) const;
  bool needs_migration(const Array& array) const;
  void check_load(EpochThread& thread, Array& array, Reserve reserve);
  bool make_room(EpochThread& thread, Array& array, Reserve reserve);
  void count_moves(size_t moves);

  PagePool& pool_;
  const size_t min_capacity_;
  const size_t moves_per_write_;
  // Read by every operation; written by the thread that completes a migration.
  alignas(64) Env::Atomic<Array*> current_;
  Env::Atomic<bool> growth_enabled_{true};
  // Counters, written by operations, read by statistics().
  alignas(64) Env::Atomic<uint64_t> migrations_{0};
  Env::Atomic<uint64_t> growth_refused_{0};
  Env::Atomic<uint64_t> moves_max_{0};
};

}  // namespace loam::storage
