// One array of a hash index: slots in segments, counters, and the state of its migration. hash_index.h describes the
// protocol.
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

/// The outcome of a walk along a key's probe path in one array.
struct Probe {
  Slot* slot = nullptr;       ///< the slot that ended the walk; null: no slot of the array held the key or was EMPTY
  SlotWord word;              ///< the word of that slot: a pointer of the key, EMPTY or MOVED_EMPTY
  size_t distance = 0;        ///< slots between the home slot and that slot
  bool passed_moved = false;  ///< the walk met a MOVED slot, so the key may be in the next array

  /// True if the walk ended at the key.
  bool found() const { return word.is_pointer(); }
};

/// One array of slots, with its counters and its migration state.
///
/// Owner: the index until the migration out of the array ends, then the epoch domain. Threads: any.
/// Memory: the directory of segments lies behind the struct, in the same cache lines as the constants that a lookup
/// needs. Behind the directory lies one bit for each chunk of slots.
///
/// Tags. In an array of 2^k slots, the home of a key is the k highest bits of its hash. Its tag is the 19 bits of the
/// hash from bit `tag_skip` on, counted from the top. The tag contains the lowest log2(kNear) bits of the home at
/// least, and 7 bits below the home at least. Eight sizes in a row have the same tag_skip. So the word and the place
/// of a near slot determine the hash down to the last bit of the tag, and the slot moves to another array of these
/// sizes without a read of its entry. A slot that is far from its home lacks this property.
///
///     hash  |█ home of 2^k slots █████████████|  lower bits                      |
///                            |█ tag, 19 bits ████████|
///            ◀── tag_skip ──▶
struct Array {
  static constexpr size_t kStripes = 16;
  /// A slot is near if its distance from the home of its key is below this number. The tag of a near slot determines
  /// the distance.
  static constexpr size_t kNear = 32;
  /// Slots that a thread moves together: four cache lines. One bit marks a chunk whose slots are all moved.
  static constexpr size_t kChunk = 32;
  /// A thread compares the sums with the load limits once in capacity / (kStripes · kChecks) changes of its stripe. So
  /// the index notices a limit late by at most 1 / kChecks of the capacity.
  static constexpr size_t kChecks = 16;

  /// The counters of one thread. Only this thread writes them, so a count needs no locked instruction and no shared
  /// cache line. The last stripe is the exception: all threads with its number or a higher one share it.
  struct alignas(64) Stripe {
    Env::Atomic<uint64_t> inserted{0};  // raised before the swap, lowered if the swap fails: never too low
    Env::Atomic<uint64_t> erased{0};    // raised after the swap: never too high
  };

  /// Allocates an empty array of `capacity` slots, a power of two. Null if the pool refuses the memory.
  static Array* create(PagePool& pool, size_t capacity, Reserve reserve);
  /// Frees an array and returns its segments to the pool. The signature fits EpochThread::retire(); `pool` is the
  /// PagePool.
  static void destroy(void* array, void* pool);

  /// The first slot of the probe path of a hash.
  size_t home(uint64_t hash) const { return static_cast<size_t>(hash >> home_shift); }
  Slot& slot(size_t index) const {
    return segments()[index >> segment_shift][index & ((size_t{1} << segment_shift) - 1)];
  }
  /// The slot at a distance from a home. The path wraps around at the end of the array.
  Slot& slot(size_t home_index, size_t distance) const { return slot((home_index + distance) & (capacity - 1)); }
  /// The tag of a hash in this array.
  uint64_t tag(uint64_t hash) const { return (hash << tag_skip) >> SlotWord::kTagShift; }
  /// The first tag_skip + 19 bits of the hash of the key in slot `index`. The slot must be near.
  uint64_t hash_prefix(size_t index, SlotWord word) const {
    LOAM_DCHECK(!word.far(), "a near slot");
    const size_t mask = std::min(kNear, capacity) - 1;
    const size_t home_index = (index - ((index - (word.tag() >> tag_low_bits)) & mask)) & (capacity - 1);
    const uint64_t low = word.tag() & ((uint64_t{1} << tag_low_bits) - 1);
    return (static_cast<uint64_t>(home_index) << home_shift) | (low << (home_shift - tag_low_bits));
  }
  /// The stripe of a thread. `thread` is EpochThread::number().
  Stripe& stripe(size_t thread) { return stripes[std::min(thread, kStripes - 1)]; }
  /// Adds to a counter of the thread's stripe. Returns the new value.
  static uint64_t count(Env::Atomic<uint64_t>& counter, size_t thread, uint64_t change) {
    // Relaxed, all of them: a count. A later thread with the same number sees the last value (EpochThread::number()).
    if (thread >= kStripes - 1) return counter.fetch_add(change, std::memory_order_relaxed) + change;
    const uint64_t value = counter.load(std::memory_order_relaxed) + change;
    counter.store(value, std::memory_order_relaxed);
    return value;
  }
  /// Returns true for one of check_interval successive values of a counter.
  bool check_due(uint64_t count) const { return (count & (check_interval - 1)) == 0; }

  /// Walks the probe path of a key, beginning `from` slots behind its home, to the key or to the end of the path.
  Probe probe(Key key, uint64_t hash, size_t from = 0) const;

  /// Returns the number of inserts into this array, without the copies of a migration. The number is never too low.
  uint64_t inserted() const;
  /// Returns the number of slots that hold or held a key, without the empty slots that a migration has sealed. The
  /// number may lack copies that are under way.
  uint64_t used() const;
  /// Keys whose slot is in this array. Approximate while writers run.
  uint64_t keys() const;
  /// Memory of the slots.
  size_t bytes() const { return (capacity >> segment_shift) * segment_bytes; }

  // Migration state and counters, written by threads that insert, erase or migrate.
  alignas(64) Env::Atomic<uint64_t> cursor{0};  // the next slot to move, modulo capacity; only rises
  Env::Atomic<uint64_t> chunks_moved{0};        // marked chunks; if it is chunks(), every slot is MOVED
  Env::Atomic<uint64_t> copied_in{0};           // keys that the migration into this array has copied
  Env::Atomic<bool> growing{false};             // a thread allocates the next array
  Env::Atomic<bool> over_hard_load{false};      // used slots have passed kHardLoad
  Stripe stripes[kStripes];

  // Read by every thread; set once, when a migration out of this array begins.
  alignas(64) Env::Atomic<Array*> next{nullptr};
  // Constant after construction.
  size_t capacity = 0;
  unsigned home_shift = 0;
  unsigned tag_skip = 0;
  unsigned tag_low_bits = 0;  // bits of the tag below the home
  unsigned segment_shift = 0;
  size_t segment_bytes = 0;
  uint64_t check_interval = 1;  // a power of two

  /// Chunks of the array.
  size_t chunks() const { return (capacity + kChunk - 1) / kChunk; }
  /// The word that contains the bit of a chunk. The bit is set when all slots of the chunk are MOVED.
  Env::Atomic<uint64_t>& marks(size_t chunk) const {
    return reinterpret_cast<Env::Atomic<uint64_t>*>(segments() + (capacity >> segment_shift))[chunk / 64];
  }

  /// The directory: one address for each segment.
  Slot** segments() const {
    return reinterpret_cast<Slot**>(const_cast<Array*>(this) + 1);  // create() allocates it behind the struct
  }

 private:
  Array() = default;
};

}  // namespace loam::storage::index_detail
