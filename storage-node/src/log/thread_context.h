// The state that a thread of a storage node passes to every operation on tables.
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

/// The identity of one thread towards tables: its epoch guard, its writer number, and memory for assembled rows.
///
/// The writer number selects the thread's head pages and counters in each table. Owner: the thread, which alone uses
/// the object. Life: ends before its EpochThread.
class ThreadContext {
 public:
  /// `writer` is unique among the threads of the node and below TableOptions::writers.
  ThreadContext(EpochThread& epochs, size_t writer) : epochs_(epochs), writer_(writer) {}
  ThreadContext(const ThreadContext&) = delete;
  ThreadContext& operator=(const ThreadContext&) = delete;

  EpochThread& epochs() { return epochs_; }
  size_t writer() const { return writer_; }

  /// The sequence number for an entry that follows an entry with number `after` (0: there is none).
  ///
  /// The number is higher than `after` and than all earlier numbers of this thread. So the numbers of one key rise in
  /// the order of its writes, without a shared counter (R19, order by sequence).
  uint64_t next_sequence(uint64_t after) { return sequence_ = std::max(sequence_, after) + 1; }

  /// Memory for a row that must be assembled from columns. Valid until the present epoch guard ends; aligned like rows.
  ///
  /// Small rows use chunks that the object keeps from guard to guard. A large row allocates.
  std::byte* row_memory(size_t bytes) {
    LOAM_DCHECK(epochs_.inside(), "rows are read inside an epoch guard");
    constexpr size_t kAlignment = 8;
    constexpr size_t kChunkBytes = size_t{64} << 10;
    constexpr size_t kKeptChunks = 16;
    constexpr size_t kLargeRowBytes = kChunkBytes / 4;
    // The first row of a guard: all rows of the previous guard are invalid, so their memory is free again.
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
  // The rows of guard number guard_. Chunks before chunk_ are full; the first used_ bytes of chunk_ are in use.
  uint64_t guard_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  size_t chunk_ = 0;
  size_t used_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> large_rows_;
};

}  // namespace loam::storage
