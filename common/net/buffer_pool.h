// Buffers that a transport's thread uses again and again.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "common/net/frame.h"
#include "common/net/transport.h"

namespace loam::net {

/// A frame that is being filled, waits, or is being sent. Only the transport's thread touches it.
struct OutFrame {
  OutFrame* next = nullptr;
  uint32_t size_bytes = 0;    ///< filled so far, header included
  uint32_t sent_bytes = 0;    ///< given to the network
  uint32_t queued_bytes = 0;  ///< what it counts against max_queued_bytes
  FrameHeader header;         ///< copied into the bytes when it is stamped
  bool stamped = false;       ///< its header is final: it has its credit, and follows all stamped before it
  bool direct = false;        ///< a kWrite that the peer's device carries out: `whole` is a key, `offset` an address
  alignas(64) std::byte bytes[kMaxFrameBytes];
};

/// Keeps what is given back, up to a limit. One thread.
template <class T>
class Pool {
 public:
  Pool(size_t max_kept, statistics::Counter& allocations) : max_kept_(max_kept), allocations_(allocations) {}

  std::unique_ptr<T> take() {
    if (kept_.empty()) {
      allocations_.add(1);
      return std::unique_ptr<T>(new T);  // bytes stay as they are: nobody reads what has not been written
    }
    std::unique_ptr<T> result = std::move(kept_.back());
    kept_.pop_back();
    return result;
  }
  void give(std::unique_ptr<T> item) {
    if (kept_.size() < max_kept_) kept_.push_back(std::move(item));
  }

 private:
  const size_t max_kept_;
  statistics::Counter& allocations_;
  std::vector<std::unique_ptr<T>> kept_;
};

/// Where a connection's bytes arrive: room for two frames, so that a whole one can stand behind the rest of another.
struct InBlock {
  static constexpr size_t kBytes = 2 * kMaxFrameBytes;
  alignas(64) std::byte bytes[kBytes];
};

/// Blocks kept for reuse: 16 MiB of frames, 8 MiB of input.
inline constexpr size_t kMaxPooledFrames = 256;
inline constexpr size_t kMaxPooledBlocks = 64;

}  // namespace loam::net
