// A set of transaction ids to which ids are added and removed all the time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "common/base/ids.h"

namespace loam::commit {

/// A set of transaction ids, kept as bits in blocks. It suits ids that lie close together, with a few far below them.
///
/// Owner: Transactions. One thread. add() and remove() take one step if the id is in the block of the previous call,
/// and log2(blocks()) steps otherwise. A block takes 0.6 KB and is freed when its last id is removed.
class IdSet {
 public:
  static constexpr uint64_t kBlockIds = 4'096;

  /// Adds an id that is not in the set.
  void add(TransactionId id);
  /// Removes an id that is in the set.
  void remove(TransactionId id);

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  /// Returns the lowest id. The set must not be empty.
  TransactionId lowest() const;
  /// True if the set has an id from `first` to `last`, both included.
  bool any_between(TransactionId first, TransactionId last) const;
  /// Appends all ids to `ids`, ascending.
  void append_to(std::vector<Version>& ids) const;
  size_t blocks() const { return blocks_.size(); }

 private:
  static constexpr size_t kWords = kBlockIds / 64;
  struct Block {
    std::array<uint64_t, kWords> bits{};
    size_t count = 0;
  };
  Block& block_at(uint64_t number);

  std::map<uint64_t, Block> blocks_;  // by id / kBlockIds; none is empty
  size_t size_ = 0;
  // The block of the last call of block_at(). Null: no call yet, or the block was freed.
  Block* last_block_ = nullptr;
  uint64_t last_number_ = 0;
};

}  // namespace loam::commit
