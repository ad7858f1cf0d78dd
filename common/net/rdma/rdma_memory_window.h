// Registered memory into which the device of a peer may write, each block through a memory window of its own. Internal.
//
// A block is registered for local access only. Its memory window, of type 2, is bound to one queue pair when a region
// is offered, and invalidated when the region is withdrawn. Both are work requests, so a scan needs no system call
// and registers nothing. A peer that uses the key of an invalidated memory window, or of another connection, ends its
// own connection and reaches no memory. docs/decisions/0017-one-sided-scan-results.md compares this with the
// registration of each region.
//
//   | owner of a block              | from             | until                                                      |
//   | ----------------------------- | ---------------- | ---------------------------------------------------------- |
//   | free list of MemoryWindowPool | its registration | acquire()                                                  |
//   | a queue pair                  | acquire()        | the completion of its invalidation: release_invalidated(); |
//   |                               |                  | or the end of the queue pair, after which the memory       |
//   |                               |                  | window is made anew: release_bound()                       |
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <infiniband/verbs.h>

#include "common/base/bytes.h"
#include "common/net/transport/transport.h"

namespace loam::net {

/// Largest amount of memory that a transport registers for regions with one device. Writes into other regions travel
/// as frames.
inline constexpr size_t kMaxWindowBytes = 64 * 1024 * 1024;

/// A block of registered memory with its memory window.
struct RdmaBlock {
  MutableBytes memory;
  ibv_mr* registration = nullptr;
  ibv_mw* window = nullptr;
  uint32_t key = 0;  ///< key of the region for which the block was offered last
};

/// The blocks of one device. Owner: the device. Threads: the transport's.
class MemoryWindowPool {
 public:
  MemoryWindowPool(ibv_context& context, ibv_pd& domain, const ibv_device_attr& limits,
                   statistics::Counter& allocations);
  ~MemoryWindowPool();
  MemoryWindowPool(const MemoryWindowPool&) = delete;
  MemoryWindowPool& operator=(const MemoryWindowPool&) = delete;

  /// A block of at least `size` bytes with an unbound memory window. Null: the device has no memory windows of type
  /// 2, or kMaxWindowBytes or the limit of locked memory is reached.
  RdmaBlock* acquire(size_t size);
  /// Frees a block whose memory window was invalidated.
  void release_invalidated(RdmaBlock& block);
  /// Frees a block whose memory window may still be bound, by making the memory window anew. Called before the queue
  /// pair is destroyed.
  void release_bound(RdmaBlock& block);

 private:
  RdmaBlock* find_free(size_t size);
  RdmaBlock* make(size_t size);
  void release(RdmaBlock& block);
  void drop(RdmaBlock& block);

  ibv_context& context_;
  ibv_pd& domain_;
  const bool supported_;
  const size_t max_windows_;
  statistics::Counter& allocations_;
  std::vector<std::unique_ptr<RdmaBlock>> blocks_;
  std::vector<RdmaBlock*> free_;
  size_t bytes_ = 0;  // size of all blocks
};

}  // namespace loam::net
