// The reusable buffers of a transport's thread.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "common/net/link/frame.h"
#include "common/net/transport/transport.h"

namespace loam::net {

/// A frame to send: it is being filled, waits, or is being sent. Threads: the transport's.
struct OutFrame {
  OutFrame* next = nullptr;
  uint32_t size_bytes = 0;    ///< bytes filled so far, header included
  uint32_t sent_bytes = 0;    ///< bytes that the network has accepted
  uint32_t queued_bytes = 0;  ///< bytes that count against max_queued_bytes
  FrameHeader header;         ///< copied into `bytes` when the frame is finalized
  bool finalized = false;     ///< whether the header is final; the frame then has its credit and is not filled further
  bool direct = false;        ///< a kWrite through the peer's device: `whole` is a key, `offset` an address
  alignas(64) std::byte bytes[kMaxFrameBytes];
};

/// Keeps released objects for reuse, up to a limit. Threads: one.
template <class T>
class Pool {
 public:
  /// `allocations` counts the objects that the pool allocates.
  Pool(size_t max_free, statistics::Counter& allocations) : max_free_(max_free), allocations_(allocations) {}

  /// A free object of the pool, or a new one.
  std::unique_ptr<T> acquire() {
    if (free_.empty()) {
      allocations_.add(1);
      return std::unique_ptr<T>(new T);  // leaves the bytes uninitialized: they are written before they are read
    }
    std::unique_ptr<T> result = std::move(free_.back());
    free_.pop_back();
    return result;
  }
  /// Keeps the object for reuse, or deletes it beyond the limit.
  void release(std::unique_ptr<T> item) {
    if (free_.size() < max_free_) free_.push_back(std::move(item));
  }

 private:
  const size_t max_free_;
  statistics::Counter& allocations_;
  std::vector<std::unique_ptr<T>> free_;
};

/// The input buffer of a connection. It has room for two frames, so that a whole frame fits behind the rest of another.
struct InBlock {
  static constexpr size_t kBytes = 2 * kMaxFrameBytes;
  alignas(64) std::byte bytes[kBytes];
};

/// Number of frames that a transport keeps for reuse: 16 MiB.
inline constexpr size_t kMaxPooledFrames = 256;
/// Number of input buffers that a transport keeps for reuse: 8 MiB.
inline constexpr size_t kMaxPooledBlocks = 64;

}  // namespace loam::net
