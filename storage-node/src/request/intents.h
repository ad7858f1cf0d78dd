// Intents: the writes of open transactions at this node, so that recovery can undo them after their clients have died
// [R5, R8, docs/decisions/0021-the-commit-manager-decides.md].
//
// Each session has a list of blocks; the node has a pool of blocks:
//
//   IntentPool   limit, bytes in use, free blocks
//   IntentList   front ▶ block 7 ⇄ block 9 ⇄ block 10 ◀ back: the only one that is appended to
//
//   block, 4 KiB
//        ┌───────┬──────────┬─────┬───────┬──────┬────────┬─────────┬─────────┬───┬─────────┬────────┐
//        │ links │ number   │ end │ index │ size │ lowest │ highest │ intent  │ … │ intent  │ unused │
//        └───────┴──────────┴─────┴───────┴──────┴────────┴─────────┴─────────┴───┴─────────┴────────┘
//   intent, 24 bytes and the key of the index's tree: transaction, record, word (IntentWord below), key
//
// Life of an intent. A batch appends it before it executes the write (append()), inside the session's batch lock, takes
// it back in the same batch if the write fails (take_back()), and so lets it stand otherwise (settle()). It goes when a
// publication says that its transaction is complete: then it is *covered*. Its number is (number of its block, index in
// the block when it was recorded): numbers rise along a list, and stay what they are while other intents go.
//
// Cost. An append writes 24 bytes behind the ones before; every 160th or so takes a block from the pool, under the
// pool's lock. The end of a batch looks at the front: blocks whose highest transaction is below everything open go
// whole, without a look at their intents. What lies behind an open transaction goes by a sweep of the whole list, when
// the list has doubled since the last one: a constant number of steps for each append. A block all of whose intents
// are of one transaction is judged at once, so a sweep past one huge transaction costs a step for each block.
//
// Bound. A sweep compacts the intents that stay within a block, in place, and gives empty blocks back. Blocks are never
// merged: clients write when they commit, so the intents of a transaction lie together, and one that stays open among a
// million others keeps one block. The pool bounds the blocks of a node. When it has none left, a write is refused
// before it is executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/env.h"
#include "common/base/ids.h"
#include "common/base/thread.h"
#include "common/snapshot/publication.h"
#include "common/wire/storage.h"

namespace loam::storage {

/// Longest key of an index's tree: bdtree::kMaxKeyBytes. The executor refuses longer ones, so an intent fits a block.
inline constexpr size_t kMaxIntentKeyBytes = 1'024;
/// Tables whose intents can be recorded have ids below this. They are numbered by creation: 10^12 of them.
inline constexpr uint64_t kMaxIntentTable = uint64_t{1} << 40;
/// A list is swept only after it has grown by at least this many intents: seven blocks.
inline constexpr size_t kMinIntentsToSweep = 1'024;
/// Free blocks that a pool keeps for the next who needs one; it gives more back to the system.
inline constexpr size_t kMaxFreeIntentBlocks = 1'024;

/// The last 8 bytes of an intent's fixed part:
///
///     bits 63..24 table │ 23..14 index in the block when it was recorded │ 13..3 bytes of the key │ 2 shared │ 1..0
///     kind
struct IntentWord {
  uint64_t table = 0;
  uint32_t index = 0;
  uint32_t key_bytes = 0;
  bool shared = false;
  wire::Intent::Kind kind{};

  static constexpr uint32_t kMaxIndex = 1'023;

