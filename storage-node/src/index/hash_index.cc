// Lookups and changes of the hash index. hash_index.h has the protocol, migration.cc the migration.
#include "storage-node/src/index/hash_index.h"

#include <algorithm>
#include <bit>
#include <string>

#include "common/base/env.h"
#include "storage-node/src/index/array.h"
#include "storage-node/src/log/entry.h"

namespace loam::storage {

using index_detail::Probe;

namespace {

/// Distance from the home slot to a slot of the second cache line that a write prefetches. A walk to an EMPTY slot
/// passes 5 slots on average, and 13 in an array that is about to grow. So it often ends in the next line.
constexpr size_t kWalkAhead = 5;

}  // namespace

Result<std::unique_ptr<HashIndex>> HashIndex::create(PagePool& pool, const HashIndexOptions& options) {
  if (!std::has_single_bit(options.initial_capacity) || options.initial_capacity < kMinCapacity ||
      options.moves_per_write < 1 || options.moves_per_write > kMaxMovesPerWrite) {
    return Status(StatusCode::kInvalidArgument,
                  "hash index: initial_capacity is a power of two from 16, moves_per_write lies between 1 and 64");
  }
  Array* first = Array::create(pool, options.initial_capacity, Reserve::kWrite);
  if (first == nullptr) {
    return Status(StatusCode::kNoSpace, "hash index: no memory for " + std::to_string(options.initial_capacity) +
                                            " slots: raise the node's memory limit or drop tables");
  }
  return std::unique_ptr<HashIndex>(new HashIndex(pool, options, first));
}

HashIndex::HashIndex(PagePool& pool, const HashIndexOptions& options, Array* first)
    : pool_(pool),
      min_capacity_(options.initial_capacity),
      moves_per_write_(options.moves_per_write),
      current_(first) {}

HashIndex::~HashIndex() {
  // Relaxed: no other thread is left.
  for (Array* array = current_.load(std::memory_order_relaxed); array != nullptr;) {
    Array* const next = array->next.load(std::memory_order_relaxed);
    Array::destroy(array, &pool_);
    array = next;
  }
}

uint64_t HashIndex::hash(Key key) {
  // The final mixing of xxHash64: every bit of the key changes the highest and the lowest bits.
  uint64_t x = key.value;
  x = (x ^ (x >> 33)) * 0xc2b2ae3d27d4eb4fu;
  x = (x ^ (x >> 29)) * 0x165667b19e3779f9u;
  return x ^ (x >> 32);
}

Cursor HashIndex::find_from(const Array* array, Key key, uint64_t hash) const {
  Cursor cursor{.key = key, .hash = hash};
  for (bool sealed = true; array != nullptr;) {  // `sealed`: the key's path is sealed in every array passed so far (I5)
    const Probe probe = array->probe(key, hash);
    // The key, or an EMPTY slot from which an insert may start: no earlier array can receive the key.
    if (probe.found() || (sealed && !probe.passed_moved)) {
      cursor.head = probe.word.entry();  // null if the word is EMPTY
      cursor.word = probe.word;
      cursor.slot = probe.slot;
      cursor.array = const_cast<Array*>(array);  // the array belongs to this index; only a find sees it as constant
      cursor.distance = probe.distance;
      return cursor;
    }
    if (!probe.passed_moved) break;
    // The path has a MOVED slot: the key may be in the next array.
    sealed &= probe.slot == nullptr || probe.word == SlotWord::moved_empty();
    array = array->next.load(std::memory_order_acquire);  // acquire: its slots are visible
  }
  // Absent, without a slot from which an insert may start.
  return cursor;
}

Cursor HashIndex::find(Key key) const {
  // Acquire, here and in every operation: pairs with the release of finish(); the fields of the array are visible.
  return find_from(current_.load(std::memory_order_acquire), key, hash(key));
}

void HashIndex::prefetch_slot(uint64_t hash, bool to_write) const {
  const Array* array = current_.load(std::memory_order_acquire);
  if (!to_write) return __builtin_prefetch(&array->slot(array->home(hash)), 0);
  __builtin_prefetch(&array->slot(array->home(hash)), 1);
  __builtin_prefetch(&array->slot(array->home(hash), kWalkAhead), 1);
  array = array->next.load(std::memory_order_acquire);  // its fields are visible
  if (array != nullptr) __builtin_prefetch(&array->slot(array->home(hash)), 1);
}

Cursor HashIndex::find_candidate(Key key, uint64_t hash, bool fetch) const {
  Array* const array = current_.load(std::memory_order_acquire);
  Cursor cursor{.key = key, .hash = hash, .array = array};
  const size_t home = array->home(hash);
  const uint64_t tag = array->tag(hash);
  for (size_t distance = 0; distance < array->capacity; ++distance) {
    Slot& slot = array->slot(home, distance);
    const SlotWord word{slot.load(std::memory_order_relaxed)};  // relaxed: confirm() loads it again
    if (word.is_moved()) break;                                 // without a slot, confirm() begins a find
    if (word == SlotWord::deleted() || (word.is_pointer() && word.tag() != tag)) continue;
    cursor.slot = &slot;
    cursor.distance = distance;
    if (fetch && word.is_pointer()) {
      __builtin_prefetch(word.entry());
      __builtin_prefetch(word.entry()->row_data() - 1);  // a header of 48 bytes may end in the next cache line
    }
    break;
  }
  return cursor;
}

void HashIndex::confirm(Cursor& cursor) const {
  if (cursor.slot != nullptr) {
    // Acquire: pairs with the swap that wrote the word; the bytes of the entry are visible.
    const SlotWord word{cursor.slot->load(std::memory_order_acquire)};
    // If the slot holds the key now, it is the key's slot (I2), whichever word the walk has seen there. If it is EMPTY
    // now, it was EMPTY during the walk. The walk passed no slot that was the key's, can become the key's (I1) or was
    // MOVED, so the key is absent.
    if (word == cursor.word) return;  // unchanged since find(), or EMPTY after find_candidate()
    if (word == SlotWord::empty() || (word.is_pointer() && word.entry()->key == cursor.key.value)) {
      cursor.word = word;
      cursor.head = word.entry();
      return;
    }
  }
  cursor = find_from(current_.load(std::memory_order_acquire), cursor.key, cursor.hash);
}

bool HashIndex::put(EpochThread& thread, Entry* head, Cursor& cursor, Reserve reserve) {
  Array& array = *cursor.array;
  const SlotWord word = SlotWord::pointer(array.tag(cursor.hash), cursor.distance >= Array::kNear, head);
  Env::Atomic<uint64_t>& inserted = array.stripe(thread.number()).inserted;
  // Counted before the swap, so that the count is never too low.
  const uint64_t count = Array::count(inserted, thread.number(), 1);
  uint64_t expected = SlotWord::empty().bits;
  // Release: a thread that loads the word sees the bytes of the entry. Acquire: it also sees what the earlier swaps of
  // this slot have released.
  if (!cursor.slot->compare_exchange_strong(expected, word.bits, std::memory_order_acq_rel,
                                            std::memory_order_relaxed)) {
    Array::count(inserted, thread.number(), -uint64_t{1});
    return false;
  }
  cursor.head = head;
  cursor.word = word;
  if (array.check_due(count)) check_load(thread, array, reserve);
  return true;
}

InsertOutcome HashIndex::insert(EpochThread& thread, Entry* head, Cursor& cursor, Reserve reserve) {
  LOAM_DCHECK(thread.inside(), "operations run inside a guard");
  Array* array = current_.load(std::memory_order_acquire);
  help(thread, *array, moves_per_write_);
  // `walked`: the cursor already holds the end of the path, in this array, or in the next one behind a sealed path.
  // Otherwise the insert walks the path itself, from this array on.
  bool walked = !cursor.found() && cursor.slot != nullptr;
  if (walked && cursor.array != array) {
    walked = cursor.array == array->next.load(std::memory_order_acquire);  // acquire: its fields are visible
    if (walked) array = cursor.array;
  }
  for (;; walked = false) {
    bool empty = true;
    if (!walked) {
      const Probe probe = array->probe(cursor.key, cursor.hash);
      cursor.head = probe.word.entry();
      cursor.word = probe.word;
      cursor.slot = probe.slot;
      cursor.array = array;
      cursor.distance = probe.distance;
      if (probe.found()) return InsertOutcome::kExists;
      empty = probe.slot != nullptr && probe.word == SlotWord::empty();
    }
    // Acquire: the fields of the next array are visible. A migration may begin after a load of null. The swap below is
    // right also then: the migration either finds the key in the slot, or has sealed the slot and the swap fails.
    Array* const next = array->next.load(std::memory_order_acquire);
    if (next != nullptr) {
      Env::probe("node.index.insert_met_migration");
      uint64_t expected = SlotWord::empty().bits;
      // Seal the path (I5). Acquire and release: as in put(). A failure means that another thread has filled or sealed
      // the slot, and the walk begins again.
      if (empty && !cursor.slot->compare_exchange_strong(expected, SlotWord::moved_empty().bits,
                                                         std::memory_order_acq_rel, std::memory_order_relaxed)) {
        continue;
      }
      array = next;
      continue;
    }
    // No EMPTY slot on the path, or too few in the array.
    if (cursor.slot == nullptr || array->over_hard_load.load(std::memory_order_relaxed)) {  // relaxed: a hint
      if (!make_room(thread, *array, reserve)) return InsertOutcome::kNoSpace;
      continue;
    }
    if (put(thread, head, cursor, reserve)) return InsertOutcome::kInserted;
    // Another thread has changed the slot: walk again.
  }
}

bool HashIndex::change(Cursor& cursor, Entry* desired) {
  Entry* const head = cursor.head;
  while (cursor.found()) {
    const SlotWord expected = cursor.word.unfrozen();
    const SlotWord word = desired == nullptr ? SlotWord::deleted() : expected.with_entry(desired);
    uint64_t bits = expected.bits;
    // Release: a thread that loads the word sees the bytes of the new head, and the MOVED_FULL that preceded this
    // operation (I4). Acquire on failure: the present head is read next.
    if (cursor.slot->compare_exchange_strong(bits, word.bits, std::memory_order_acq_rel, std::memory_order_acquire)) {
      cursor.word = word;
      return true;
    }
    const SlotWord seen{bits};
    if (seen.is_pointer() && seen.entry() != head) {
      cursor.word = seen;
      cursor.head = seen.entry();  // an entry of the same key: a slot never holds a second key (I1)
      return false;
    }
    Env::probe("node.index.change_met_migration");
    // A migration has reached the slot. A FROZEN one is completed first (I4); then the change goes to the next array.
    if (seen.is_pointer()) finish_slot(*cursor.array, *cursor.slot, seen, cursor.hash);
    cursor = find_from(cursor.array, cursor.key, cursor.hash);
    if (cursor.head != head) return false;
  }
  return false;
}

bool HashIndex::replace(Cursor& cursor, Entry* desired) {
  if (!change(cursor, desired)) return false;
  cursor.head = desired;
  return true;
}

bool HashIndex::erase(EpochThread& thread, Cursor& cursor) {
  LOAM_DCHECK(thread.inside(), "operations run inside a guard");
  help(thread, *current_.load(std::memory_order_acquire), moves_per_write_);
  if (!change(cursor, nullptr)) return false;
  Array& array = *cursor.array;
  const uint64_t count = Array::count(array.stripe(thread.number()).erased, thread.number(), 1);
  cursor.head = nullptr;
  cursor.slot = nullptr;
  if (array.check_due(count)) check_load(thread, array, Reserve::kWrite);
  return true;
}

}  // namespace loam::storage
