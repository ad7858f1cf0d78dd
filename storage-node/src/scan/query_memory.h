// One limit for the memory of all queries of a storage node.
//
//   QueryMemory           the node's limit, and the bytes drawn of it      --query-memory-share
//     ├ QueryAccount      one query at one scan thread: its objects, group table, top-k rows, chunk under construction
//     ├ QueryAccount      …
//     └ ChunkMemory       one chunk on its way from the query to the network
//
// Accounts draw blocks, so that the shared count changes rarely. The count is of bytes drawn. It leaves out memory that
// does not grow with the number of queries: of each scan thread the block of rows at hand, the rows that one block adds
// to a chunk before they are counted, and the interval indexes that the queries of a table share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "common/base/env.h"
#include "common/base/memory_account.h"
#include "common/base/status.h"

namespace loam::storage {

/// Role: the limit of the memory that all queries of a node hold together. Owner: the node; outlives accounts and
/// chunks. Threads: any.
///
/// Invariants: (1) used_bytes() is at most limit_bytes() at every moment; (2) it is 0 when no query runs and no chunk
/// waits for the network.
class QueryMemory {
 public:
  explicit QueryMemory(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  QueryMemory(const QueryMemory&) = delete;
  QueryMemory& operator=(const QueryMemory&) = delete;

  /// False: it would exceed the limit; nothing is drawn.
  bool draw(uint64_t bytes);
  void give_back(uint64_t bytes);

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }  // relaxed: a statistic
  /// Draws that were refused.
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }  // relaxed: a statistic
  /// The status of a query that cannot draw.
  Status exhausted() const;

 private:
  const uint64_t limit_bytes_;
  Env::Atomic<uint64_t> used_bytes_{0};
  Env::Atomic<uint64_t> refused_{0};
};

/// What one query holds at one scan thread. Owner: the query. Threads: the scan thread. The destructor gives back
/// everything.
class QueryAccount final : public MemoryAccount {
 public:
  /// It draws at least so much at once.
  static constexpr size_t kBlockBytes = size_t{16} << 10;

  /// `memory` null: no limit (tests).
  explicit QueryAccount(QueryMemory* memory) : memory_(memory) {}
  ~QueryAccount() override;

  Status take(size_t bytes) override;
  void give_back(size_t bytes) override;
  /// Gives back the bytes that were drawn ahead.
  void trim();
  /// Gives back everything. The structures that took it are gone.
  void release();
  /// Bytes taken and not given back.
  size_t held_bytes() const { return held_; }

 private:
  QueryMemory* const memory_;
  size_t held_ = 0;
  size_t drawn_ = 0;  // at least held_
};

/// The memory of one chunk from the moment when its query gives it away until the network has taken it. Moves with the
/// chunk; the destructor gives the memory back. Threads: one at a time.
class ChunkMemory {
 public:
  /// How many chunks of one query are on their way.
  using Counter = Env::Atomic<size_t>;

  /// Nothing is counted.
  ChunkMemory() = default;
  /// `memory` has drawn the bytes, or is null.
  ChunkMemory(QueryMemory* memory, size_t bytes, std::shared_ptr<Counter> on_their_way);
  ChunkMemory(ChunkMemory&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)),
        bytes_(other.bytes_),
        on_their_way_(std::move(other.on_their_way_)) {}
  ChunkMemory& operator=(ChunkMemory&& other) noexcept;
  ~ChunkMemory() { give_back(); }

 private:
  void give_back();

  QueryMemory* memory_ = nullptr;
  size_t bytes_ = 0;
  std::shared_ptr<Counter> on_their_way_;
};

}  // namespace loam::storage
