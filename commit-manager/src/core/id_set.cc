#include "commit-manager/src/core/id_set.h"

#include <bit>

#include "common/base/assert.h"

namespace loam::commit {
namespace {

/// Returns the lowest set bit at `from` or above; the number of all bits if there is none.
template <size_t N>
uint64_t next_bit(const std::array<uint64_t, N>& bits, uint64_t from) {
  if (from >= 64 * N) return 64 * N;
  size_t word = from / 64;
  uint64_t rest = bits[word] & (~uint64_t{0} << (from % 64));
  while (rest == 0) {
    if (++word == N) return 64 * N;
    rest = bits[word];
  }
  return word * 64 + static_cast<uint64_t>(std::countr_zero(rest));
}

}  // namespace

IdSet::Block& IdSet::block_at(uint64_t number) {
  if (last_block_ == nullptr || last_number_ != number) {
    last_block_ = &blocks_.try_emplace(blocks_.end(), number)->second;
    last_number_ = number;
  }
  return *last_block_;
}

void IdSet::add(TransactionId id) {
  Block& block = block_at(id.value / kBlockIds);
  const uint64_t bit = id.value % kBlockIds;
  LOAM_DCHECK(((block.bits[bit / 64] >> (bit % 64)) & 1) == 0, "the id is not in the set");
  block.bits[bit / 64] |= uint64_t{1} << (bit % 64);
  ++block.count;
  ++size_;
}

void IdSet::remove(TransactionId id) {
  const uint64_t number = id.value / kBlockIds;
  Block& block = block_at(number);
  const uint64_t bit = id.value % kBlockIds;
  LOAM_CHECK(((block.bits[bit / 64] >> (bit % 64)) & 1) != 0, "the id is in the set");
  block.bits[bit / 64] &= ~(uint64_t{1} << (bit % 64));
  --size_;
  if (--block.count != 0) return;
  blocks_.erase(number);
  last_block_ = nullptr;
}

TransactionId IdSet::lowest() const {
  LOAM_CHECK(!blocks_.empty(), "the set has an id");
  const auto& [number, block] = *blocks_.begin();
  return TransactionId(number * kBlockIds + next_bit(block.bits, 0));
}

bool IdSet::any_between(TransactionId first, TransactionId last) const {
  for (auto at = blocks_.lower_bound(first.value / kBlockIds); at != blocks_.end(); ++at) {
    const uint64_t begin = at->first * kBlockIds;
    if (begin > last.value) return false;
    const uint64_t bit = next_bit(at->second.bits, first.value > begin ? first.value - begin : 0);
    if (bit < kBlockIds) return begin + bit <= last.value;
  }
  return false;
}

void IdSet::append_to(std::vector<Version>& ids) const {
  ids.reserve(ids.size() + size_);
  for (const auto& [number, block] : blocks_) {
    for (uint64_t bit = next_bit(block.bits, 0); bit < kBlockIds; bit = next_bit(block.bits, bit + 1)) {
      ids.push_back(Version(number * kBlockIds + bit));
    }
  }
}

}  // namespace loam::commit
