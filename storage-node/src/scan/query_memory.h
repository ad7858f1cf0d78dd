// One limit for the memory of all queries of a storage node.
//
//   QueryMemory           the limit, and the bytes that are acquired       --query-memory-share
//     ├ QueryAccount      one query at one scan thread: its objects, group table, top-k rows, chunk under construction
//     ├ QueryAccount      …
//     └ ChunkMemory       one chunk on its way from the query to the network
//
// Accounts acquire blocks, so that the shared counter changes rarely. The counter does not include memory that does not
// grow with the number of queries. At each scan thread that is: the present block of rows, the rows that one block adds
// to a chunk before they are charged, and the interval indexes that the queries of a table share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "common/base/env.h"
#include "common/base/memory_account.h"
#include "common/base/status.h"

namespace loam::storage {

/// Limits the memory of all queries of a storage node together.
///
/// Role: a shared counter with a limit. Owner: the storage node; it outlives accounts and chunks. Threads: any.
///
/// Invariants:
/// (1) used_bytes() is at most limit_bytes() at every moment.
/// (2) used_bytes() is 0 when no query runs and no chunk waits for the network.
class QueryMemory {
 public:
  explicit QueryMemory(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}
  QueryMemory(const QueryMemory&) = delete;
  QueryMemory& operator=(const QueryMemory&) = delete;

  /// Acquires the bytes. If that would exceed the limit, it acquires nothing and returns false.
  bool try_acquire(uint64_t bytes);
  void release(uint64_t bytes);

  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }  // relaxed: a statistic
  /// Returns the number of refused calls of try_acquire().
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }  // relaxed: a statistic
  /// Returns the status (kOverloaded) of a query that cannot acquire memory.
  Status exhausted() const;

 private:
  const uint64_t limit_bytes_;
  Env::Atomic<uint64_t> used_bytes_{0};
  Env::Atomic<uint64_t> refused_{0};
};

/// The memory of one query at one scan thread. Owner: the query. Threads: the scan thread. The destructor releases
/// everything.
class QueryAccount final : public MemoryAccount {
 public:
  /// Lower bound on the bytes that the account acquires from QueryMemory at once.
  static constexpr size_t kBlockBytes = size_t{16} << 10;

  /// If `memory` is null, there is no limit (in tests).
  explicit QueryAccount(QueryMemory* memory) : memory_(memory) {}
  ~QueryAccount() override;

  Status acquire(size_t bytes) override;
  void release(size_t bytes) override;
  /// Returns to QueryMemory the bytes that were acquired ahead and are not in use.
  void trim();
  /// Releases everything. The caller has destroyed the structures that used the memory.
  void release_all();
  /// Returns the bytes in use: acquired by callers and not released.
  size_t held_bytes() const { return held_; }

 private:
  QueryMemory* const memory_;
  size_t held_ = 0;
  size_t acquired_ = 0;  // bytes acquired from QueryMemory; at least held_
};

/// The memory of one chunk from the moment when its query passes it on until the network has taken it. It moves with
/// the chunk; the destructor releases the memory. Threads: one at a time.
class ChunkMemory {
 public:
  /// Number of chunks of one query that are on their way.
  using InFlightCount = Env::Atomic<size_t>;

  /// Holds no memory.
  ChunkMemory() = default;
  /// Takes over `bytes` that were acquired from `memory`, and counts the chunk in `in_flight`. `memory` may be null.
  ChunkMemory(QueryMemory* memory, size_t bytes, std::shared_ptr<InFlightCount> in_flight);
  ChunkMemory(ChunkMemory&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_), in_flight_(std::move(other.in_flight_)) {}
  ChunkMemory& operator=(ChunkMemory&& other) noexcept;
  ~ChunkMemory() { release_memory(); }

 private:
  void release_memory();

  QueryMemory* memory_ = nullptr;
  size_t bytes_ = 0;
  std::shared_ptr<InFlightCount> in_flight_;
};

}  // namespace loam::storage
