// One array of a hash index: slots in segments, counters, and the state of its migration. The protocol stands in
// hash_index.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/env.h"
#include "common/base/ids.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/index/slot.h"

namespace loam::storage::index_detail {

using Slot = Env::Atomic<uint64_t>;
static_assert(sizeof(Slot) == sizeof(SlotWord), "zeroed pool memory is an array of empty slots");

/// Outcome of walking a key's path in one array.
struct Probe {
  Slot* slot = nullptr;       ///< where the walk ended; null: every slot was passed, none was the key's or EMPTY
  SlotWord word;              ///< what it held: the key's pointer, EMPTY or MOVED_EMPTY
  size_t distance = 0;        ///< from the home slot
  bool passed_moved = false;  ///< a MOVED slot was passed, or ended the walk: there is a next array to look at

  bool found() const { return word.is_pointer(); }
};

/// Slots, and what is counted about them. Owner: the index, then the epochs. The directory of segments lies behind the
/// struct, in the same cache lines as the constants that a lookup needs.
struct Array {
  static constexpr size_t kStripes = 16;
  /// Stripes are checked against the bounds once in capacity / (stripes · kChecks) inserts: the sum is late by
  /// 1 / kChecks of the capacity at most.
  static constexpr size_t kChecks = 16;

  /// Inserts and erases of the keys with one value of some hash bits, so that writers seldom share the line.
  struct alignas(64) Stripe {
    Env::Atomic<uint64_t> inserted{0};  // counted before the swap, taken back if it fails: never too low
    Env::Atomic<uint64_t> erased{0};    // counted after the swap: never too high
  };

  /// Null if the pool refuses. A constructed array is empty.
  static Array* create(PagePool& pool, size_t capacity, Reserve reserve);
  /// Gives everything back. Signature of an epoch's deleter; `pool` is the PagePool.
  static void destroy(void* array, void* pool);

  size_t home(uint64_t hash) const { return static_cast<size_t>(hash >> home_shift); }
  Slot& slot(size_t index) const {
    return segments()[index >> segment_shift][index & ((size_t{1} << segment_shift) - 1)];
  }
  Slot& slot(size_t home_index, size_t distance) const { return slot((home_index + distance) & (capacity - 1)); }
  Stripe& stripe(uint64_t hash) { return stripes[(hash >> 16) & (stripe_count - 1)]; }

  /// Walks the key's path from `from` slots behind its home.
  Probe probe(Key key, uint64_t hash, size_t from = 0) const;

  uint64_t inserted() const;
  /// Slots that are not EMPTY, but for those that a migration sealed. Never too low but for copies under way.
  uint64_t used() const;
  /// Keys whose slot is in this array. Approximate while writers run.
  uint64_t keys() const;
  size_t bytes() const { return (capacity >> segment_shift) * segment_bytes; }

  // Migration and counters, by writers.
  alignas(64) Env::Atomic<uint64_t> cursor{0};  // next chunk of slots to move; runs round and round
  Env::Atomic<uint64_t> moved{0};               // slots that have become MOVED; capacity: all
  Env::Atomic<uint64_t> copied_in{0};           // by the migration that filled this array
  Env::Atomic<uint64_t> moved_out{0};           // keys copied to the next array
  Env::Atomic<bool> growing{false};             // somebody allocates the next array: others need not
  Env::Atomic<bool> crowded{false};             // used slots have passed kHardLoad
  Stripe stripes[kStripes];

  // Read by everybody: set once.
  alignas(64) Env::Atomic<Array*> next{nullptr};
  // Constant after construction.
  size_t capacity = 0;
  unsigned home_shift = 0;
  unsigned segment_shift = 0;
  size_t segment_bytes = 0;
  size_t stripe_count = 1;
  uint64_t check_interval = 1;

  Slot** segments() const {
    return reinterpret_cast<Slot**>(const_cast<Array*>(this) + 1);  // allocated behind the struct
  }

 private:
  Array() = default;
};

}  // namespace loam::storage::index_detail
