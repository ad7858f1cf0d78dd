// One RDMA device as one transport uses it: registered memory, the shared receive queue, the completion queue.
// Internal.
//
// Memory is registered in slabs of kSlabChunks chunks when a connection opens or a queue reaches a new peak; nothing is
// registered per message. Every chunk has one owner at any time:
//
//   owner                     from                               until
//   the device's free list    its registration, or give()        take(), or add_path() posts it
//   the network, to receive   repost() and flush_receives()      its completion comes out of poll()
//   the thread                that completion                    repost(), before poll() of the transport ends
//   a path, to send           take()                             the completion that covers its send, or the end of
//                                                                its queue pair
//
// **The low-water mark.** A peer may have kChunksGranted messages on their way that it has not been given back, and
// kControlChunks that carry nothing but credits. The receive queue holds so many chunks for each path before the path
// is opened, and a chunk is posted again before its credit is given back: so it never runs dry, however many peers send
// at once, and receiver-not-ready never occurs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include <infiniband/verbs.h>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/net/rdma_window.h"
#include "common/net/transport.h"

namespace loam::net {

class RdmaPath;

/// A network message, and a registered buffer. A frame of 64 KiB takes eight, most batches one.
inline constexpr size_t kChunkBytes = 8 * 1024;
/// Messages that a peer may have on their way: 128 KiB, more than 100 Gbit/s carry in a round trip of 5 us.
inline constexpr uint32_t kChunksGranted = 16;
/// Messages without bytes give credits back, at least half of the grant each: no more than two can be on their way.
inline constexpr uint32_t kControlChunks = 2;
inline constexpr uint32_t kReceivesPerPath = kChunksGranted + kControlChunks;
/// Sends of a path that may be without a completion.
inline constexpr uint32_t kSendDepth = 32;
inline constexpr size_t kSlabChunks = 128;
/// Receives of a transport on one device: 256 MiB, for 1,820 connections.
inline constexpr uint32_t kMaxReceives = 32 * 1024;
/// Chunks that wait to be sent, or for their completion: 64 MiB.
inline constexpr size_t kMaxSendChunks = 8 * 1024;

struct Chunk {
  std::byte* bytes = nullptr;
  uint32_t key = 0;
};

/// Owner: its transport. Threads: the transport's.
class RdmaDevice {
 public:
  /// Opens `context` (rdma_cm owns it) for one transport. kUnavailable if the device offers too little.
  static Result<std::unique_ptr<RdmaDevice>> open(ibv_context* context, statistics::Counter& allocations);
  ~RdmaDevice();
  RdmaDevice(const RdmaDevice&) = delete;
  RdmaDevice& operator=(const RdmaDevice&) = delete;

  /// Makes room for one more path: its receives are posted. kOverloaded beyond kMaxReceives or what the device's
  /// queues are enough for, kUnavailable if memory cannot be registered.
  Status add_path();
  /// Its receives stay posted, for the next one.
  void remove_path() { --paths_; }

  /// A chunk to send from; null if kMaxSendChunks are out, or no more can be registered: wait for completions.
  Chunk* take();
  void give(Chunk& chunk);
  /// Whether so many chunks are out that each send should report its completion at once.
  bool short_of_chunks() const { return out_ >= kMaxSendChunks / 2 || no_more_memory_; }

  void repost(Chunk& chunk);
  void flush_receives();

  int poll(std::span<ibv_wc> completions) {
    return ibv_poll_cq(queue_, static_cast<int>(completions.size()), completions.data());
  }
  /// The next completion makes descriptor() readable.
  void arm() { static_cast<void>(ibv_req_notify_cq(queue_, 0)); }
  int descriptor() const { return channel_->fd; }
  void take_notifications();

  /// Readable when something happens to the device itself: a port goes down, a queue breaks. All transports of the
  /// process share it, and whoever looks first tells.
  int event_descriptor() const { return context_->async_fd; }
  /// Logs what an operator should know.
  void take_events();

  /// Where regions have their memory.
  RdmaWindows& windows() { return *windows_; }

  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_; }
  ibv_cq* completion_queue() const { return queue_; }
  ibv_srq* receive_queue() const { return receives_; }
  const char* name() const { return ibv_get_device_name(context_->device); }

  /// By queue pair number.
  std::unordered_map<uint32_t, RdmaPath*> paths;

 private:
  struct Slab;

  RdmaDevice(ibv_context* context, statistics::Counter& allocations);
  Status prepare();
  Status add_slab();

  ibv_context* const context_;
  statistics::Counter& allocations_;
  ibv_device_attr limits_{};
  uint32_t max_paths_ = 0;
  ibv_pd* domain_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* queue_ = nullptr;
  ibv_srq* receives_ = nullptr;
  std::unique_ptr<RdmaWindows> windows_;
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::vector<Chunk*> free_;
  std::vector<Chunk*> to_post_;
  size_t out_ = 0;  // chunks taken
  bool no_more_memory_ = false;
  uint32_t paths_ = 0;
  uint32_t posted_ = 0;  // chunks that belong to the receive queue, those being handled included
};

}  // namespace loam::net
