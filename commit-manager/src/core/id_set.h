// A set of transaction ids that come and go.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "common/base/ids.h"

namespace loam::commit {

/// A set of transaction ids, as bits in blocks. It suits ids that lie close together, with a few far below.
///
/// Owner: Transactions. One thread. add() and remove() take one step where the id is in the block of the call before,
/// and otherwise log2 of the number of blocks. A block takes 0.6 KB, and lives while an id is in it.
class IdSet {
 public:
  static constexpr uint64_t kBlockIds = 4'096;

  /// The id is not in it.
  void add(TransactionId id);
  /// The id is in it.
  void remove(TransactionId id);

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  /// The lowest id; there is one.
  TransactionId lowest() const;
  bool any_between(TransactionId first, TransactionId last) const;
  /// Appends all of them, ascending.
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
  // The block of the last call of block_at(). Null: there was none, or it is gone.
  Block* last_block_ = nullptr;
  uint64_t last_number_ = 0;
};

}  // namespace loam::commit
