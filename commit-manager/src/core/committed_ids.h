// Which transactions were committed, as far as somebody may still need to know.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include <loam/commit/core.h>

#include "common/base/ids.h"

namespace loam::commit {

/// The ids of committed transactions that the commit log has to keep [R4, R11]: a client that lost the answer may ask
/// for their outcome, and a storage node may still hold intents of them.
///
/// Ids are dense, so a block of kBlockIds ids is an array of bits. A block is dropped as a whole, when none of its ids
/// is needed any more. 100,000 commits a second take 45 MB an hour while no block is dropped.
///
/// Owner: Core. One thread. add() and contains() take log2(blocks()) steps; add() takes one where the id is in the
/// block of the id before.
class CommittedIds {
 public:
  static constexpr uint64_t kBlockIds = 4'096;

  /// Takes what the log held at the start.
  void restore(const CommitLogContents& contents, uint64_t now_ns);
  void add(TransactionId id, uint64_t now_ns);
  bool contains(TransactionId id) const;
  /// The id was not committed, or it was, and that is forgotten.
  bool forgotten(TransactionId id) const;

  /// Drops the blocks whose newest commit was added at least `keep_ns` ago and for which `complete(first, last)` holds:
  /// no storage node needs the outcomes of the ids from `first` to `last` any more. True: some were dropped.
  bool cut(uint64_t now_ns, uint64_t keep_ns,
           const std::function<bool(TransactionId first, TransactionId last)>& complete);

  /// All of them, ascending.
  std::vector<IdRange> ranges() const;
  /// Ids up to here may have been dropped.
  TransactionId cut_up_to() const { return TransactionId(cut_); }
  size_t blocks() const { return blocks_.size(); }

 private:
  static constexpr size_t kWords = kBlockIds / 64;
  struct Block {
    std::array<uint64_t, kWords> bits{};
    uint64_t newest_ns = 0;
  };

  /// The block of this number (id / kBlockIds), which is made if there is none.
  Block& block_at(uint64_t number);

  std::map<uint64_t, Block> blocks_;
  // The block of the last call of block_at(): of nearly all ids that are added. Null: it may have been dropped.
  Block* last_block_ = nullptr;
  uint64_t last_number_ = 0;
  uint64_t cut_ = 0;
};

}  // namespace loam::commit
