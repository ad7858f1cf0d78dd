// Hashes of rows, and sets of rows with equal hashes and equal values.
#include "storage-node/src/scan/block_groups.h"

#include <array>
#include <utility>

#include "common/schema/value.h"
#include "storage-node/src/scan/block_values.h"

namespace loam::storage {

namespace {

/// An odd multiplier with bits in no pattern.
constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15u;

}  // namespace

std::span<const BlockGroups::Set> BlockGroups::split(BlockValues& values, uint64_t block) {
  if (std::exchange(block_, block) == block) return sets_;
  sets_.clear();
  if (!hash(values) || !fill(values, block) || !equal_in_sets(values)) {
    sets_.clear();
    return sets_;
  }
  if (numbers_.size() + kMaxSets > kMaxNumbers) {
    numbers_.clear();
    keys_ = std::make_shared<std::vector<Keys>>();
    ++epoch_;
  }
  for (Set& set : sets_) set.number = number_of(values, set.rows.front());
  return sets_;
}

/// Hashes the values of each row. Returns whether the keys tell the values apart.
bool BlockGroups::hash(BlockValues& values) {
  hashes_ = {};
  for (const uint16_t column : columns_) {
    const int64_t* const keys = values.exact_keys(column);
    if (keys == nullptr) return false;
    for (size_t row = 0; row < values.size(); ++row) {
      const uint64_t h = (hashes_[row] ^ static_cast<uint64_t>(keys[row])) * kMultiplier;
      hashes_[row] = h ^ (h >> 32);
    }
    // A NULL has the key of another value.
    (values.all() - values.present(column)).for_each([&](size_t row) { hashes_[row] = ~hashes_[row]; });
  }
  return true;
}

/// Makes a set of the rows of each hash. Returns whether there are few of them.
bool BlockGroups::fill(BlockValues& values, uint64_t block) {
  for (size_t row = 0; row < values.size(); ++row) {
    size_t at = hashes_[row] % places_.size();
    while (places_[at].block == block && places_[at].hash != hashes_[row]) at = (at + 1) % places_.size();
    Place& place = places_[at];
    if (place.block != block) {
      if (sets_.size() == kMaxSets) return false;
      place = {block, hashes_[row], static_cast<uint8_t>(sets_.size())};
      sets_.emplace_back();
    }
    set_of_[row] = place.set;
    sets_[place.set].rows.set(row);
  }
  return true;
}

/// Whether all rows of each set have equal values, which equal hashes do not promise.
bool BlockGroups::equal_in_sets(BlockValues& values) const {
  for (const uint16_t column : columns_) {
    const int64_t* const keys = values.exact_keys(column);
    std::array<int64_t, kMaxSets> first{};
    for (size_t set = 0; set < sets_.size(); ++set) first[set] = keys[sets_[set].rows.front()];
    int64_t differ = 0;
    for (size_t row = 0; row < values.size(); ++row) differ |= keys[row] ^ first[set_of_[row]];
    if (differ != 0) return false;
    const RowMask present = values.present(column);
    for (const Set& set : sets_) {
      const RowMask with = set.rows & present;
      if (with.any() && with != set.rows) return false;
    }
  }
  return true;
}

uint32_t BlockGroups::number_of(BlockValues& values, size_t row) {
  Keys group;
  for (const uint16_t column : columns_) {
    const bool present = values.present(column).test(row);
    group.push_back(present ? std::optional(values.exact_keys(column)[row]) : std::nullopt);
  }
  const auto [place, is_new] = numbers_.try_emplace(group, static_cast<uint32_t>(numbers_.size()));
  if (is_new) keys_->push_back(std::move(group));
  return place->second;
}

}  // namespace loam::storage
