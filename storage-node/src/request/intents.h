// Intents: the notes of a storage node about the writes of open transactions. Recovery undoes these writes after the
// client has died [R5, intents before answers; R8, recovery; docs/decisions/0021-the-commit-manager-decides.md].
//
// Each session has a list of blocks. The storage node has one pool of blocks:
//
//   IntentPool   limit, bytes in use, free blocks
//   IntentList   front ▶ block 7 ⇄ block 9 ⇄ block 10 ◀ back: appends go to this block alone
//
//   block, 4 KiB
//        ┌───────┬──────────┬─────┬───────┬──────┬────────┬─────────┬─────────┬───┬─────────┬────────┐
//        │ links │ number   │ end │ index │ size │ lowest │ highest │ intent  │ … │ intent  │ unused │
//        └───────┴──────────┴─────┴───────┴──────┴────────┴─────────┴─────────┴───┴─────────┴────────┘
//   intent, 24 bytes and a key: transaction, record, word (IntentWord below), key in the tree of the index
//
// Life of an intent. A batch appends the intent before it executes the write (append()), inside the session's batch
// lock. If the write fails, the same batch removes the intent (remove_failed()); otherwise it keeps it (end_batch()).
// An intent is *covered* when a publication says that its transaction is complete; the storage node then drops it. The
// number of an intent is (number of its block, index in the block when it was appended). Numbers rise along a list and
// do not change when other intents are dropped.
//
// Cost. An append writes 24 bytes behind the last intent. About every 160th append takes a block from the pool, under
// the pool's lock. The end of a batch looks at the front of the list: it drops a block as a whole, without a look at
// its intents, if the highest transaction of the block is below every open one. Covered intents behind an open
// transaction are dropped by a sweep of the whole list. The end of a batch sweeps when the list has doubled since the
// last sweep, which makes a constant number of steps for each append. If all intents of a block belong to one
// transaction, the sweep judges the block in one step, so a huge transaction costs one step for each block.
//
// Bound. A sweep moves the remaining intents of a block together, in place, and releases empty blocks. It never merges
// blocks: clients write when they commit, so the intents of a transaction lie together, and one transaction that stays
// open among a million others keeps one block. The pool bounds the number of blocks. When the pool has no block left,
// the storage node refuses a write before it executes it.
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

/// Upper bound on the length of a key in the tree of an index: bdtree::kMaxKeyBytes. The executor refuses longer keys,
/// so every intent fits a block.
inline constexpr size_t kMaxIntentKeyBytes = 1'024;
/// Table ids must be below this bound to fit an intent. The commit manager numbers tables by creation, so the bound
/// allows 10^12 creations.
inline constexpr uint64_t kMaxIntentTable = uint64_t{1} << 40;
/// A batch sweeps a list only after the list has grown by at least this many intents: seven blocks.
inline constexpr size_t kMinIntentsToSweep = 1'024;
/// Upper bound on the free blocks that a pool keeps; it returns further blocks to the system.
inline constexpr size_t kMaxFreeIntentBlocks = 1'024;

/// The last 8 bytes of an intent's header:
///
///     bits 63..24 table │ 23..14 index in the block when appended │ 13..3 bytes of the key │ 2 shared │ 1..0 kind
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

/// A block of the list of a session's intents. Owner: the list, or the pool while the block is free.
struct IntentBlock {
  static constexpr size_t kBytes = 4'096;
  /// Size of the header of an intent: transaction, record, word. The key follows it.
  static constexpr size_t kIntentHeaderBytes = 3 * sizeof(uint64_t);

  IntentBlock* next = nullptr;
  IntentBlock* previous = nullptr;
  uint64_t number = 0;   ///< rises along a list, from 1
  uint32_t end = 0;      ///< offset in `data` behind the last intent
  uint32_t index = 0;    ///< index of the next intent
  uint64_t size = 0;     ///< number of intents
  uint64_t lowest = 0;   ///< lowest transaction id of the intents; 0 without intents
  uint64_t highest = 0;  ///< highest transaction id of the intents; 0 without intents
  std::byte data[kBytes - 56];

  /// Returns whether one more intent of this size fits.
  bool fits(size_t bytes) const { return end + bytes <= sizeof(data) && index <= IntentWord::kMaxIndex; }
  /// Makes the block empty and gives it a new number.
  void reset(uint64_t new_number) {
    number = new_number;
    end = index = 0;
    size = lowest = highest = 0;
  }
};
static_assert(sizeof(IntentBlock) == IntentBlock::kBytes);
static_assert(IntentBlock::kIntentHeaderBytes + kMaxIntentKeyBytes <= sizeof(IntentBlock::data),
              "every intent fits a block");

/// Allocates the blocks for the intents of all sessions of a storage node, up to a limit.
///
/// Role: memory. Owner: the storage node; the pool outlives the lists. Threads: any. Each allocate() and each release()
/// takes a lock for a short time.
class IntentPool {
 public:
  explicit IntentPool(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  ~IntentPool();
  IntentPool(const IntentPool&) = delete;
  IntentPool& operator=(const IntentPool&) = delete;

  uint64_t limit_bytes() const { return limit_bytes_; }
  /// Returns the bytes of all blocks that lists own.
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }  // relaxed: a statistic

  /// Returns a block with undefined content; null at the limit, or if the system has no memory.
  IntentBlock* allocate();
  /// Takes a block back.
  void release(IntentBlock* block);

 private:
  const uint64_t limit_bytes_;
  Env::Atomic<uint64_t> used_bytes_{0};  // written under mutex_
  Mutex mutex_;
  IntentBlock* free_ = nullptr;  // guarded by mutex_
  size_t free_blocks_ = 0;       // guarded by mutex_
};

