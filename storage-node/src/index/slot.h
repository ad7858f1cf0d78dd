// The 8-byte word of a hash index slot.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/base/assert.h"

namespace loam::storage {

struct Entry;

/// The value of one slot of a hash index array: empty, a pointer to an entry with a tag, or a mark.
///
///   63     45   44      43     42                        0
///   |  tag 19 | far | frozen | address bits 46…4 of Entry |     entries are 16-byte aligned, addresses are below 2^47
///
/// The tag is 19 bits of the key's hash. The array selects them (array.h): the lowest bits that determine the slot's
/// place, and the bits below them. So a walk reads the entry of another key at most once in more than a hundred slots
/// of the same place, and a migration rarely reads an entry to get its key.
///
/// In a word without an address, the `far` bit means DELETED. The frozen bit makes a word final in its array; the only
/// later change is from FROZEN to MOVED_FULL. All-zero memory is an array of empty slots.
///
/// Threads: a value. Source: [Thesis 4.2].
struct SlotWord {
  uint64_t bits = 0;

  static constexpr unsigned kTagBits = 19;
  static constexpr unsigned kTagShift = 64 - kTagBits;
  static constexpr uint64_t kFarBit = uint64_t{1} << 44;
  static constexpr uint64_t kFrozenBit = uint64_t{1} << 43;
  static constexpr uint64_t kAddressMask = kFrozenBit - 1;
  static constexpr unsigned kAddressShift = 4;

  /// EMPTY: no key was ever here.
  static constexpr SlotWord empty() { return {0}; }
  /// DELETED: the key of this slot was erased. The slot is never used again in this array.
  static constexpr SlotWord deleted() { return {kFarBit}; }
  /// MOVED_EMPTY: the slot was empty when the migration sealed it. No key is or will be here, nor behind it on a probe
  /// path that passes here.
  static constexpr SlotWord moved_empty() { return {kFrozenBit}; }
  /// MOVED_FULL: the key of this slot is in the next array, or was erased.
  static constexpr SlotWord moved_full() { return {kFarBit | kFrozenBit}; }
  /// A pointer to an entry. `far` says that the slot lies Array::kNear or more slots behind the home of its key.
  static SlotWord pointer(uint64_t tag, bool far, const Entry* entry) {
    return {(tag << kTagShift) | (far ? kFarBit : 0) | address_bits(entry)};
  }

  constexpr bool operator==(const SlotWord&) const = default;
  /// True for a slot that holds a key, frozen or not.
  constexpr bool is_pointer() const { return (bits & kAddressMask) != 0; }
  /// True for FROZEN: a pointer that a migration copies to the next array.
  constexpr bool is_frozen() const { return is_pointer() && (bits & kFrozenBit) != 0; }
  /// True for MOVED_EMPTY and MOVED_FULL.
  constexpr bool is_moved() const { return !is_pointer() && (bits & kFrozenBit) != 0; }
  /// The word after the freeze of a migration: EMPTY → MOVED_EMPTY, DELETED → MOVED_FULL, a pointer → FROZEN.
  constexpr SlotWord frozen() const { return {bits | kFrozenBit}; }
  /// The pointer as it was before the freeze.
  constexpr SlotWord unfrozen() const { return {bits & ~kFrozenBit}; }
  constexpr uint64_t tag() const { return bits >> kTagShift; }
  /// For a pointer: see pointer().
  constexpr bool far() const { return (bits & kFarBit) != 0; }
  /// The address of a pointer; null for every other word.
  Entry* entry() const { return reinterpret_cast<Entry*>((bits & kAddressMask) << kAddressShift); }
  /// A pointer to another entry of the same key.
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
