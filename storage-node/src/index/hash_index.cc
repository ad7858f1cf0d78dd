#include "storage-node/src/index/hash_index.h"

#include <algorithm>
#include <bit>
#include <string>

#include "common/base/env.h"
#include "storage-node/src/index/array.h"
#include "storage-node/src/log/entry.h"

namespace loam::storage {

using index_detail::Probe;

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
  // Relaxed: nobody else is left.
  for (Array* array = current_.load(std::memory_order_relaxed); array != nullptr;) {
    Array* const next = array->next.load(std::memory_order_relaxed);
    Array::destroy(array, &pool_);
    array = next;
  }
}

uint64_t HashIndex::hash(Key key) {
  // The avalanche of xxHash64: every bit of the key reaches the highest and the lowest bits.
  uint64_t x = key.value;
  x = (x ^ (x >> 33)) * 0xc2b2ae3d27d4eb4fu;
  x = (x ^ (x >> 29)) * 0x165667b19e3779f9u;
  return x ^ (x >> 32);
}

Cursor HashIndex::find_from(const Array* array, Key key, uint64_t hash) const {
  Cursor cursor{.key = key, .hash = hash};
  while (array != nullptr) {
    const Probe probe = array->probe(key, hash);
    if (probe.found()) {
      cursor.head = probe.word.entry();
      cursor.slot = probe.slot;
      cursor.array = const_cast<Array*>(array);  // the index's own; const here only because a find writes nothing
      return cursor;
    }
    if (!probe.passed_moved) break;
    array = array->next.load(std::memory_order_acquire);  // acquire: its slots are visible
  }
  return cursor;
}

Cursor HashIndex::find(Key key) const {
  // Acquire, here and in every operation: pairs with the release of finish(); the array's fields are visible.
  return find_from(current_.load(std::memory_order_acquire), key, hash(key));
}

void HashIndex::prefetch_slot(uint64_t hash) const {
  const Array* array = current_.load(std::memory_order_acquire);
  __builtin_prefetch(&array->slot(array->home(hash)));
}

void HashIndex::find_batch(std::span<const Key> keys, std::span<Cursor> out) const {
  LOAM_DCHECK(keys.size() == out.size(), "a cursor for each key");
  const Array* const array = current_.load(std::memory_order_acquire);
  for (size_t begin = 0; begin < keys.size(); begin += kGroup) {
    const size_t count = std::min(kGroup, keys.size() - begin);
    uint64_t hashes[kGroup];
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = hash(keys[begin + i]);
      __builtin_prefetch(&array->slot(array->home(hashes[i])));
    }
    // The first slot with the right tag is the key's but once in 65,536 times.
    for (size_t i = 0; i < count; ++i) {
      const size_t home = array->home(hashes[i]);
      for (size_t distance = 0; distance < array->capacity; ++distance) {
        const SlotWord word{array->slot(home, distance).load(std::memory_order_relaxed)};  // relaxed: a prefetch's hint
        if (word == SlotWord::empty() || word == SlotWord::moved_empty()) break;
        if (!word.is_pointer() || word.tag() != SlotWord::tag_of(hashes[i])) continue;
        __builtin_prefetch(word.entry());
        __builtin_prefetch(word.entry()->row_data() - 1);  // the header's other cache line
        break;
      }
    }
    for (size_t i = 0; i < count; ++i) out[begin + i] = find_from(array, keys[begin + i], hashes[i]);
  }
}

