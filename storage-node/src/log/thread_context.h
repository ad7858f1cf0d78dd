// What one thread of a storage node brings to every operation on its tables.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/assert.h"
#include "common/base/bytes.h"
#include "common/memory/epoch.h"

namespace loam::storage {

/// Role: one thread's identity towards tables: its epochs, and which of a table's head pages are its own. Owner: the
/// thread, which alone uses it. Life: ends before its EpochThread.
class ThreadContext {
 public:
  /// `writer` is unique among the node's threads and below TableOptions::writers.
  ThreadContext(EpochThread& epochs, size_t writer) : epochs_(epochs), writer_(writer) {}
  ThreadContext(const ThreadContext&) = delete;
  ThreadContext& operator=(const ThreadContext&) = delete;

  EpochThread& epochs() { return epochs_; }
  size_t writer() const { return writer_; }

  /// Sequence of an entry that follows one with sequence `after` (0: none): higher than it and than all that this
  /// thread gave before. So the entries of one key rise in the order of their writes, without a shared counter (R19).
  uint64_t next_sequence(uint64_t after) { return sequence_ = std::max(sequence_, after) + 1; }

  /// Memory for a row that does not lie in the log in one piece; stays until the epoch guard that is under way ends.
  /// Aligned as rows are. Small rows take memory that is kept from guard to guard, large ones allocate.
  std::byte* row_memory(size_t bytes) {
    LOAM_DCHECK(epochs_.inside(), "rows are read inside an epoch guard");
    constexpr size_t kAlignment = 8;
    constexpr size_t kChunkBytes = size_t{64} << 10;
    constexpr size_t kKeptChunks = 16;
    constexpr size_t kLargeRowBytes = kChunkBytes / 4;
    if (guard_ != epochs_.guards()) {
      guard_ = epochs_.guards();
      chunk_ = used_ = 0;
      large_rows_.clear();
      if (chunks_.size() > kKeptChunks) chunks_.resize(kKeptChunks);
    }
    bytes = round_up(bytes, kAlignment);
    if (bytes > kLargeRowBytes) {
      return large_rows_.emplace_back(std::make_unique_for_overwrite<std::byte[]>(bytes)).get();
    }
    if (bytes > kChunkBytes - used_) ++chunk_, used_ = 0;
    if (chunk_ == chunks_.size()) chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(kChunkBytes));
    return chunks_[chunk_].get() + std::exchange(used_, used_ + bytes);
  }

 private:
  EpochThread& epochs_;
  const size_t writer_;
  uint64_t sequence_ = 0;
  // Rows of the guard that is under way: chunks before chunk_ are full, of that one so much is used.
  uint64_t guard_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  size_t chunk_ = 0;
  size_t used_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> large_rows_;
};

}  // namespace loam::storage
