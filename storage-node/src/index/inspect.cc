// Functions that examine a whole hash index: visits, statistics, invariants.
#include <algorithm>

#include "storage-node/src/index/array.h"
#include "storage-node/src/index/hash_index.h"
#include "storage-node/src/log/entry.h"

namespace loam::storage {

void HashIndex::visit(size_t part, size_t parts, void (*fn)(void*, Entry*), void* context) const {
  const Array* array = current_.load(std::memory_order_acquire);  // acquire, here and below: its fields are visible
  for (; array != nullptr; array = array->next.load(std::memory_order_acquire)) {
    const size_t end = array->capacity * (part + 1) / parts;
    for (size_t i = array->capacity * part / parts; i < end; ++i) {
      const SlotWord word{
          array->slot(i).load(std::memory_order_acquire)};  // acquire: the bytes of the entry are visible
      if (word.is_pointer()) fn(context, word.entry());
    }
  }
}

HashIndexStatistics HashIndex::statistics() const {
  HashIndexStatistics s;
  const Array* array = current_.load(std::memory_order_acquire);
  s.migrating = array->next.load(std::memory_order_acquire) != nullptr;
  for (; array != nullptr; array = array->next.load(std::memory_order_acquire)) {
    const uint64_t used = array->used();
    const uint64_t keys = array->keys();
    s.live += keys;
    // `copied_in` of the next array counts the keys that have left this one. The used slots that hold no key and were
    // not copied are DELETED.
    const Array* const to = array->next.load(std::memory_order_acquire);
    const uint64_t moved_out = to == nullptr ? 0 : to->copied_in.load(std::memory_order_relaxed);  // a statistic
    s.deleted = used - std::min(keys + moved_out, used);
    s.capacity = array->capacity;
    s.bytes += array->bytes();
  }
  // Relaxed: statistics.
  s.migrations = migrations_.load(std::memory_order_relaxed);
  s.growth_refused = growth_refused_.load(std::memory_order_relaxed);
  s.moves_max = moves_max_.load(std::memory_order_relaxed);
  return s;
}

double HashIndex::mean_probe_length() const {
  size_t keys = 0;
  size_t slots = 0;
  const Array* array = current_.load(std::memory_order_acquire);
  for (; array != nullptr; array = array->next.load(std::memory_order_acquire)) {
    for (size_t i = 0; i < array->capacity; ++i) {
      const SlotWord word{array->slot(i).load(std::memory_order_acquire)};
      if (!word.is_pointer()) continue;
      ++keys;
      slots += ((i - array->home(hash(Key(word.entry()->key)))) & (array->capacity - 1)) + 1;
    }
  }
  return keys == 0 ? 0 : static_cast<double>(slots) / static_cast<double>(keys);
}

void HashIndex::check_invariants() const {
  size_t arrays = 0;
  const Array* array = current_.load(std::memory_order_acquire);
  for (; array != nullptr; array = array->next.load(std::memory_order_acquire)) {
    LOAM_CHECK(++arrays <= 2, "at most two arrays");
    const bool migrating = array->next.load(std::memory_order_acquire) != nullptr;
    // First the slots, each by its word and by a find of its key. Then the marks of chunks and the counters, against
    // the counted slots.
    uint64_t keys = 0;
    uint64_t deleted = 0;
    uint64_t moved = 0;
    uint64_t empty = 0;
    for (size_t i = 0; i < array->capacity; ++i) {
      const Slot& slot = array->slot(i);
      const SlotWord word{slot.load(std::memory_order_acquire)};
      if (word.is_pointer()) {
        ++keys;
        const Key key(word.entry()->key);
        LOAM_CHECK(!word.is_frozen(), "an idle index has no half-copied slot");
        const size_t distance = (i - array->home(hash(key))) & (array->capacity - 1);
        LOAM_CHECK(word.tag() == array->tag(hash(key)), "a slot has the tag of its key");
        LOAM_CHECK(word.far() == (distance >= Array::kNear),
                   "the far bit of a slot agrees with its distance from the home");
        LOAM_CHECK(
            word.far() || (array->hash_prefix(i, word) ^ hash(key)) >> (array->home_shift - array->tag_low_bits) == 0,
            "the word and place of a near slot determine the first bits of the hash");
        LOAM_CHECK(find(key).slot == &slot, "a find of a key ends in its only slot (I2)");
      } else {
        deleted += word == SlotWord::deleted() ? 1 : 0;
        moved += word.is_moved() ? 1 : 0;
        empty += word == SlotWord::empty() ? 1 : 0;
      }
    }
    LOAM_CHECK(keys + deleted + moved + empty == array->capacity, "a slot holds a word of the state table");
    LOAM_CHECK(migrating || moved == 0, "MOVED only while there is a next array (I3)");
    uint64_t marked = 0;  // relaxed below: no thread writes
    for (size_t chunk = 0; chunk < array->chunks(); ++chunk) {
      const bool mark = (array->marks(chunk).load(std::memory_order_relaxed) >> chunk % 64 & 1) != 0;
      for (size_t i = chunk * Array::kChunk; mark && i < std::min((chunk + 1) * Array::kChunk, array->capacity); ++i) {
        LOAM_CHECK(SlotWord{array->slot(i).load(std::memory_order_relaxed)}.is_moved(),
                   "every slot of a marked chunk is MOVED");
      }
      marked += mark ? 1 : 0;
    }
    LOAM_CHECK(array->chunks_moved.load(std::memory_order_relaxed) == marked, "chunks_moved counts the marked chunks");
    LOAM_CHECK(array->keys() == keys, "the counters give the number of keys");
    LOAM_CHECK(migrating || array->used() == keys + deleted, "the counters give the number of used slots");
  }
}

}  // namespace loam::storage
