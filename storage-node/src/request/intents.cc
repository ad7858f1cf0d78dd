// The pool of intent blocks, and the lists of the sessions: append, removal after a failed write, sweeps, and pages
// for recovery. session_table.cc sweeps the lists between batches.
#include "storage-node/src/request/intents.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "common/base/assert.h"

namespace loam::storage {
namespace {

/// The header of an intent, as a block stores it.
struct IntentHeader {
  uint64_t transaction = 0;
  uint64_t record = 0;
  uint64_t word = 0;

  static IntentHeader load(const std::byte* at) {
    IntentHeader header;
    std::memcpy(&header, at, sizeof(header));
    return header;
  }
  void store(std::byte* at) const { std::memcpy(at, this, sizeof(*this)); }
};
static_assert(sizeof(IntentHeader) == IntentBlock::kIntentHeaderBytes);

/// The bytes that a page counts for an intent besides header and key: an upper bound on the overhead in the message.
constexpr size_t kMessageBytes = 16;

/// Returns whether the publication says that the transaction is complete.
bool covered(const Publication& publication, uint64_t transaction) {
  return publication.later.visible(Version(transaction));
}

size_t bytes_of(const IntentWord& word) { return IntentBlock::kIntentHeaderBytes + word.key_bytes; }

/// Calls f(header, word, offset in `data`) for each intent of the block, in order.
template <class F>
void for_each(const IntentBlock& block, F f) {
  for (uint32_t at = 0; at < block.end;) {
    const IntentHeader header = IntentHeader::load(block.data + at);
    const IntentWord word = IntentWord::decode(header.word);
    f(header, word, at);
    at += static_cast<uint32_t>(bytes_of(word));
  }
}

/// Counts one more intent of this transaction in the block's size, lowest and highest.
void count(IntentBlock& block, uint64_t transaction) {
  block.lowest = block.size == 0 ? transaction : std::min(block.lowest, transaction);
  block.highest = std::max(block.highest, transaction);
  ++block.size;
}

/// Moves the intent at offset `from` to the block's end, which is at or before `from`.
void move_to_end(IntentBlock& block, const IntentHeader& header, uint32_t from) {
  const size_t bytes = bytes_of(IntentWord::decode(header.word));
  std::memmove(block.data + block.end, block.data + from, bytes);
  header.store(block.data + block.end);  // not atomic: copies the bytes of an intent
  block.end += static_cast<uint32_t>(bytes);
  count(block, header.transaction);
}

/// Removes all intents. The block keeps its number and its next index, so that later intents get new numbers.
void make_empty(IntentBlock& block) {
  block.end = 0;
  block.size = block.lowest = block.highest = 0;
}

}  // namespace

IntentPool::~IntentPool() {
  LOAM_CHECK(used_bytes() == 0, "a list of intents outlives the pool");
  while (free_ != nullptr) delete std::exchange(free_, free_->next);
}

IntentBlock* IntentPool::allocate() {
  const std::scoped_lock lock(mutex_);
  if (used_bytes() + IntentBlock::kBytes > limit_bytes_) return nullptr;
  IntentBlock* block = free_;
  if (block != nullptr) {
    free_ = block->next;
    --free_blocks_;
  } else if (block = new (std::nothrow) IntentBlock; block == nullptr) {
    return nullptr;
  }
  used_bytes_.store(used_bytes() + IntentBlock::kBytes, std::memory_order_relaxed);  // relaxed: a statistic
  return block;
}

void IntentPool::release(IntentBlock* block) {
  const std::scoped_lock lock(mutex_);
  used_bytes_.store(used_bytes() - IntentBlock::kBytes, std::memory_order_relaxed);  // relaxed: a statistic
  if (free_blocks_ == kMaxFreeIntentBlocks) {
    delete block;
    return;
  }
  block->next = free_;
  free_ = block;
  ++free_blocks_;
}

IntentList::~IntentList() {
  while (front_ != nullptr) remove_block(front_);
}

bool IntentList::append(TransactionId transaction, TableId table, Key record) {
  const SavePoint before = save_point();
  if (!append(transaction, record, {.table = table.value, .kind = wire::Intent::Kind::kRecord}, {})) return false;
  // remove_failed() truncates to the place before the first append of the batch.
  if (batch_size_++ == 0) batch_start_ = before;
  return true;
}

bool IntentList::append(TableId index, std::span<const wire::IndexIntent> changes) {
  const SavePoint before = save_point();
  for (const wire::IndexIntent& change : changes) {
    const IntentWord word{.table = index.value,
                          .key_bytes = static_cast<uint32_t>(change.key.size()),
                          .shared = change.shared,
                          .kind = change.remove ? wire::Intent::Kind::kIndexRemove : wire::Intent::Kind::kIndexInsert};
    if (append(change.transaction, change.record, word, change.key)) continue;
    // Without room for all changes keep none: the write is refused as a whole.
    truncate(before, [](size_t) { return false; });
    return false;
  }
  if (batch_size_ == 0) batch_start_ = before;
  batch_size_ += changes.size();
  return true;
}

bool IntentList::append(TransactionId transaction, Key record, IntentWord word, std::string_view key) {
  LOAM_CHECK(word.table < kMaxIntentTable && key.size() <= kMaxIntentKeyBytes, "an intent that does not fit a block");
  const size_t bytes = bytes_of(word);
  // After a refused append, end_batch() sweeps the list if the publication is newer than that of the last sweep.
  if ((back_ == nullptr || !back_->fits(bytes)) && add_block() == nullptr) {
    refused_ = true;
    return false;
  }
  IntentBlock& block = *back_;
  word.index = block.index++;
  std::byte* const at = block.data + block.end;
  IntentHeader{transaction.value, record.value, word.encode()}.store(at);  // not atomic: copies the bytes of an intent
  if (!key.empty()) std::memcpy(at + sizeof(IntentHeader), key.data(), key.size());
  block.end += static_cast<uint32_t>(bytes);
  count(block, transaction.value);
  grow(1);
  return true;
}

IntentList::SavePoint IntentList::save_point() const {
  if (back_ == nullptr) return {};
  return {back_, back_->end, back_->index, back_->size, back_->lowest, back_->highest};
}

template <class Keep>
void IntentList::truncate(const SavePoint& save_point, Keep keep) {
  // Works in place: a kept intent moves towards the front of its own block and gets the next index there. The write
  // position never passes the read position, because a removed intent only frees bytes.
  size_t i = 0;
  for (IntentBlock* block = save_point.block != nullptr ? save_point.block : front_; block != nullptr;) {
    IntentBlock* const next = block->next;
    // Restore the block as it was at the save point: later blocks were empty. Then append the kept intents again.
    const SavePoint begin = block == save_point.block ? save_point : SavePoint{};
    const uint32_t end = block->end;
    const uint64_t size = block->size;
    block->end = begin.end;
    block->index = begin.index;
    block->size = begin.size;
    block->lowest = begin.lowest;
    block->highest = begin.highest;
    for (uint32_t at = begin.end; at < end; ++i) {
      IntentHeader header = IntentHeader::load(block->data + at);
      IntentWord word = IntentWord::decode(header.word);
      const auto bytes = static_cast<uint32_t>(bytes_of(word));
      if (keep(i)) {
        word.index = block->index++;
        header.word = word.encode();
        move_to_end(*block, header, at);
      }
      at += bytes;
    }
    shrink(size - block->size);
    if (block->size == 0 && front_ != back_) remove_block(block);  // keep one block for the next batch
    block = next;
  }
}

void IntentList::remove_failed(const std::vector<bool>& failed) {
  LOAM_CHECK(failed.size() == batch_size_, "one outcome for each intent that was appended");
  truncate(batch_start_, [&failed](size_t i) { return !failed[i]; });
  batch_size_ = 0;
}

void IntentList::end_batch(const Publication& publication) {
  batch_size_ = 0;
  ++batches_;
  drop_front(publication);
  swept_size_ = std::min(swept_size_, size());
  // After a refusal a sweep makes room as soon as it can. It can only after a new publication.
  const bool newer = publication.cm_epoch != swept_epoch_ || publication.number != swept_number_;
  const bool doubled = size() >= 2 * swept_size_ + kMinIntentsToSweep;
  if (doubled || (refused_ && newer)) {
    Env::probe("node.intents.swept_by_batch");
    size_t all = SIZE_MAX;
    sweep(publication, 0, all);
    swept_size_ = size();
    swept_epoch_ = publication.cm_epoch;
    swept_number_ = publication.number;
  }
  refused_ = false;
}

void IntentList::drop_front(const Publication& publication) {
  const uint64_t base = publication.later.base().value;
  // Every transaction up to the base is complete, so one comparison decides for a whole block.
  while (front_ != nullptr && front_->highest <= base) {
    shrink(front_->size);
    if (front_ == back_) {  // keep one block for the next batch
      // The indexes of the block begin at 0 again. So the block needs a new number, because numbers of intents rise.
      if (front_->size != 0) front_->reset(++last_number_);
      return;
    }
    remove_block(front_);
  }
}

uint64_t IntentList::sweep(const Publication& publication, uint64_t from, size_t& blocks_left) {
  for (IntentBlock* block = front_; block != nullptr;) {
    IntentBlock* const next = block->next;
    if (block->number >= from) {
      // Blocks before `from` were swept by an earlier call of the same round.
      if (blocks_left == 0) return block->number;
      --blocks_left;
      drop_covered(*block, publication);
      if (block->size == 0) remove_block(block);
    }
    block = next;
  }
  return 0;
}

void IntentList::drop_covered(IntentBlock& block, const Publication& publication) {
  const uint64_t size = block.size;
  // The first two tests judge the block as a whole, without a look at its intents.
  if (block.highest <= publication.later.base().value) {
    make_empty(block);
  } else if (block.lowest == block.highest) {
    if (covered(publication, block.lowest)) make_empty(block);
  } else {
    // Append the uncovered intents again from the begin of the block; each moves towards the begin or stays.
    const uint32_t end = block.end;
    make_empty(block);
    for (uint32_t at = 0; at < end;) {
      const IntentHeader header = IntentHeader::load(block.data + at);
      const size_t bytes = bytes_of(IntentWord::decode(header.word));
      if (!covered(publication, header.transaction)) move_to_end(block, header, at);
      at += static_cast<uint32_t>(bytes);
    }
  }
  shrink(size - block.size);
}

bool IntentList::read(const Publication& publication, uint64_t& after, IntentPage& page) const {
  for (const IntentBlock* block = front_; block != nullptr; block = block->next) {
    // Skip blocks that lie wholly at or before `after`.
    if (block->index == 0 || number(block->number, block->index - 1) <= after) continue;
    if (page.blocks_left == 0) return false;
    --page.blocks_left;
    bool full = false;
    for_each(*block, [&](const IntentHeader& header, const IntentWord& word, uint32_t at) {
      const uint64_t here = number(block->number, word.index);
      // Behind an intent that did not fit, a smaller one must not enter the page: `after` would pass over the first
      // one.
      if (full || here <= after) return;
      if (!covered(publication, header.transaction)) {
        const size_t bytes = bytes_of(word) + kMessageBytes;
        if (bytes > page.bytes_left) {
          full = true;
          return;
        }
        page.bytes_left -= bytes;
        wire::Intent& intent = page.intents.emplace_back();
        intent.kind = word.kind;
        intent.transaction = TransactionId(header.transaction);
        intent.table = TableId(word.table);
        intent.record = Key(header.record);
        intent.shared = word.shared;
        if (word.kind != wire::Intent::Kind::kRecord) {
          const auto* const key = reinterpret_cast<const char*>(block->data + at + sizeof(IntentHeader));
          intent.key = page.keys.emplace_back(key, word.key_bytes);
        }
      }
      after = here;
    });
    if (full) return false;
    // Step over intents at the end of the block that were dropped, so that the next page begins behind the block.
    after = number(block->number, block->index - 1);
  }
  return true;
}

IntentBlock* IntentList::add_block() {
  IntentBlock* const block = pool_.allocate();
  if (block == nullptr) return nullptr;
  block->reset(++last_number_);
  block->next = nullptr;
  block->previous = back_;
  (back_ != nullptr ? back_->next : front_) = block;
  back_ = block;
  return block;
}

void IntentList::remove_block(IntentBlock* block) {
  (block->previous != nullptr ? block->previous->next : front_) = block->next;
  (block->next != nullptr ? block->next->previous : back_) = block->previous;
  pool_.release(block);
}

void IntentList::check_invariants() const {
  uint64_t intents = 0;
  uint64_t last = 0;
  const IntentBlock* previous = nullptr;
  for (const IntentBlock* block = front_; block != nullptr; previous = std::exchange(block, block->next)) {
    LOAM_CHECK(block->previous == previous, "blocks are linked both ways");
    LOAM_CHECK(previous == nullptr || previous->number < block->number, "numbers of blocks rise");
    LOAM_CHECK(block->number <= last_number_ && block->end <= sizeof(block->data), "number and end are in bounds");
    IntentBlock sum;
    for_each(*block, [&](const IntentHeader& header, const IntentWord& word, uint32_t) {
      LOAM_CHECK(word.index < block->index && number(block->number, word.index) > last, "numbers of intents rise");
      last = number(block->number, word.index);
      count(sum, header.transaction);
    });
    LOAM_CHECK(sum.size == block->size && sum.lowest == block->lowest && sum.highest == block->highest,
               "size, lowest and highest of a block match its intents");
    intents += sum.size;
  }
  LOAM_CHECK(previous == back_, "the list ends at its back");
  LOAM_CHECK(intents == size(), "size() is the number of intents");
}

}  // namespace loam::storage