InsertOutcome HashIndex::insert(EpochThread& thread, Key key, Entry* head, Cursor& cursor, Reserve reserve) {
  LOAM_DCHECK(thread.inside(), "operations run inside a guard");
  cursor = {.key = key, .hash = hash(key)};
  const SlotWord word = SlotWord::pointer(SlotWord::tag_of(cursor.hash), head);
  Array* array = current_.load(std::memory_order_acquire);
  help(thread, *array, moves_per_write_);
  for (;;) {
    const Probe probe = array->probe(key, cursor.hash);
    if (probe.found()) {
      cursor.head = probe.word.entry();
      cursor.slot = probe.slot;
      cursor.array = array;
      return InsertOutcome::kExists;
    }
    // Acquire: the next array's fields are visible. Null although a migration begins just now: then the swap below is
    // still right, the migration finds the key or has sealed the slot.
    Array* const next = array->next.load(std::memory_order_acquire);
    uint64_t expected = SlotWord::empty().bits;
    if (next != nullptr) {
      Env::probe("node.index.insert_met_migration");
      if (probe.slot != nullptr && probe.word == SlotWord::empty()) {
        // Seal (I5). Acquire and release: as every swap of a slot; a failure means that another took or sealed it.
        if (!probe.slot->compare_exchange_strong(expected, SlotWord::moved_empty().bits, std::memory_order_acq_rel,
                                                 std::memory_order_relaxed)) {
          continue;
        }
        array->moved.fetch_add(1, std::memory_order_acq_rel);  // pairs with finish()
      }
      array = next;
      continue;
    }
    if (probe.slot == nullptr || array->crowded.load(std::memory_order_relaxed)) {  // relaxed: a hint
      if (!make_room(thread, *array, reserve)) return InsertOutcome::kNoSpace;
      continue;
    }
    Array::Stripe& stripe = array->stripe(cursor.hash);
    const uint64_t count = stripe.inserted.fetch_add(1, std::memory_order_relaxed) + 1;  // relaxed: a count
    // Release: the entry's bytes are visible to who loads the word. Acquire for the chain of swaps of this slot.
    if (!probe.slot->compare_exchange_strong(expected, word.bits, std::memory_order_acq_rel,
                                             std::memory_order_relaxed)) {
      stripe.inserted.fetch_sub(1, std::memory_order_relaxed);  // as above
      continue;
    }
    cursor.head = head;
    cursor.slot = probe.slot;
    cursor.array = array;
    if (count % array->check_interval == 0) check_load(thread, *array, reserve);
    return InsertOutcome::kInserted;
  }
}

bool HashIndex::change(Cursor& cursor, SlotWord desired) {
  Entry* const head = cursor.head;
  while (cursor.slot != nullptr) {
    const SlotWord expected = SlotWord::pointer(SlotWord::tag_of(cursor.hash), head);
    uint64_t bits = expected.bits;
    // Release: the new head's bytes are visible to who loads the word, and (I4) that this operation came after
    // MOVED_FULL. Acquire on failure: the head that is there instead is read next.
    if (cursor.slot->compare_exchange_strong(bits, desired.bits, std::memory_order_acq_rel,
                                             std::memory_order_acquire)) {
      return true;
    }
    const SlotWord seen{bits};
    if (seen.is_pointer() && seen.unfrozen() != expected) {
      cursor.head = seen.entry();  // the same key's: a slot never holds another (I1)
      return false;
    }
    Env::probe("node.index.change_met_migration");
    if (seen.is_pointer()) finish_slot(*cursor.array, *cursor.slot, seen);  // frozen: on to the next array
    cursor = find_from(cursor.array, cursor.key, cursor.hash);
    if (cursor.head != head) return false;
  }
  return false;
}

bool HashIndex::replace(Cursor& cursor, Entry* desired) {
  if (!change(cursor, SlotWord::pointer(SlotWord::tag_of(cursor.hash), desired))) return false;
  cursor.head = desired;
  return true;
}

bool HashIndex::erase(EpochThread& thread, Cursor& cursor) {
  LOAM_DCHECK(thread.inside(), "operations run inside a guard");
  help(thread, *current_.load(std::memory_order_acquire), moves_per_write_);
  if (!change(cursor, SlotWord::deleted())) return false;
  Array& array = *cursor.array;
  const uint64_t count = array.stripe(cursor.hash).erased.fetch_add(1, std::memory_order_relaxed) + 1;  // a count
  cursor.head = nullptr;
  cursor.slot = nullptr;
  if (count % array.check_interval == 0) check_load(thread, array, Reserve::kWrite);
  return true;
}

}  // namespace loam::storage
