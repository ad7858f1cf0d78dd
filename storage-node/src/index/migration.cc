// The incremental migration of a hash index. hash_index.h has its argument.
//
// Phases
//   start_migration()   allocates the next array and publishes it as array.next. Inserts now seal their path in the old
//                       array and go to the next one (I5); all other operations follow MOVED slots.
//   help()              moves slots, chunk by chunk: freezes them, copies the keys, sets MOVED_FULL, marks the chunk.
//                       Every insert, every erase and step() help.
//   finish()            makes the next array the current one when all chunks are marked, or when one thread has moved
//                       every slot itself (complete_migration()). Then it retires the old array.
#include <algorithm>

#include "common/base/env.h"
#include "common/latency/stage_timer.h"
#include "storage-node/src/index/array.h"
#include "storage-node/src/index/hash_index.h"
#include "storage-node/src/log/entry.h"

namespace loam::storage {

namespace {

/// Distance, in slots, from the moved slots to those that are prefetched for a later move.
constexpr size_t kFetchAhead = 64;

/// True if `count` is at least the share `load` of the capacity.
bool beyond(uint64_t count, double load, size_t capacity) {
  return static_cast<double>(count) >= load * static_cast<double>(capacity);
}

}  // namespace

/// Copies the pointer of a FROZEN slot into the next array, unless the key is or was there. `hash` has the first bits
/// of the key's hash. True if this call has copied it.
bool HashIndex::copy(Array& to, Slot& old_slot, SlotWord frozen, uint64_t hash) {
  const size_t home = to.home(hash);
  for (size_t distance = 0; distance < to.capacity;) {
    Slot& slot = to.slot(home, distance);
    const SlotWord seen{slot.load(std::memory_order_acquire)};  // acquire: see "Copying" (hash_index.h)
    // The address: another helper has copied it. A MOVED slot: the next array is itself being migrated, so the
    // migration into it was complete before.
    if (seen.is_moved() || seen.entry() == frozen.entry()) return false;
    if (seen != SlotWord::empty()) {
      ++distance;
      continue;
    }
    // The second look at the old slot, after all loads of the path and before the swap. Acquire: as for those loads.
    if (old_slot.load(std::memory_order_acquire) != frozen.bits) return false;
    uint64_t expected = SlotWord::empty().bits;
    const SlotWord word = SlotWord::pointer(to.tag(hash), distance >= Array::kNear, frozen.entry());
    // Release: a thread that finds the entry here sees its bytes. On failure the loop reads the same slot again.
    if (slot.compare_exchange_strong(expected, word.bits, std::memory_order_acq_rel, std::memory_order_relaxed)) {
      return true;
    }
  }
  LOAM_CHECK(false, "the next array has room for every key of the old one");
  return false;
}

/// Copies a FROZEN slot and sets it to MOVED_FULL. An operation that changes the key calls it first (I4).
void HashIndex::finish_slot(Array& from, Slot& slot, SlotWord frozen, uint64_t hash) {
  Array& to = *from.next.load(std::memory_order_acquire);  // not null (I3); acquire: its fields are visible
  Env::probe("node.index.slot_migrated");
  if (copy(to, slot, frozen, hash)) to.copied_in.fetch_add(1, std::memory_order_relaxed);  // a count
  // A store suffices, because no other word follows FROZEN. Release: a thread that loads MOVED_FULL sees the copy.
  slot.store(SlotWord::moved_full().bits, std::memory_order_release);
}

/// Moves `count` slots from `begin` on, kChunk at most. Returns the number of slots that were not MOVED before.
///
/// First it freezes all slots, then it copies the keys, so that the cache misses of the entries and of the next array
/// overlap.
size_t HashIndex::move_slots(Array& from, size_t begin, size_t count) {
  struct Pending {
    size_t index;
    uint64_t bits;
  };
  Pending pending[Array::kChunk];  // not initialised: only the first `frozen` elements are used
  size_t frozen = 0;
  size_t moves = 0;
  Array& to = *from.next.load(std::memory_order_acquire);  // not null (I3); acquire: its fields are visible
  const bool same_tags = from.tag_skip == to.tag_skip;
  for (size_t i = begin; i < begin + count; ++i) {
    Slot& slot = from.slot(i);
    SlotWord word{slot.load(std::memory_order_acquire)};  // acquire: the entry's key may be read
    if (word.is_moved()) continue;
    ++moves;
    // Acquire and release: as every swap of a slot. On failure `word` is the present word, and the loop tries again.
    while (word != word.frozen() &&
           !slot.compare_exchange_strong(word.bits, word.frozen().bits, std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
    }
    if (!word.is_pointer()) continue;  // EMPTY or DELETED: MOVED now, and nothing to copy
    word = word.frozen();
    if (!same_tags || word.far()) __builtin_prefetch(word.entry());
    pending[frozen++] = {i, word.bits};
  }
  if (frozen > 0) Env::pause_point("node.index.frozen");
  size_t copied = 0;
  for (size_t i = 0; i < frozen; ++i) {
    const size_t index = pending[i].index;
    const SlotWord word{pending[i].bits};
    Slot& slot = from.slot(index);
    const bool near = same_tags && !word.far();
    // The key's hash from the slot itself, if it is near and both arrays have the same tags; else from the entry.
    const uint64_t prefix = near ? from.hash_prefix(index, word) : hash(Key(word.entry()->key));
    Env::probe(near ? "node.index.slot_migrated" : "node.index.slot_migrated_by_key");
    copied += copy(to, slot, word, prefix) ? 1 : 0;
    slot.store(SlotWord::moved_full().bits, std::memory_order_release);  // as in finish_slot()
  }
  if (copied > 0) to.copied_in.fetch_add(copied, std::memory_order_relaxed);  // a count
  return moves;
}

/// Marks and counts the chunk of slot `index` if all its slots are MOVED and no thread has marked it. `moved` says
/// that the caller has seen all of them MOVED.
void HashIndex::mark_chunk(Array& from, size_t index, bool moved) {
  const size_t chunk = index / Array::kChunk;
  const uint64_t bit = uint64_t{1} << chunk % 64;
  Env::Atomic<uint64_t>& marks = from.marks(chunk);
  if ((marks.load(std::memory_order_relaxed) & bit) != 0) return;  // relaxed: a mark is never cleared
  const size_t end = std::min((chunk + 1) * Array::kChunk, from.capacity);
  for (size_t i = chunk * Array::kChunk; i < end && !moved; ++i) {
    // Acquire: pairs with the release of the thread that moved the slot. The release of the count below passes this on
    // to finish().
    if (!SlotWord{from.slot(i).load(std::memory_order_acquire)}.is_moved()) return;
  }
  if ((marks.fetch_or(bit, std::memory_order_acq_rel) & bit) == 0) {
    Env::pause_point("node.index.marked");
    from.chunks_moved.fetch_add(1, std::memory_order_acq_rel);  // pairs with the acquire in help()
  }
}

/// Prefetches a chunk from slot `begin` on, and the slots of the next array that receive its keys.
void HashIndex::prefetch_chunk(const Array& from, size_t begin) {
  constexpr size_t kLineSlots = 8;
  const Array& to = *from.next.load(std::memory_order_acquire);  // acquire: its fields are visible
  const size_t slots = std::min(Array::kChunk, from.capacity);
  const size_t home = to.home(static_cast<uint64_t>(begin) << from.home_shift);
  for (size_t i = 0; i < slots; i += kLineSlots) __builtin_prefetch(&from.slot(begin, i), 1);
  for (size_t i = 0; i < slots * to.capacity / from.capacity; i += kLineSlots) {
    __builtin_prefetch(&to.slot(home, i), 1);
  }
}

/// Examines up to `budget` slots of an array under migration and moves them. `moved` receives the number of moved
/// slots. True if the migration goes on; false if it has ended, by this call too, or if there is none.
bool HashIndex::help(EpochThread& thread, Array& from, size_t budget, size_t* moved) {
  if (from.next.load(std::memory_order_acquire) == nullptr) return false;  // acquire: its fields are visible
  size_t looked_at = 0;
  size_t moves = 0;
  uint64_t next = 0;
  // Acquire: pairs with the release of the count; see finish().
  while (from.chunks_moved.load(std::memory_order_acquire) < from.chunks() && looked_at < budget) {
    const size_t count = std::min({Array::kChunk, from.capacity, budget - looked_at});
    // Relaxed: only a hint where to work. The cursor passes the array again and again, so helpers reach the chunks of
    // stalled helpers too.
    const uint64_t at = from.cursor.fetch_add(count, std::memory_order_relaxed) & (from.capacity - 1);
    const size_t begin = static_cast<size_t>(at);
    const size_t n = std::min(count, from.capacity - begin);
    moves += move_slots(from, begin, n);
    // A small budget may begin or end within a chunk. Such a chunk is marked by the thread that finds it complete.
    const bool whole = n == std::min(Array::kChunk, from.capacity) && begin % n == 0;
    mark_chunk(from, begin, whole);
    if (!whole) mark_chunk(from, begin + n - 1, false);
    looked_at += count;
    next = at + count;
  }
  count_moves(moves);
  if (moved != nullptr) *moved = moves;
  if (from.chunks_moved.load(std::memory_order_acquire) < from.chunks()) {
    prefetch_chunk(from, static_cast<size_t>((next + kFetchAhead) & (from.capacity - 1)));
    return true;
  }
  finish(thread, from);
  return false;
}

/// Moves every remaining slot in this thread and ends the migration. It does not use the count of chunks, so it ends
/// also if other helpers sleep.
void HashIndex::complete_migration(EpochThread& thread, Array& from) {
  Env::probe("node.index.migration_completed_alone");
  const latency::StageTimer growth(latency::Stage::kIndexGrowth);
  size_t moves = 0;
  const size_t chunk = std::min(Array::kChunk, from.capacity);
  for (size_t begin = 0; begin < from.capacity; begin += chunk) moves += move_slots(from, begin, chunk);
  count_moves(moves);
  finish(thread, from);
}

/// Makes the next array the current one and retires the old one. All slots of the old array are MOVED.
void HashIndex::finish(EpochThread& thread, Array& from) {
  Array* expected = &from;
  // Release: this thread, or the threads that marked the chunks, have seen every slot of the old array MOVED. So a
  // thread that loads the new array sees all copies. Failure: another thread has ended the migration.
  if (!current_.compare_exchange_strong(expected, from.next.load(std::memory_order_acquire), std::memory_order_acq_rel,
                                        std::memory_order_relaxed)) {
    return;
  }
  Env::probe("node.index.migrated");
  migrations_.fetch_add(1, std::memory_order_relaxed);  // a statistic
  thread.retire(&from, Array::destroy, &pool_);
}

/// True if the load of the array is outside of its limits: too many used slots, too many DELETED ones, or too few keys.
bool HashIndex::needs_migration(const Array& array) const {
  const uint64_t used = array.used();
  const uint64_t keys = array.keys();
  const uint64_t deleted = used - std::min(keys, used);
  if (beyond(used, kMaxLoad, array.capacity)) return true;
  if (beyond(deleted, kMaxDeletedOfSlots, array.capacity) && beyond(deleted, kMaxDeletedOfKeys, keys)) return true;
  return array.capacity > min_capacity_ && !beyond(keys, kMinLoad, array.capacity);
}

/// The capacity of the next array, from the number of keys in `array`.
size_t HashIndex::target_capacity(const Array& array) const {
  const uint64_t keys = array.keys();
  // Many erases since the last migration: more of them will follow, so the new array gets more room.
  const bool churned = beyond(array.used() - std::min(keys, array.used()), 1 - kMaxDeletedOfKeys, keys);
  const double load = churned ? kChurnLoad : kFreshLoad;
  size_t capacity = std::max(min_capacity_, array.capacity / kMaxShrink);
  while (static_cast<double>(keys) > load * static_cast<double>(capacity)) capacity *= 2;
  return capacity;
}

/// Begins a migration of `array`. True if a migration is under way afterwards. False if the array is not the current
/// one, the pool refuses the memory, or migrations are off.
bool HashIndex::start_migration(Array& array, Reserve reserve) {
  if (array.next.load(std::memory_order_acquire) != nullptr) return true;
  // Acquire: pairs with the release of finish(). The current array stays current until its `next` is set.
  if (current_.load(std::memory_order_acquire) != &array) return false;
  if (!growth_enabled_.load(std::memory_order_relaxed)) return false;  // a hint
  const latency::StageTimer growth(latency::Stage::kIndexGrowth);
  Array* const fresh = Array::create(pool_, target_capacity(array), reserve);
  if (fresh == nullptr) {
    Env::probe("node.index.growth_refused");
    growth_refused_.fetch_add(1, std::memory_order_relaxed);  // a statistic
    return array.next.load(std::memory_order_acquire) != nullptr;
  }
  Array* expected = nullptr;
  // Release: a thread that loads the pointer sees the fields and the zeroed slots. Failure: another thread was faster.
  if (!array.next.compare_exchange_strong(expected, fresh, std::memory_order_acq_rel, std::memory_order_acquire)) {
    Array::destroy(fresh, &pool_);
  }
  return true;
}

/// Compares the load of `array` with its limits, and begins or completes a migration if one is due. Inserts and erases
/// call it from time to time (Array::check_due()).
void HashIndex::check_load(EpochThread& thread, Array& array, Reserve reserve) {
  Array* const current = current_.load(std::memory_order_acquire);
  if (current != &array) {
    // `array` is the target of a migration. If inserts fill it too fast, this thread moves the remaining slots itself.
    const bool filled_by_migration = current->next.load(std::memory_order_acquire) == &array;
    if (filled_by_migration && beyond(array.inserted(), kMaxInsertsDuringMigration, array.capacity)) {
      complete_migration(thread, *current);
    }
    return;
  }
  if (!needs_migration(array)) return;
  // One thread allocates the next array while the others continue. Beyond kHardLoad every insert tries it
  // (make_room()). Relaxed: hints.
  if (!array.growing.exchange(true, std::memory_order_relaxed)) {
    if (!start_migration(array, reserve)) array.growing.store(false, std::memory_order_relaxed);
  }
  if (beyond(array.used(), kHardLoad, array.capacity)) array.over_hard_load.store(true, std::memory_order_relaxed);
}

/// Makes room for an insert into a crowded array. False if the array has no room and cannot grow. After true, the
/// insert looks again.
bool HashIndex::make_room(EpochThread& thread, Array& array, Reserve reserve) {
  Array* const current = current_.load(std::memory_order_acquire);
  if (current != &array) {
    if (current->next.load(std::memory_order_acquire) == &array) complete_migration(thread, *current);
    return true;  // the array is the current one now, or has a next one
  }
  return start_migration(array, reserve);
}

bool HashIndex::step(EpochThread& thread, size_t budget) {
  LOAM_DCHECK(thread.inside(), "operations run inside a guard");
  Array* const array = current_.load(std::memory_order_acquire);
  if (array->next.load(std::memory_order_acquire) == nullptr &&
      (!needs_migration(*array) || !start_migration(*array, Reserve::kWrite))) {
    return false;
  }
  size_t moved = 0;
  if (!help(thread, *array, budget, &moved)) return needs_migration(*current_.load(std::memory_order_acquire));
  // If this call moved nothing, a stalled thread holds the rest. The caller should not spin until that thread
  // continues.
  return moved > 0;
}

/// Updates the maximum of slots moved by one operation.
void HashIndex::count_moves(size_t moves) {
  uint64_t most = moves_max_.load(std::memory_order_relaxed);  // relaxed, and below: a statistic
  while (moves > most &&
         !moves_max_.compare_exchange_weak(most, moves, std::memory_order_relaxed, std::memory_order_relaxed)) {
  }
}

}  // namespace loam::storage
