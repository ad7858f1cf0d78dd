#include "common/result/key_table.h"

#include <algorithm>
#include <cstring>

namespace loam {
namespace {

/// Slots of an empty table. Their number is always a power of two.
constexpr size_t kFirstSlots = 64;

}  // namespace

// Eight bytes at a time, by a multiplication to 128 bits whose halves are combined, as in wyhash.
uint64_t hash_of(Bytes bytes) {
  uint64_t h = 0x9e3779b97f4a7c15u ^ bytes.size();
  const auto mix = [&h](uint64_t word) {
    const auto product = static_cast<unsigned __int128>(h ^ word) * 0xa0761d6478bd642fu;
    h = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    mix(word);
  }
  uint64_t tail = 0;
  if (at != bytes.size()) std::memcpy(&tail, bytes.data() + at, bytes.size() - at);
  mix(tail);
  return h;
}

void KeyTable::clear() {
  // grow() has acquired the memory of all slots but the first ones.
  if (account_ != nullptr && slots_.size() > kFirstSlots) {
    account_->release((slots_.size() - kFirstSlots) * sizeof(uint32_t));
  }
  keys_.clear();
  ends_.clear();
  slots_ = std::vector<uint32_t>(kFirstSlots);
}

/// The slot of the key, or the empty slot in which it would be. It exists because at most half of the slots are used.
size_t KeyTable::slot_of(Bytes wanted) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = hash_of(wanted) & mask;
  while (slots_[slot] != 0 && !equal(wanted, key(slots_[slot] - 1))) slot = (slot + 1) & mask;
  return slot;
}

std::optional<size_t> KeyTable::find(Bytes wanted) const {
  const uint32_t found = slots_[slot_of(wanted)];
  return found == 0 ? std::nullopt : std::optional<size_t>(found - 1);
}

Result<size_t> KeyTable::add(Bytes added) {
  LOAM_RETURN_IF_ERROR(reserve_charged(keys_, added.size(), account_));
  LOAM_RETURN_IF_ERROR(reserve_charged(ends_, 1, account_));
  if ((ends_.size() + 1) * 2 > slots_.size()) LOAM_RETURN_IF_ERROR(grow());
  const size_t number = ends_.size();
  slots_[slot_of(added)] = static_cast<uint32_t>(number + 1);
  keys_.insert(keys_.end(), added.begin(), added.end());
  ends_.push_back(keys_.size());
  return number;
}

Status KeyTable::grow() {
  // The new hash table has twice the size. Both are held until all keys are in the new one.
  const size_t before = slots_.size() * sizeof(uint32_t);
  if (account_ != nullptr) LOAM_RETURN_IF_ERROR(account_->acquire(2 * before));
  slots_.assign(slots_.size() * 2, 0);
  const size_t mask = slots_.size() - 1;
  for (size_t number = 0; number < ends_.size(); ++number) {
    // Linear probing. All keys differ, so the first empty slot is the right one.
    size_t slot = hash_of(key(number)) & mask;
    while (slots_[slot] != 0) slot = (slot + 1) & mask;
    slots_[slot] = static_cast<uint32_t>(number + 1);
  }
  if (account_ != nullptr) account_->release(before);
  return ok_status();
}

}  // namespace loam
