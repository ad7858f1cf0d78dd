#include "commit-manager/src/core/committed_ids.h"

#include <algorithm>
#include <bit>

namespace loam::commit {

void CommittedIds::restore(const CommitLogContents& contents, uint64_t now_ns) {
  truncated_up_to_ = contents.truncated_up_to.value;
  for (const IdRange& range : contents.committed) {
    for (uint64_t id = range.first.value; id <= range.last.value;) {
      Block& block = block_at(id / kBlockIds);
      block.newest_ns = now_ns;
      const uint64_t from = id % 64;
      const uint64_t count = std::min(64 - from, range.last.value - id + 1);
      block.bits[id % kBlockIds / 64] |= (count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1) << from;
      id += count;
    }
  }
}

CommittedIds::Block& CommittedIds::block_at(uint64_t number) {
  if (last_block_ == nullptr || last_number_ != number) {
    last_block_ = &blocks_.try_emplace(blocks_.end(), number)->second;
    last_number_ = number;
  }
  return *last_block_;
}

void CommittedIds::add(TransactionId id, uint64_t now_ns) {
  Block& block = block_at(id.value / kBlockIds);
  const uint64_t bit = id.value % kBlockIds;
  block.bits[bit / 64] |= uint64_t{1} << (bit % 64);
  block.newest_ns = std::max(block.newest_ns, now_ns);
}

bool CommittedIds::contains(TransactionId id) const {
  const auto block = blocks_.find(id.value / kBlockIds);
  if (block == blocks_.end()) return false;
  const uint64_t bit = id.value % kBlockIds;
  return ((block->second.bits[bit / 64] >> (bit % 64)) & 1) != 0;
}

bool CommittedIds::forgotten(TransactionId id) const {
  return id.value <= truncated_up_to_ && !blocks_.contains(id.value / kBlockIds);
}

bool CommittedIds::truncate(uint64_t now_ns, uint64_t keep_ns,
                            const std::function<bool(TransactionId first, TransactionId last)>& complete) {
  const size_t before = blocks_.size();
  last_block_ = nullptr;
  std::erase_if(blocks_, [&](const auto& entry) {
    const auto& [number, block] = entry;
    const TransactionId first(number * kBlockIds);
    const TransactionId last(first.value + kBlockIds - 1);
    if (now_ns < block.newest_ns + keep_ns || !complete(first, last)) return false;
    truncated_up_to_ = std::max(truncated_up_to_, last.value);
    return true;
  });
  return blocks_.size() != before;
}

std::vector<IdRange> CommittedIds::ranges() const {
  std::vector<IdRange> ranges;
  const auto add = [&](uint64_t first, uint64_t count) {
    if (!ranges.empty() && ranges.back().last.value + 1 == first) {
      ranges.back().last.value += count;
    } else {
      ranges.push_back({TransactionId(first), TransactionId(first + count - 1)});
    }
  };
  for (const auto& [number, block] : blocks_) {
    for (size_t word = 0; word < kWords; ++word) {
      uint64_t rest = block.bits[word];
      uint64_t at = number * kBlockIds + word * 64;
      while (rest != 0) {
        const int zeros = std::countr_zero(rest);
        const int ones = std::countr_one(rest >> zeros);
        add(at + static_cast<uint64_t>(zeros), static_cast<uint64_t>(ones));
        if (zeros + ones == 64) break;
        rest >>= zeros + ones;
        at += static_cast<uint64_t>(zeros + ones);
      }
    }
  }
  return ranges;
}

}  // namespace loam::commit
