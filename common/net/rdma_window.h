// Registered memory into which a peer's device may write, each block through a window of its own. Internal.
//
// A block is registered for local access alone. Its window, of type 2, is bound to one queue pair when a region is
// offered and invalidated when it is withdrawn, both by work requests: no system call, nothing registered per scan. A
// peer that holds the key of an invalidated window, or of another connection's, ends its own connection and reaches
// nothing. Measured against registering each region: docs/decisions/0017-one-sided-scan-results.md.
//
//   | a block is owned by      | from                   | until                                                   |
//   | ------------------------ | ---------------------- | ------------------------------------------------------- |
//   | RdmaWindows' free list   | its registration       | take()                                                  |
//   | a path                   | take()                 | the completion of its invalidation, or the path's end,  |
//   |                          |                        | which makes the window anew: give_invalid(), give_bound()|
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <infiniband/verbs.h>

#include "common/base/bytes.h"
#include "common/net/transport.h"

namespace loam::net {

/// Registered for regions, bytes a device and transport. What goes beyond travels as frames.
inline constexpr size_t kMaxWindowBytes = 64 * 1024 * 1024;

struct RdmaBlock {
  MutableBytes memory;
  ibv_mr* registration = nullptr;
  ibv_mw* window = nullptr;
  uint32_t key = 0;  ///< of the region that it was last offered for
};

/// Owner: its device. Threads: the transport's.
class RdmaWindows {
 public:
  RdmaWindows(ibv_context& context, ibv_pd& domain, const ibv_device_attr& limits, statistics::Counter& allocations);
  ~RdmaWindows();
  RdmaWindows(const RdmaWindows&) = delete;
  RdmaWindows& operator=(const RdmaWindows&) = delete;

  /// A block of at least `size` bytes with a window that is bound to nothing; null if the device has no such windows,
  /// or kMaxWindowBytes or the limit of locked memory are reached.
  RdmaBlock* take(size_t size);
  /// Its window was invalidated.
  void give_invalid(RdmaBlock& block);
  /// Its window may still be bound: it is destroyed, and made anew. Before the queue pair is.
  void give_bound(RdmaBlock& block);

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
  size_t bytes_ = 0;  // of all blocks
};

}  // namespace loam::net