  uint64_t encode() const {
    return table << 24 | uint64_t{index} << 14 | uint64_t{key_bytes} << 3 | uint64_t{shared} << 2 |
           static_cast<uint64_t>(kind);
  }
  static IntentWord decode(uint64_t word) {
    return {word >> 24, static_cast<uint32_t>(word >> 14 & kMaxIndex), static_cast<uint32_t>(word >> 3 & 2'047),
            (word >> 2 & 1) != 0, static_cast<wire::Intent::Kind>(word & 3)};
  }
  bool operator==(const IntentWord&) const = default;
};
static_assert(kMaxIntentKeyBytes <= 2'047, "11 bits of an IntentWord");

/// The part of a row of intents that lies together. Owner: the list, or the pool's free blocks.
struct IntentBlock {
  static constexpr size_t kBytes = 4'096;
  /// Of an intent without its key: transaction, record, word.
  static constexpr size_t kFixedBytes = 3 * sizeof(uint64_t);

  IntentBlock* next = nullptr;
  IntentBlock* previous = nullptr;
  uint64_t number = 0;  ///< rises along a list, from 1
  uint32_t end = 0;     ///< of the intents in `data`
  uint32_t index = 0;   ///< of the next intent
  uint64_t size = 0;    ///< intents
  uint64_t lowest = 0;  ///< transaction, of the intents that are here; `highest` too
  uint64_t highest = 0;
  std::byte data[kBytes - 56];

  bool fits(size_t bytes) const { return end + bytes <= sizeof(data) && index <= IntentWord::kMaxIndex; }
  /// Empty, with a new number.
  void reset(uint64_t new_number) {
    number = new_number;
    end = index = 0;
    size = lowest = highest = 0;
  }
};
static_assert(sizeof(IntentBlock) == IntentBlock::kBytes);
static_assert(IntentBlock::kFixedBytes + kMaxIntentKeyBytes <= sizeof(IntentBlock::data), "every intent fits a block");

/// Role: memory for the intents of all sessions of a node. Owner: the node, longer than the lists. Threads: any; a
/// short lock, for a block at a time.
class IntentPool {
 public:
  explicit IntentPool(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  ~IntentPool();
  IntentPool(const IntentPool&) = delete;
  IntentPool& operator=(const IntentPool&) = delete;

  uint64_t limit_bytes() const { return limit_bytes_; }
  /// Blocks that lists have.
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }  // relaxed: a statistic

  /// Null: there is no room.
  IntentBlock* take();
  void give_back(IntentBlock* block);

 private:
  const uint64_t limit_bytes_;
  Env::Atomic<uint64_t> used_bytes_{0};  // written under mutex_
  Mutex mutex_;
  IntentBlock* free_ = nullptr;  // guarded by mutex_
  size_t free_blocks_ = 0;       // guarded by mutex_
};

/// Receives one page of intents (wire::IntentsReply). Its creator sets how much it may take.
struct IntentPage {
  /// `max_bytes`: of intents as messages have them; `max_blocks`: to look at.
  IntentPage(size_t max_bytes, size_t max_blocks) : bytes_left(max_bytes), blocks_left(max_blocks) {}

  std::vector<wire::Intent> intents;  ///< their keys lie in `keys`
  std::deque<std::string> keys;
  size_t bytes_left;
  size_t blocks_left;
};

/// Role: the intents of one session. Owner: its NodeSession, which outlives the session's entry at the node until the
/// list is empty. Threads: the one that holds the session's batch lock; any for size().
///
/// Invariants (check_invariants()): (1) numbers rise along the list; (2) lowest and highest of a block are those of its
/// intents; (3) between batches every intent stands for a write that was executed, or is covered.
class IntentList {
 public:
  explicit IntentList(IntentPool& pool) : pool_(pool) {}
  ~IntentList();
  IntentList(const IntentList&) = delete;
  IntentList& operator=(const IntentList&) = delete;

  /// Number of an intent in a list.
  static constexpr uint64_t number(uint64_t block, uint32_t index) { return block << 16 | index; }

  // ---- a batch ------------------------------------------------------------------------------------------------------

  /// A record that is about to be written. False: there is no room, and nothing is recorded.
  bool append(TransactionId transaction, TableId table, Key record);
  /// The changes that a write of an index's node carries: all of them or, if there is no room, none.
  bool append(TableId index, std::span<const wire::IndexIntent> changes);
  /// settle() has something to do: intents were appended, or refused.
  bool touched() const { return unsettled_ != 0 || refused_; }
  /// Removes those among the intents appended since the last settle() whose writes have failed: failed[i] is that of
  /// the i-th one. No reader has seen them, because the batch lock is held. So their numbers are used again.
  void take_back(const std::vector<bool>& failed);
  /// The intents appended so far stand. Drops covered ones at the front, and everywhere if the list has doubled, or if
  /// there was no room.
  void settle(const Publication& publication);

  // ---- between batches ----------------------------------------------------------------------------------------------

  /// Drops covered intents, in `blocks_left` blocks at most, from the block with number `from` on (0: the first), and
  /// lowers `blocks_left` by those that it has looked at. Returns the number of the block to go on with; 0: that was
  /// the end.
  uint64_t sweep(const Publication& publication, uint64_t from, size_t& blocks_left);
  /// How often settle() was called.
  uint64_t settled() const { return settles_; }
  /// Appends to `page` the intents behind number `after` that the publication does not cover, in order, and moves
  /// `after` to the last one that was looked at. False: the page is full, and more may lie behind.
  bool read(const Publication& publication, uint64_t& after, IntentPage& page) const;

  /// Intents, covered ones included.
  uint64_t size() const { return size_.load(std::memory_order_relaxed); }  // relaxed: a statistic to other threads
  bool holds_blocks() const { return front_ != nullptr; }
  void check_invariants() const;

 private:
  /// The end of the list at some moment.
  struct Mark {
    IntentBlock* block = nullptr;  ///< the last one; null: the list had none
    uint32_t end = 0;
    uint32_t index = 0;
    uint64_t size = 0;
    uint64_t lowest = 0;
    uint64_t highest = 0;
  };

  bool append(TransactionId transaction, Key record, IntentWord word, std::string_view key);
  Mark mark() const;
  /// Removes the intents that were appended since the mark, except the i-th one if keep(i); i counts from the mark.
  template <class Keep>
  void cut(const Mark& mark, Keep keep);
  void drop_covered(IntentBlock& block, const Publication& publication);
  void drop_front(const Publication& publication);
  IntentBlock* add_block();
  void remove_block(IntentBlock* block);
  // Relaxed, both: see size().
  void grow(uint64_t by) { size_.store(size() + by, std::memory_order_relaxed); }
  void shrink(uint64_t by) { size_.store(size() - by, std::memory_order_relaxed); }

  IntentPool& pool_;
  // Guarded by the session's batch lock.
  IntentBlock* front_ = nullptr;
  IntentBlock* back_ = nullptr;
  uint64_t last_number_ = 0;  // of a block
  uint64_t settles_ = 0;
  size_t unsettled_ = 0;      // intents appended since `settled_`
  Mark settled_;              // set by the first append after settle()
  bool refused_ = false;      // there was no room since settle()
  uint64_t swept_size_ = 0;   // what the last sweep of the whole list has left, or less
  uint64_t swept_epoch_ = 0;  // the publication that the whole list was swept by last
  uint64_t swept_number_ = 0;
  // Written under the batch lock, read by any thread.
  Env::Atomic<uint64_t> size_{0};
};

}  // namespace loam::storage
