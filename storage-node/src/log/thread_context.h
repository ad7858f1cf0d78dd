// What one thread of a storage node brings to every operation on its tables.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

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

 private:
  EpochThread& epochs_;
  const size_t writer_;
  uint64_t sequence_ = 0;
};

}  // namespace loam::storage
