// One array of a hash index: slots in segments, counters, and the state of its migration. The protocol stands in
// hash_index.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/base/assert.h"
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
/// struct, in the same cache lines as the constants that a lookup needs; one bit for each chunk of slots behind that.
///
/// Tags. With 2^k slots, a key's home is the k highest bits of its hash, and its tag the 19 bits from bit `tag_skip`
/// (counted from the top) on: at least the kNear's worth of lowest bits of the home, and at least 7 bits below it.
/// tag_skip is the same for eight sizes in a row, so that a slot's word together with its place tells the hash down to
/// the tag's last bit, unless the slot is far from its home: it moves to an array of such a size without a look at the
/// entry.
///
///     hash  |█ home of 2^k slots █████████████|  lower bits                      |
///                            |█ tag, 19 bits ████████|
///            ◀── tag_skip ──▶
struct Array {
  static constexpr size_t kStripes = 16;
  /// Slots nearer than this to their home have all that can be said of their distance in the tag.
  static constexpr size_t kNear = 32;
  /// Slots that are moved together, and whose end is marked by one bit: four cache lines.
  static constexpr size_t kChunk = 32;
  /// Each stripe is checked against the bounds once in capacity / (kStripes · kChecks) inserts: the sum is late by
  /// 1 / kChecks of the capacity at most.
  static constexpr size_t kChecks = 16;

  /// Inserts and erases of one thread, which alone writes them: so counting takes no locked instruction, and writers do
  /// not share the line. All threads from the last stripe's number on share that one.
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
  uint64_t tag(uint64_t hash) const { return (hash << tag_skip) >> SlotWord::kTagShift; }
  /// The first tag_skip + 19 bits of the hash of the key that slot `index` holds, which is not far.
  uint64_t hash_prefix(size_t index, SlotWord word) const {
    LOAM_DCHECK(!word.far(), "a near slot");
    const size_t mask = std::min(kNear, capacity) - 1;
    const size_t home_index = (index - ((index - (word.tag() >> tag_low_bits)) & mask)) & (capacity - 1);
    const uint64_t low = word.tag() & ((uint64_t{1} << tag_low_bits) - 1);
    return (static_cast<uint64_t>(home_index) << home_shift) | (low << (home_shift - tag_low_bits));
  }
  Stripe& stripe(size_t thread) { return stripes[std::min(thread, kStripes - 1)]; }
  /// Adds to a counter of that thread's stripe, and returns the new value.
  static uint64_t count(Env::Atomic<uint64_t>& counter, size_t thread, uint64_t change) {
    // Relaxed, all of them: a count. Who gets a thread's number after it sees its last value (EpochThread::number()).
    if (thread >= kStripes - 1) return counter.fetch_add(change, std::memory_order_relaxed) + change;
    const uint64_t value = counter.load(std::memory_order_relaxed) + change;
    counter.store(value, std::memory_order_relaxed);
    return value;
  }
  /// True once in check_interval counts of a stripe.
  bool check_due(uint64_t count) const { return (count & (check_interval - 1)) == 0; }

  /// Walks the key's path from `from` slots behind its home.
  Probe probe(Key key, uint64_t hash, size_t from = 0) const;

  uint64_t inserted() const;
  /// Slots that are not EMPTY, but for those that a migration sealed. Never too low but for copies under way.
  uint64_t used() const;
  /// Keys whose slot is in this array. Approximate while writers run.
  uint64_t keys() const;
  size_t bytes() const { return (capacity >> segment_shift) * segment_bytes; }

  // Migration and counters, by writers.
  alignas(64) Env::Atomic<uint64_t> cursor{0};  // next slot to move; runs round and round
  Env::Atomic<uint64_t> chunks_moved{0};        // marked chunks; chunks(): every slot is MOVED
  Env::Atomic<uint64_t> copied_in{0};           // keys, by the migration that filled this array
  Env::Atomic<bool> growing{false};             // somebody allocates the next array: others need not
  Env::Atomic<bool> crowded{false};             // used slots have passed kHardLoad
  Stripe stripes[kStripes];

  // Read by everybody: set once.
  alignas(64) Env::Atomic<Array*> next{nullptr};
  // Constant after construction.
  size_t capacity = 0;
  unsigned home_shift = 0;
  unsigned tag_skip = 0;
  unsigned tag_low_bits = 0;  // of the tag, below the home
  unsigned segment_shift = 0;
  size_t segment_bytes = 0;
  uint64_t check_interval = 1;  // a power of two

  size_t chunks() const { return (capacity + kChunk - 1) / kChunk; }
  /// The word with the chunk's bit: set when all its slots are MOVED.
  Env::Atomic<uint64_t>& marks(size_t chunk) const {
    return reinterpret_cast<Env::Atomic<uint64_t>*>(segments() + (capacity >> segment_shift))[chunk / 64];
  }

  Slot** segments() const {
    return reinterpret_cast<Slot**>(const_cast<Array*>(this) + 1);  // allocated behind the struct
  }

 private:
  Array() = default;
};

}  // namespace loam::storage::index_detail
