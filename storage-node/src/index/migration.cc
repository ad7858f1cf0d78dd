// The incremental migration of a hash index; the argument stands in hash_index.h.
#include <algorithm>

#include "common/base/env.h"
#include "storage-node/src/index/array.h"
#include "storage-node/src/index/hash_index.h"
#include "storage-node/src/log/entry.h"

namespace loam::storage {

namespace {

/// Slots between what is moved and what is fetched for a later move.
constexpr size_t kFetchAhead = 64;

bool beyond(uint64_t count, double load, size_t capacity) {
  return static_cast<double>(count) >= load * static_cast<double>(capacity);
}

}  // namespace

/// Puts a FROZEN slot's key, whose hash begins with `hash`, into the next array unless it is or was there. True if this
/// call put it there.
bool HashIndex::copy(Array& to, Slot& old_slot, SlotWord frozen, uint64_t hash) {
  const size_t home = to.home(hash);
  for (size_t distance = 0; distance < to.capacity;) {
    Slot& slot = to.slot(home, distance);
    const SlotWord seen{slot.load(std::memory_order_acquire)};  // acquire: see "Copying" (hash_index.h)
    // A MOVED slot there: the next array is itself being migrated, so this one was completed long ago.
    if (seen.is_moved() || seen.entry() == frozen.entry()) return false;
    if (seen != SlotWord::empty()) {
      ++distance;
      continue;
    }
    // Immediately before the swap, after all readings of the path. Acquire: as those readings.
    if (old_slot.load(std::memory_order_acquire) != frozen.bits) return false;
    uint64_t expected = SlotWord::empty().bits;
    const SlotWord word = SlotWord::pointer(to.tag(hash), distance >= Array::kNear, frozen.entry());
    // Release: the entry's bytes stay visible to who finds it here. On failure: look at that slot again.
    if (slot.compare_exchange_strong(expected, word.bits, std::memory_order_acq_rel, std::memory_order_relaxed)) {
      return true;
    }
  }
  LOAM_CHECK(false, "the next array has room for every key of the old one");
  return false;
}

/// Copies a FROZEN slot and makes it MOVED_FULL, for an operation that needs its key in the next array.
void HashIndex::finish_slot(Array& from, Slot& slot, SlotWord frozen, uint64_t hash) {
  Array& to = *from.next.load(std::memory_order_acquire);  // not null (I3); acquire: its fields are visible
  Env::probe("node.index.slot_migrated");
  if (copy(to, slot, frozen, hash)) to.copied_in.fetch_add(1, std::memory_order_relaxed);  // a count
  // A store: nothing else is written over FROZEN. Release: the copy is visible to who sees MOVED_FULL.
  slot.store(SlotWord::moved_full().bits, std::memory_order_release);
}

/// Moves `count` slots, kChunk at most, from `begin` on: freezes all, then copies. Returns how many it found not MOVED.
size_t HashIndex::move_slots(Array& from, size_t begin, size_t count) {
  struct Pending {
    size_t index;
    uint64_t bits;
  };
  Pending pending[Array::kChunk];  // not initialised
  size_t frozen = 0;
  size_t moves = 0;
  Array& to = *from.next.load(std::memory_order_acquire);  // not null (I3); acquire: its fields are visible
  const bool same_tags = from.tag_skip == to.tag_skip;
  for (size_t i = begin; i < begin + count; ++i) {
    Slot& slot = from.slot(i);
    SlotWord word{slot.load(std::memory_order_acquire)};  // acquire: the entry's key may be read
    if (word.is_moved()) continue;
    ++moves;
    // Acquire and release: links in the chain of swaps of this slot. On failure look at the new word.
    while (word != word.frozen() &&
           !slot.compare_exchange_strong(word.bits, word.frozen().bits, std::memory_order_acq_rel,
                                         std::memory_order_acquire)) {
    }
    if (!word.is_pointer()) continue;  // sealed
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
    const uint64_t prefix = near ? from.hash_prefix(index, word) : hash(Key(word.entry()->key));
    Env::probe(near ? "node.index.slot_migrated" : "node.index.slot_migrated_by_key");
    copied += copy(to, slot, word, prefix) ? 1 : 0;
    slot.store(SlotWord::moved_full().bits, std::memory_order_release);  // as in finish_slot()
  }
  if (copied > 0) to.copied_in.fetch_add(copied, std::memory_order_relaxed);  // a count
  return moves;
}

/// Marks the chunk of this slot and counts it, if all its slots are MOVED and nobody has. `moved`: the caller has seen
/// them all MOVED.
void HashIndex::mark_chunk(Array& from, size_t index, bool moved) {
  const size_t chunk = index / Array::kChunk;
  const uint64_t bit = uint64_t{1} << chunk % 64;
  Env::Atomic<uint64_t>& marks = from.marks(chunk);
  if ((marks.load(std::memory_order_relaxed) & bit) != 0) return;  // relaxed: a mark once seen is there
  const size_t end = std::min((chunk + 1) * Array::kChunk, from.capacity);
  for (size_t i = chunk * Array::kChunk; i < end && !moved; ++i) {
    // Acquire: pairs with the release of whoever moved it; passed on to finish() by the count's release.
    if (!SlotWord{from.slot(i).load(std::memory_order_acquire)}.is_moved()) return;
  }
  if ((marks.fetch_or(bit, std::memory_order_acq_rel) & bit) == 0) {
    Env::pause_point("node.index.marked");
    from.chunks_moved.fetch_add(1, std::memory_order_acq_rel);  // pairs with help()
  }
}

/// Fetches what a move of the slots from `begin` on needs: its slots, and where they go.
void HashIndex::prefetch_chunk(const Array& from, size_t begin) {
  constexpr size_t kLineSlots = 8;
  const Array& to = *from.next.load(std::memory_order_acquire);  // its fields are visible
  const size_t slots = std::min(Array::kChunk, from.capacity);
  const size_t home = to.home(static_cast<uint64_t>(begin) << from.home_shift);
  for (size_t i = 0; i < slots; i += kLineSlots) __builtin_prefetch(&from.slot(begin, i), 1);
  for (size_t i = 0; i < slots * to.capacity / from.capacity; i += kLineSlots) {
    __builtin_prefetch(&to.slot(home, i), 1);
  }
}

/// Moves up to `budget` slots if the array is being migrated. `moved`: how many. True if slots are left.
bool HashIndex::help(EpochThread& thread, Array& from, size_t budget, size_t* moved) {
  if (from.next.load(std::memory_order_acquire) == nullptr) return false;  // acquire: its fields are visible
  size_t looked_at = 0;
  size_t moves = 0;
  uint64_t next = 0;
  // Acquire: pairs with the count's release; see finish().
  while (from.chunks_moved.load(std::memory_order_acquire) < from.chunks() && looked_at < budget) {
    const size_t count = std::min({Array::kChunk, from.capacity, budget - looked_at});
    // Relaxed: a hint where to work. It runs round, so that chunks of stalled helpers are met again.
    const uint64_t at = from.cursor.fetch_add(count, std::memory_order_relaxed) & (from.capacity - 1);
    const size_t begin = static_cast<size_t>(at);
    const size_t n = std::min(count, from.capacity - begin);
    moves += move_slots(from, begin, n);
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

/// Moves every slot that is left without relying on anybody's count: whoever sleeps, this ends.
void HashIndex::complete_alone(EpochThread& thread, Array& from) {
  Env::probe("node.index.completed_alone");
  size_t moves = 0;
  const size_t chunk = std::min(Array::kChunk, from.capacity);
  for (size_t begin = 0; begin < from.capacity; begin += chunk) moves += move_slots(from, begin, chunk);
  count_moves(moves);
  finish(thread, from);
}

/// All slots are MOVED: the next array takes over.
void HashIndex::finish(EpochThread& thread, Array& from) {
  Array* expected = &from;
  // Release: every slot of the old array was seen MOVED (by who marked its chunk, or one by one), hence all copies are
  // visible to who loads the new array. Failure: another has done it.
  if (!current_.compare_exchange_strong(expected, from.next.load(std::memory_order_acquire), std::memory_order_acq_rel,
                                        std::memory_order_relaxed)) {
    return;
  }
  Env::probe("node.index.migrated");
  migrations_.fetch_add(1, std::memory_order_relaxed);  // a statistic
  thread.retire(&from, Array::destroy, &pool_);
}

bool HashIndex::wants_migration(const Array& array) const {
  const uint64_t used = array.used();
  const uint64_t keys = array.keys();
  const uint64_t deleted = used - std::min(keys, used);
  if (beyond(used, kMaxLoad, array.capacity)) return true;
  if (beyond(deleted, kMaxDeletedOfSlots, array.capacity) && beyond(deleted, kMaxDeletedOfKeys, keys)) return true;
  return array.capacity > min_capacity_ && !beyond(keys, kMinLoad, array.capacity);
}

size_t HashIndex::target_capacity(const Array& array) const {
  const uint64_t keys = array.keys();
  const bool churned = beyond(array.used() - std::min(keys, array.used()), 1 - kMaxDeletedOfKeys, keys);
  const double load = churned ? kChurnLoad : kFreshLoad;
  size_t capacity = std::max(min_capacity_, array.capacity / kMaxShrink);
  while (static_cast<double>(keys) > load * static_cast<double>(capacity)) capacity *= 2;
  return capacity;
}

/// Begins a migration of the current array. True if one is under way afterwards; false if the array is not the current
/// one, the pool refuses, or growth is off.
bool HashIndex::start_migration(Array& array, Reserve reserve) {
  if (array.next.load(std::memory_order_acquire) != nullptr) return true;
  // Acquire: what finish() released. An array that is current stays so until its next is set.
  if (current_.load(std::memory_order_acquire) != &array) return false;
  if (!growth_enabled_.load(std::memory_order_relaxed)) return false;  // a hint
  Array* const fresh = Array::create(pool_, target_capacity(array), reserve);
  if (fresh == nullptr) {
    Env::probe("node.index.growth_refused");
    growth_refused_.fetch_add(1, std::memory_order_relaxed);  // a statistic
    return array.next.load(std::memory_order_acquire) != nullptr;
  }
  Array* expected = nullptr;
  // Release: the new array's fields and zeroed slots are visible to who loads it. Failure: another was faster.
  if (!array.next.compare_exchange_strong(expected, fresh, std::memory_order_acq_rel, std::memory_order_acquire)) {
    Array::destroy(fresh, &pool_);
  }
  return true;
}

/// After an insert into `array` or an erase, now and then: begins or speeds up a migration if it is time.
void HashIndex::check_load(EpochThread& thread, Array& array, Reserve reserve) {
  Array* const current = current_.load(std::memory_order_acquire);
  if (current != &array) {
    const bool filled_by_migration = current->next.load(std::memory_order_acquire) == &array;
    if (filled_by_migration && beyond(array.inserted(), kMaxInsertsMeanwhile, array.capacity)) {
      complete_alone(thread, *current);
    }
    return;
  }
  if (!wants_migration(array)) return;
  // One allocates, the others go on; near the end everybody tries. Relaxed: hints.
  if (!array.growing.exchange(true, std::memory_order_relaxed)) {
    if (!start_migration(array, reserve)) array.growing.store(false, std::memory_order_relaxed);
  }
  if (beyond(array.used(), kHardLoad, array.capacity)) array.crowded.store(true, std::memory_order_relaxed);
}

/// Before an insert into a crowded array. False: no room, and none to be had.
bool HashIndex::make_room(EpochThread& thread, Array& array, Reserve reserve) {
  Array* const current = current_.load(std::memory_order_acquire);
  if (current != &array) {
    if (current->next.load(std::memory_order_acquire) == &array) complete_alone(thread, *current);
    return true;  // look again: the array is current now, or has a next one
  }
  return start_migration(array, reserve);
}

bool HashIndex::step(EpochThread& thread, size_t budget) {
  LOAM_DCHECK(thread.inside(), "operations run inside a guard");
  Array* const array = current_.load(std::memory_order_acquire);
  if (array->next.load(std::memory_order_acquire) == nullptr &&
      (!wants_migration(*array) || !start_migration(*array, Reserve::kWrite))) {
    return false;
  }
  size_t moved = 0;
  if (!help(thread, *array, budget, &moved)) return wants_migration(*current_.load(std::memory_order_acquire));
  // What is left may be in the hands of a thread that stands still: no reason to turn until it goes on.
  return moved > 0;
}

void HashIndex::count_moves(size_t moves) {
  uint64_t most = moves_max_.load(std::memory_order_relaxed);  // relaxed, and below: a statistic
  while (moves > most &&
         !moves_max_.compare_exchange_weak(most, moves, std::memory_order_relaxed, std::memory_order_relaxed)) {
  }
}

}  // namespace loam::storage
