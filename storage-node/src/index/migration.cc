// The incremental migration of a hash index; the argument stands in hash_index.h.
#include <algorithm>
#include <array>

#include "common/base/env.h"
#include "storage-node/src/index/array.h"
#include "storage-node/src/index/hash_index.h"
#include "storage-node/src/log/entry.h"

namespace loam::storage {

using index_detail::Probe;

namespace {

/// Slots claimed at once: two cache lines.
constexpr size_t kChunk = 16;

bool beyond(uint64_t count, double load, size_t capacity) {
  return static_cast<double>(count) >= load * static_cast<double>(capacity);
}

}  // namespace

/// Puts a FROZEN slot's key into the next array unless it is or was there. True if this call put it there.
bool HashIndex::copy(const Array& from, Slot& old_slot, SlotWord frozen) {
  Array& to = *from.next.load(std::memory_order_acquire);  // not null (I3); acquire: its fields are visible
  const Key key(frozen.entry()->key);
  const uint64_t hash_value = hash(key);
  for (size_t distance = 0;;) {
    const Probe probe = to.probe(key, hash_value, distance);
    // A MOVED slot there: the next array is itself being migrated, so this one was completed long ago.
    if (probe.found() || probe.passed_moved) return false;
    LOAM_CHECK(probe.slot != nullptr, "the next array has room for every key of the old one");
    // Immediately before the swap, after all readings of the path. Acquire: as those readings.
    if (old_slot.load(std::memory_order_acquire) != frozen.bits) return false;
    uint64_t expected = SlotWord::empty().bits;
    // Release: the entry's bytes stay visible to who finds it here. On failure: look at that slot again.
    if (probe.slot->compare_exchange_strong(expected, frozen.unfrozen().bits, std::memory_order_acq_rel,
                                            std::memory_order_relaxed)) {
      return true;
    }
    distance = probe.distance;
  }
}

/// Copies a FROZEN slot and makes it MOVED_FULL, for an operation that needs its key in the next array.
void HashIndex::finish_slot(Array& from, Slot& slot, SlotWord frozen) {
  const bool copied = copy(from, slot, frozen);
  Env::probe("node.index.slot_migrated");
  // Relaxed: a count.
  if (copied) from.next.load(std::memory_order_acquire)->copied_in.fetch_add(1, std::memory_order_relaxed);
  uint64_t expected = frozen.bits;
  // Release: the copy is visible to who sees MOVED_FULL. On failure: another has finished it.
  if (slot.compare_exchange_strong(expected, SlotWord::moved_full().bits, std::memory_order_acq_rel,
                                   std::memory_order_acquire)) {
    from.moved_out.fetch_add(1, std::memory_order_relaxed);  // a count
    from.moved.fetch_add(1, std::memory_order_acq_rel);      // pairs with finish()
  }
}

/// Moves `count` slots from `begin` on, by groups: freeze all, then prefetch what the copies need, then copy. Returns
/// how many slots became MOVED by this call.
size_t HashIndex::move_chunk(Array& from, size_t begin, size_t count) {
  struct Pending {
    Slot* slot;
    SlotWord word;
  };
  std::array<Pending, kChunk> pending;
  size_t frozen = 0;
  size_t moved = 0;
  for (size_t i = 0; i < count; ++i) {
    Slot& slot = from.slot(begin + i);
    SlotWord word{slot.load(std::memory_order_acquire)};  // acquire: the entry's key is read
    while (!word.is_moved() && !word.is_frozen()) {
      const SlotWord target = word == SlotWord::empty()     ? SlotWord::moved_empty()
                              : word == SlotWord::deleted() ? SlotWord::moved_full()
                                                            : word.frozen();
      // Acquire and release: links in the chain of swaps of this slot. On failure look at the new word.
      if (!slot.compare_exchange_strong(word.bits, target.bits, std::memory_order_acq_rel, std::memory_order_acquire)) {
        continue;
      }
      moved += target.is_moved() ? 1 : 0;
      word = target;
    }
    if (!word.is_frozen()) continue;
    __builtin_prefetch(word.entry());
    pending[frozen++] = {&slot, word};
  }
  const Array& to = *from.next.load(std::memory_order_acquire);  // its fields are visible
  for (size_t i = 0; i < frozen; ++i) {
    __builtin_prefetch(&to.slot(to.home(hash(Key(pending[i].word.entry()->key)))), 1);
  }
  if (frozen > 0) Env::pause_point("node.index.frozen");
  if (moved > 0) from.moved.fetch_add(moved, std::memory_order_acq_rel);  // pairs with finish()
  for (size_t i = 0; i < frozen; ++i) finish_slot(from, *pending[i].slot, pending[i].word);
  return moved + frozen;
}

/// Moves up to `budget` slots if the array is being migrated. True if slots are left.
bool HashIndex::help(EpochThread& thread, Array& from, size_t budget) {
  if (from.next.load(std::memory_order_acquire) == nullptr) return false;  // acquire: its fields are visible
  size_t looked_at = 0;
  size_t moved = 0;
  // Acquire: pairs with the counts' release; see finish().
  while (from.moved.load(std::memory_order_acquire) < from.capacity && looked_at < budget) {
    const size_t count = std::min(kChunk, budget - looked_at);
    // Relaxed: a hint where to work. It runs round, so that chunks of stalled helpers are met again.
    const uint64_t at = from.cursor.fetch_add(count, std::memory_order_relaxed) & (from.capacity - 1);
    const size_t n = std::min(count, from.capacity - static_cast<size_t>(at));
    moved += move_chunk(from, static_cast<size_t>(at), n);
    looked_at += count;
  }
  count_moves(moved);
  if (from.moved.load(std::memory_order_acquire) < from.capacity) return true;
  finish(thread, from);
  return false;
}

/// Moves every slot that is left without relying on anybody's count: whoever sleeps, this ends.
void HashIndex::complete_alone(EpochThread& thread, Array& from) {
  Env::probe("node.index.completed_alone");
  size_t moved = 0;
  for (size_t begin = 0; begin < from.capacity; begin += kChunk) moved += move_chunk(from, begin, kChunk);
  count_moves(moved);
  finish(thread, from);
}

/// All slots are MOVED: the next array takes over.
void HashIndex::finish(EpochThread& thread, Array& from) {
  Array* expected = &from;
  // Release: every slot of the old array was seen MOVED (in `moved`, or one by one), hence all copies are visible to
  // who loads the new array. Failure: another has done it.
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
  // Relaxed: a thread that does not see its own progress in the count looks again a moment later.
  const uint64_t before = array->moved.load(std::memory_order_relaxed);
  if (!help(thread, *array, budget)) return wants_migration(*current_.load(std::memory_order_acquire));
  // What is left may be in the hands of a thread that stands still: no reason to turn until it goes on.
  return array->moved.load(std::memory_order_relaxed) != before;
}

void HashIndex::count_moves(size_t moves) {
  uint64_t most = moves_max_.load(std::memory_order_relaxed);  // relaxed, and below: a statistic
  while (moves > most &&
         !moves_max_.compare_exchange_weak(most, moves, std::memory_order_relaxed, std::memory_order_relaxed)) {
  }
}

}  // namespace loam::storage
