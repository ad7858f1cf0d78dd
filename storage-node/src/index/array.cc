// Allocation, probe walks and counts of one array.
#include "storage-node/src/index/array.h"

#include <algorithm>
#include <bit>
#include <new>

#include "storage-node/src/log/entry.h"

namespace loam::storage::index_detail {
namespace {

/// Array::tag_skip for a home of `home_bits` bits. The tag then contains log2(kNear) bits of the home at least (all
/// four bits in the smallest array), and 7 lower bits at least.
unsigned tag_skip_of(unsigned home_bits) {
  constexpr unsigned kNearBits = std::countr_zero(Array::kNear);
  constexpr unsigned kSizesAlike = 8;
  return home_bits < kNearBits ? 0 : (home_bits - kNearBits) / kSizesAlike * kSizesAlike;
}

}  // namespace

Array* Array::create(PagePool& pool, size_t capacity, Reserve reserve) {
  const size_t segment_bytes = std::clamp(capacity * sizeof(Slot), PagePool::kMinBlockBytes, pool.page_size());
  const size_t segment_slots = std::min(capacity, segment_bytes / sizeof(Slot));
  const size_t segments = capacity / segment_slots;
  // Refuses at once if the pool lacks pages. Otherwise the pool would have to zero again the pages that a failed
  // attempt has taken.
  if (segment_bytes == pool.page_size() && pool.free_pages(reserve) < segments) return nullptr;
  const size_t marks = (capacity / kChunk + 63) / 64;
  void* const memory = ::operator new(sizeof(Array) + segments * sizeof(Slot*) + std::max(marks, size_t{1}) * 8,
                                      std::align_val_t(alignof(Array)));
  auto* const array = new (memory) Array;
  const auto home_bits = static_cast<unsigned>(std::countr_zero(capacity));
  array->capacity = capacity;
  array->home_shift = 64u - home_bits;
  array->tag_skip = tag_skip_of(home_bits);
  array->tag_low_bits = array->tag_skip + SlotWord::kTagBits - home_bits;
  array->segment_shift = static_cast<unsigned>(std::countr_zero(segment_slots));
  array->segment_bytes = segment_bytes;
  array->check_interval = std::max(capacity / (kStripes * kChecks), size_t{1});
  std::fill_n(array->segments(), segments, nullptr);
  for (size_t chunk = 0; chunk < array->chunks(); chunk += 64) new (&array->marks(chunk)) Env::Atomic<uint64_t>(0);
  for (size_t i = 0; i < segments; ++i) {
    array->segments()[i] = reinterpret_cast<Slot*>(pool.allocate(segment_bytes, reserve));  // zeroed: empty slots
    if (array->segments()[i] == nullptr) {
      destroy(array, &pool);
      return nullptr;
    }
  }
  return array;
}

void Array::destroy(void* array, void* pool) {
  auto* const self = static_cast<Array*>(array);
  for (size_t i = 0; i < self->capacity >> self->segment_shift; ++i) {
    Slot* const segment = self->segments()[i];
    if (segment != nullptr) {
      static_cast<PagePool*>(pool)->release(reinterpret_cast<std::byte*>(segment), self->segment_bytes);
    }
  }
  self->~Array();
  ::operator delete(array, std::align_val_t(alignof(Array)));
}

Probe Array::probe(Key key, uint64_t hash, size_t from) const {
  const size_t start = home(hash);
  const uint64_t key_tag = tag(hash);
  Probe result;
  for (size_t distance = from; distance < capacity; ++distance) {
    Slot& s = slot(start, distance);
    // Acquire: pairs with the swap that wrote the word. The bytes of the entry and the next array are visible. After a
    // DELETED, the MOVED_FULL that preceded the erase is visible too (I4).
    const SlotWord word{s.load(std::memory_order_acquire)};
    if (word.is_pointer()) {
      if (word.tag() != key_tag || word.entry()->key != key.value) continue;  // reads the entry only if the tags agree
    } else if (word == SlotWord::moved_full()) {
      result.passed_moved = true;
      continue;
    } else if (word == SlotWord::deleted()) {
      continue;
    }
    // The key, EMPTY or MOVED_EMPTY: the end of the path.
    result.passed_moved |= word == SlotWord::moved_empty();
    result.slot = &s;
    result.word = word;
    result.distance = distance;
    return result;
  }
  return result;
}

uint64_t Array::inserted() const {
  uint64_t sum = 0;
  // Relaxed: the sum may be stale, and a later insert checks it again.
  for (const Stripe& stripe : stripes) sum += stripe.inserted.load(std::memory_order_relaxed);
  return sum;
}

uint64_t Array::used() const {
  return inserted() + copied_in.load(std::memory_order_relaxed);  // relaxed: as in inserted()
}

uint64_t Array::keys() const {
  // Keys leave this array by an erase or by a copy into the next array.
  // Acquire: the fields of the next array are visible.
  const Array* const to = next.load(std::memory_order_acquire);
  uint64_t gone = to == nullptr ? 0 : to->copied_in.load(std::memory_order_relaxed);  // relaxed: as in inserted()
  for (const Stripe& stripe : stripes) gone += stripe.erased.load(std::memory_order_relaxed);
  const uint64_t come = used();
  // While writers run, the two sums stem from different moments, so the difference could be negative.
  return come > gone ? come - gone : 0;
}

}  // namespace loam::storage::index_detail