/// One page of intents on its way to a reply (wire::IntentsReply), with the room that is left in it.
struct IntentPage {
  /// `max_bytes` bounds the size of the intents in the message, `max_blocks` the number of blocks that are read.
  IntentPage(size_t max_bytes, size_t max_blocks) : bytes_left(max_bytes), blocks_left(max_blocks) {}

  std::vector<wire::Intent> intents;  ///< their keys point into `keys`
  std::deque<std::string> keys;       ///< a deque: its strings do not move
  size_t bytes_left;                  ///< bytes that further intents may take in the message
  size_t blocks_left;                 ///< blocks that may still be read
};

/// The list of the intents of one session.
///
/// Role: bookkeeping for recovery. Owner: SessionIntents, which outlives the session's entry in the SessionTable until
/// the list is empty. Threads: the thread that holds the session's batch lock; any thread for size().
///
/// Invariants (check_invariants()):
/// (1) The numbers of the intents rise along the list.
/// (2) `lowest` and `highest` of a block are the lowest and the highest transaction of its intents.
/// (3) Between batches every intent stands for a write that was executed, or is covered.
class IntentList {
 public:
  explicit IntentList(IntentPool& pool) : pool_(pool) {}
  ~IntentList();
  IntentList(const IntentList&) = delete;
  IntentList& operator=(const IntentList&) = delete;

  /// Returns the number of an intent in its list.
  static constexpr uint64_t number(uint64_t block, uint32_t index) { return block << 16 | index; }

  // ---- during a batch -----------------------------------------------------------------------------------------------

  /// Appends the intent of a write of a record. Without room it appends nothing and returns false.
  bool append(TransactionId transaction, TableId table, Key record);
  /// Appends an intent for each index change that a write of a tree node carries. Without room for all of them it
  /// appends none and returns false.
  bool append(TableId index, std::span<const wire::IndexIntent> changes);
  /// Returns whether intents were appended or refused since the last end_batch().
  bool in_batch() const { return batch_size_ != 0 || refused_; }
  /// Removes the intents whose writes have failed. failed[i] is true if the write of the i-th intent appended since the
  /// last end_batch() has failed. The list uses the numbers of removed intents again, which is safe because the caller
  /// holds the batch lock, so no reader has seen them.
  void remove_failed(const std::vector<bool>& failed);
  /// Keeps the intents appended so far. Drops covered intents at the front of the list; sweeps the whole list if it has
  /// doubled since the last sweep, or if an intent was refused and the publication is newer than that of the last
  /// sweep.
  void end_batch(const Publication& publication);

  // ---- between batches ----------------------------------------------------------------------------------------------

  /// Drops covered intents from the block with number `from` on (0: the first block). It reads at most `blocks_left`
  /// blocks and lowers `blocks_left` by their number. Returns the number of the block at which the next call continues;
  /// 0 at the end of the list.
  uint64_t sweep(const Publication& publication, uint64_t from, size_t& blocks_left);
  /// Returns the number of calls of end_batch().
  uint64_t batches() const { return batches_; }
  /// Appends to `page`, in order, the intents behind number `after` that the publication does not cover. Moves `after`
  /// to the last intent that it has read. Returns false if the page is full; more intents may follow then.
  bool read(const Publication& publication, uint64_t& after, IntentPage& page) const;

  /// Returns the number of intents, including covered ones.
  uint64_t size() const { return size_.load(std::memory_order_relaxed); }  // relaxed: a statistic to other threads
  bool holds_blocks() const { return front_ != nullptr; }
  void check_invariants() const;

 private:
  /// The end of the list at some moment: its last block and the members of that block.
  struct SavePoint {
    IntentBlock* block = nullptr;  ///< the last block; null: the list had none
    uint32_t end = 0;
    uint32_t index = 0;
    uint64_t size = 0;
    uint64_t lowest = 0;
    uint64_t highest = 0;
  };

  bool append(TransactionId transaction, Key record, IntentWord word, std::string_view key);
  SavePoint save_point() const;
  /// Removes the intents that were appended since the save point, except those with keep(i). `i` counts from the save
  /// point.
  template <class Keep>
  void truncate(const SavePoint& save_point, Keep keep);
  /// Drops the covered intents of one block.
  void drop_covered(IntentBlock& block, const Publication& publication);
  /// Drops whole blocks at the front up to the first one with an intent that may be open.
  void drop_front(const Publication& publication);
  /// Returns a new block at the back; null if the pool has none.
  IntentBlock* add_block();
  void remove_block(IntentBlock* block);
  // Relaxed, both: see size().
  void grow(uint64_t by) { size_.store(size() + by, std::memory_order_relaxed); }
  void shrink(uint64_t by) { size_.store(size() - by, std::memory_order_relaxed); }

  IntentPool& pool_;
  // Guarded by the session's batch lock.
  IntentBlock* front_ = nullptr;
  IntentBlock* back_ = nullptr;
  uint64_t last_number_ = 0;  // the highest number of a block so far
  uint64_t batches_ = 0;
  size_t batch_size_ = 0;      // intents appended since `batch_start_`
  SavePoint batch_start_;      // set by the first append after end_batch()
  bool refused_ = false;       // an append found no room since end_batch()
  uint64_t swept_size_ = 0;    // the lowest size() since the last sweep of the whole list by a batch
  uint64_t swept_epoch_ = 0;   // epoch of the publication by which a batch last swept the whole list
  uint64_t swept_number_ = 0;  // number of that publication
  // Written under the batch lock, read by any thread.
  Env::Atomic<uint64_t> size_{0};
};

}  // namespace loam::storage
