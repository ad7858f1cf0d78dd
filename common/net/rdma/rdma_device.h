// One RDMA device for one transport: registered memory, the shared receive queue, the completion queue. Internal.
//
// The device registers memory in slabs of kSlabBuffers buffers when a connection opens or a queue reaches a new peak.
// It registers nothing for single messages. Every buffer has one owner at any time:
//
//   owner                      from                           until
//   free list of the device    its registration, release()    acquire(), or add_queue_pair() posts it
//   the network, to receive    repost(), flush_receives()     poll() returns its completion
//   the transport's thread     that completion                repost(), before poll() of the transport ends
//   a queue pair, to send      acquire()                      the completion that covers its send, or the end of the
//                                                             queue pair
//
// **The receive queue is never empty.** A peer may have kBuffersGranted messages in flight, and kControlBuffers
// messages that carry credits only. Before a queue pair opens, the receive queue gets this number of buffers for it,
// and a buffer is posted again before its credit is given back. So the receive queue always has a buffer for each
// message in flight, also if all peers send at the same time, and the error receiver-not-ready never occurs.
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
#include "common/net/rdma/rdma_memory_window.h"
#include "common/net/transport/transport.h"

namespace loam::net {

class RdmaQueuePair;

/// Size of a registered buffer, and largest network message. A frame of 64 KiB takes eight messages, most batches
/// take one.
inline constexpr size_t kRdmaBufferBytes = 8 * 1024;
/// Messages that a peer may have in flight: 128 KiB, which is more than 100 Gbit/s transfer in a round trip of 5 us.
inline constexpr uint32_t kBuffersGranted = 16;
/// Messages without bytes that a peer may have in flight. Each gives back at least half of the granted credits, so no
/// more than two can be in flight.
inline constexpr uint32_t kControlBuffers = 2;
/// Buffers in the shared receive queue for each queue pair.
inline constexpr uint32_t kReceivesPerQueuePair = kBuffersGranted + kControlBuffers;
/// Sends of a queue pair that may be posted and not completed.
inline constexpr uint32_t kSendDepth = 32;
/// Buffers that are registered together.
inline constexpr size_t kSlabBuffers = 128;
/// Largest number of buffers in the shared receive queue: 256 MiB, for 1,820 connections.
inline constexpr uint32_t kMaxReceives = 32 * 1024;
/// Largest number of buffers that wait to be sent or for the completion of their send: 64 MiB.
inline constexpr size_t kMaxSendBuffers = 8 * 1024;

/// A registered buffer of kRdmaBufferBytes.
struct RdmaBuffer {
  std::byte* bytes = nullptr;
  uint32_t key = 0;  ///< local key of its registration
};

/// The use of one device by one transport. Owner: the transport. Threads: the transport's.
class RdmaDevice {
 public:
  /// Opens the device of `context`, which rdma_cm owns. kUnavailable: the limits of the device are too low.
  static Result<std::unique_ptr<RdmaDevice>> open(ibv_context* context, statistics::Counter& allocations);
  ~RdmaDevice();
  RdmaDevice(const RdmaDevice&) = delete;
  RdmaDevice& operator=(const RdmaDevice&) = delete;

  /// Posts the receive buffers of another queue pair. kOverloaded: kMaxReceives or the limits of the device's queues
  /// are reached. kUnavailable: memory cannot be registered.
  Status add_queue_pair();
  /// Ends the use by a queue pair. Its receive buffers stay posted for the next one.
  void remove_queue_pair() { --queue_pair_count_; }

  /// A buffer to send from. Null: kMaxSendBuffers are in use, or no more memory can be registered; the caller waits
  /// for completions.
  RdmaBuffer* acquire();
  /// Returns a buffer to the free list.
  void release(RdmaBuffer& buffer);
  /// Whether buffers are so scarce that each send should report its own completion.
  bool short_of_buffers() const { return send_buffers_in_use_ >= kMaxSendBuffers / 2 || no_more_memory_; }

  /// Queues a received buffer to be posted again.
  void repost(RdmaBuffer& buffer);
  /// Posts the queued buffers to the shared receive queue.
  void flush_receives();

  /// Returns completions of the device, up to the size of `completions`.
  int poll(std::span<ibv_wc> completions) {
    return ibv_poll_cq(queue_, static_cast<int>(completions.size()), completions.data());
  }
  /// Makes the next completion notify descriptor().
  void arm() { static_cast<void>(ibv_req_notify_cq(queue_, 0)); }
  /// A descriptor that is readable after the first completion since arm().
  int descriptor() const { return channel_->fd; }
  /// Removes the notifications, so that descriptor() is not readable any more.
  void drain_notifications();

  /// A descriptor that is readable after an event of the device itself, such as a port that goes down or a queue that
  /// fails. All transports of the process share it, and the first that reads an event logs it.
  int event_descriptor() const { return context_->async_fd; }
  /// Reads the events of the device and logs those that matter to an operator.
  void drain_events();

  /// The registered memory of regions.
  MemoryWindowPool& memory_windows() { return *memory_windows_; }

  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_; }
  ibv_cq* completion_queue() const { return queue_; }
  ibv_srq* receive_queue() const { return receives_; }
  const char* name() const { return ibv_get_device_name(context_->device); }

  /// The queue pairs of the transport on this device, by their numbers.
  std::unordered_map<uint32_t, RdmaQueuePair*> queue_pairs;

 private:
  struct Slab;

  RdmaDevice(ibv_context* context, statistics::Counter& allocations);
  Status prepare();
  Status add_slab();

  ibv_context* const context_;
  statistics::Counter& allocations_;
  ibv_device_attr limits_{};
  uint32_t max_queue_pairs_ = 0;
  ibv_pd* domain_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* queue_ = nullptr;
  ibv_srq* receives_ = nullptr;
  std::unique_ptr<MemoryWindowPool> memory_windows_;
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::vector<RdmaBuffer*> free_;
  std::vector<RdmaBuffer*> to_post_;
  size_t send_buffers_in_use_ = 0;  // buffers that queue pairs hold to send
  bool no_more_memory_ = false;
  uint32_t queue_pair_count_ = 0;
  uint32_t posted_ = 0;  // buffers of the receive queue, including those that are being handled
};

}  // namespace loam::net
