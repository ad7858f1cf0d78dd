// The 8-byte word of a hash index slot.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/base/assert.h"

namespace loam::storage {

struct Entry;

/// One slot of a hash index array.
///
///   63        48 47                        4 3      0
///   |   tag 16  |  address bits 47…4 of Entry |  state |     entries are 16-byte aligned, addresses are below 2^47
///
/// The tag is 16 bits of the key's hash that do not decide the slot's place: a probe dereferences another key's entry
/// once in 65,536 slots. All-zero memory is a run of empty slots.
struct SlotWord {
  uint64_t bits = 0;

  static constexpr uint64_t kStateMask = 0xf;
  static constexpr uint64_t kFrozenBit = 1;
  static constexpr uint64_t kAddressMask = 0x0000'ffff'ffff'fff0;

  static constexpr SlotWord empty() { return {0}; }
  /// Held a key, which was erased. Never used again in this array.
  static constexpr SlotWord deleted() { return {2}; }
  /// Was empty when the migration came by: no key is or will be here or, on a probe path, behind it.
  static constexpr SlotWord moved_empty() { return {4}; }
  /// What was here is in the next array, or was deleted.
  static constexpr SlotWord moved_full() { return {6}; }
  /// The lowest bits of the hash; the slot's place is decided by the highest.
  static constexpr uint16_t tag_of(uint64_t hash) { return static_cast<uint16_t>(hash); }
  static SlotWord pointer(uint16_t tag, const Entry* entry) {
    const auto address = reinterpret_cast<uint64_t>(entry);
    LOAM_DCHECK((address & ~kAddressMask) == 0 && address != 0, "an entry is 16-byte aligned and below 2^48");
    return {(static_cast<uint64_t>(tag) << 48) | address};
  }

  constexpr bool operator==(const SlotWord&) const = default;
  constexpr bool is_pointer() const { return (bits & kAddressMask) != 0; }
  /// A pointer that is being copied to the next array; final here.
  constexpr bool is_frozen() const { return is_pointer() && (bits & kFrozenBit) != 0; }
  constexpr bool is_moved() const { return *this == moved_empty() || *this == moved_full(); }
  constexpr SlotWord frozen() const { return {bits | kFrozenBit}; }
  constexpr SlotWord unfrozen() const { return {bits & ~kFrozenBit}; }
  constexpr uint16_t tag() const { return static_cast<uint16_t>(bits >> 48); }
  Entry* entry() const { return reinterpret_cast<Entry*>(bits & kAddressMask); }
};
static_assert(sizeof(SlotWord) == 8 && std::is_trivially_copyable_v<SlotWord>);

}  // namespace loam::storage
