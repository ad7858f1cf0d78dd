// The 8-byte word of a hash index slot.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/base/assert.h"

namespace loam::storage {

struct Entry;

/// One slot of a hash index array.
///
///   63     45   44      43     42                        0
///   |  tag 19 | far | frozen | address bits 46…4 of Entry |     entries are 16-byte aligned, addresses are below 2^47
///
/// The tag is 19 bits of the key's hash; which ones, the array decides (array.h): the lowest that decide the slot's
/// place and those below them. So a walk dereferences another key's entry once in more than a hundred slots of the same
/// place at worst, and a migration seldom has to read an entry for its key.
///
/// Without an address the `far` bit means DELETED. The frozen bit makes any word final in its array, but for the step
/// from FROZEN to MOVED_FULL. All-zero memory is a run of empty slots.
struct SlotWord {
  uint64_t bits = 0;

  static constexpr unsigned kTagBits = 19;
  static constexpr unsigned kTagShift = 64 - kTagBits;
  static constexpr uint64_t kFarBit = uint64_t{1} << 44;
  static constexpr uint64_t kFrozenBit = uint64_t{1} << 43;
  static constexpr uint64_t kAddressMask = kFrozenBit - 1;
  static constexpr unsigned kAddressShift = 4;

  static constexpr SlotWord empty() { return {0}; }
  /// Held a key, which was erased. Never used again in this array.
  static constexpr SlotWord deleted() { return {kFarBit}; }
  /// Was empty when the migration came by: no key is or will be here or, on a probe path, behind it.
  static constexpr SlotWord moved_empty() { return {kFrozenBit}; }
  /// What was here is in the next array, or was deleted.
  static constexpr SlotWord moved_full() { return {kFarBit | kFrozenBit}; }
  /// `far`: the slot lies Array::kNear or more slots behind its key's home.
  static SlotWord pointer(uint64_t tag, bool far, const Entry* entry) {
    return {(tag << kTagShift) | (far ? kFarBit : 0) | address_bits(entry)};
  }

  constexpr bool operator==(const SlotWord&) const = default;
  constexpr bool is_pointer() const { return (bits & kAddressMask) != 0; }
  /// A pointer that is being copied to the next array; final here.
  constexpr bool is_frozen() const { return is_pointer() && (bits & kFrozenBit) != 0; }
  constexpr bool is_moved() const { return !is_pointer() && (bits & kFrozenBit) != 0; }
  /// What a migration makes of it: EMPTY → MOVED_EMPTY, DELETED → MOVED_FULL, a pointer → FROZEN.
  constexpr SlotWord frozen() const { return {bits | kFrozenBit}; }
  constexpr SlotWord unfrozen() const { return {bits & ~kFrozenBit}; }
  constexpr uint64_t tag() const { return bits >> kTagShift; }
  constexpr bool far() const { return (bits & kFarBit) != 0; }
  Entry* entry() const { return reinterpret_cast<Entry*>((bits & kAddressMask) << kAddressShift); }
  /// The same key's slot, leading to another entry.
  SlotWord with_entry(const Entry* entry) const { return {(bits & ~kAddressMask) | address_bits(entry)}; }

 private:
  static uint64_t address_bits(const Entry* entry) {
    const auto address = reinterpret_cast<uint64_t>(entry);
    LOAM_DCHECK(address != 0 && (address & 15) == 0 && address >> kAddressShift <= kAddressMask,
                "an entry is 16-byte aligned and below 2^47");
    return address >> kAddressShift;
  }
};
static_assert(sizeof(SlotWord) == 8 && std::is_trivially_copyable_v<SlotWord>);

}  // namespace loam::storage
