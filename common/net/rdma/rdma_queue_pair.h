// The queue pair of one connection, and its use of rdma_cm. Internal.
//
// A queue pair carries the bytes of a connection in network messages of at most kRdmaBufferBytes. Each message is a
// send with immediate data: the number of credits that its sender gives back. The queue pair outlives its connection
// until the last output of the connection is sent.
//
//   states   kFinding ─address, route─▶ kReady ─connect, accept─▶ kOpening ─established─▶ kOpen ─▶ kClosed
//            Every state leads to kClosed, in which nothing is sent.
//
// A completion covers all earlier sends of its queue pair, so only some sends report one: every kSignalEvery-th, the
// last of an ended connection, and every one while buffers are scarce. The last few buffers of an idle queue pair may
// therefore stay in use.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/net/link/frame.h"
#include "common/net/rdma/rdma_device.h"
#include "common/net/tcp/tcp_socket.h"

namespace loam::net {

class RdmaConnection;
class RdmaTransport;

/// The object to which the context of an rdma_cm_id points.
struct CmSource {
  enum class Kind : uint8_t { kQueuePair, kListener };
  explicit CmSource(Kind of) : kind(of) {}
  const Kind kind;
};

/// The private data of a connection request and its reply: the used part of a Greeting, and the limits of the queue
/// pair. A connection request has room for 56 bytes.
struct RdmaHello {
  uint64_t magic = kMagic;
  uint32_t size_bytes = 64;
  uint32_t protocol_version = 0;
  uint32_t kind = 0;
  uint32_t code = 0;
  uint32_t max_frame_bytes = 0;
  uint32_t window_frames = 0;
  uint64_t max_message_bytes = 0;
  uint32_t buffer_bytes = kRdmaBufferBytes;    ///< size of a receive buffer
  uint32_t buffers_granted = kBuffersGranted;  ///< messages that may be in flight to the sender of this hello
  uint64_t reserved = 0;
};
static_assert(sizeof(RdmaHello) == 56 && std::has_unique_object_representations_v<RdmaHello>);
static_assert(offsetof(RdmaHello, max_message_bytes) == offsetof(Greeting, max_message_bytes));

/// An address in the memory of the peer, with the key of its memory window.
struct RemotePlace {
  uint64_t address = 0;
  uint32_t key = 0;
};

/// A copy of an event of rdma_cm. The original is acknowledged before it is handled, because rdma_cm destroys an id
/// only after all its events are acknowledged.
struct CmEvent {
  rdma_cm_event_type type;
  int status = 0;
  bool has_hello = false;
  RdmaHello hello;
};

/// The queue pair of one connection. Owner: the RdmaConnection, and after its end the transport. Threads: the
/// transport's.
class RdmaQueuePair final : public CmSource {
 public:
  /// Takes ownership of `id`. If it is null, resolve() makes one.
  RdmaQueuePair(RdmaTransport& transport, rdma_cm_id* id);
  ~RdmaQueuePair();
  RdmaQueuePair(const RdmaQueuePair&) = delete;
  RdmaQueuePair& operator=(const RdmaQueuePair&) = delete;

  // Opening. The messages of errors say what to do.
  /// Looks up the device and the route to an address, which on_cm_event() reports.
  Status resolve(const SocketAddress& where);
  /// Makes the queue pair, after the route is known or a request has arrived.
  Status make_queue_pair();
  /// Sends the greeting: with the connection request (`active`), or with its reply, which may be a rejection.
  Status greet(const Greeting& greeting, bool active);
  /// Handles an event of rdma_cm.
  void on_cm_event(const CmEvent& event);

  // Sending.
  /// Largest number of bytes in a network message.
  size_t message_bytes() const { return peer_buffer_bytes_; }
  /// Number of messages that may be staged now. `final_send`: the connection has ended and stages its last output.
  size_t room(bool final_send) const;
  /// Copies at most kRdmaBufferBytes into a buffer: for a message, or for a one-sided write to `where`. False: there
  /// is no free buffer; note_ready() follows when there is one.
  bool stage(Bytes bytes, const RemotePlace* where = nullptr);
  /// Lets the peer's device write into a block of at least `size` bytes, from the next staged message on. Stores the
  /// key for the peer into `key`. Null: there is no block.
  RdmaBlock* expose(size_t size, uint32_t& key);
  /// Ends the access of the peer's device. The block becomes free when the device has completed this, or at the end
  /// of the queue pair.
  void retract(RdmaBlock& block);
  /// Posts the staged work as far as credits permit. Gives credits back with it, or in a message of their own if many
  /// are due.
  void push(bool final_send = false);

  /// Checks that the peer is alive. The transport calls it four times within peer_timeout_ns. If no send awaits an
  /// acknowledgement, the call posts a write of 0 bytes, which takes neither a receive buffer nor a credit of the
  /// peer. If a send stays unacknowledged for kMaxSilentProbes calls, the connection ends, also if the device itself
  /// would retry for ever, as Soft-RoCE does where small frames arrive and large ones do not.
  void probe();

  // Completions.
  void on_received(RdmaBuffer& buffer, const ibv_wc& completion);
  void on_sent(ibv_wc_status status);

  void attach(RdmaConnection* connection) { connection_ = connection; }
  /// Sets the time until which the queue pair may still send the last output of its ended connection.
  void linger(uint64_t until_ns) { linger_until_ns_ = until_ns; }
  /// Whether a lingering queue pair can be destroyed.
  bool finished(uint64_t now_ns);
  RdmaConnection* connection() const { return connection_; }
  RdmaDevice* device() const { return device_; }
  bool should_return_credits() const { return credits_to_return_ >= kBuffersGranted / 2; }

 private:
  enum class State : uint8_t { kFinding, kReady, kOpening, kOpen, kClosed };
  static constexpr uint32_t kSignalEvery = kSendDepth / 4;
  static constexpr uint32_t kMaxSilentProbes = 3;

  enum class Work : uint8_t { kSend, kWrite, kBind, kInvalidate };
  /// Staged work. The peer observes it in the order of staging.
  struct StagedSend {
    Work work = Work::kSend;
    RdmaBuffer* buffer = nullptr;
    uint32_t bytes = 0;
    RemotePlace where{};
    RdmaBlock* block = nullptr;
  };
  /// Posted work that is not completed yet.
  struct PostedSend {
    RdmaBuffer* buffer = nullptr;  // released at the completion; null: none
    RdmaBlock* block = nullptr;    // released at the completion, which ends its invalidation; null: none
    bool signalled = false;        // whether it reports a completion
  };

  void opened();
  void close();
  void give_up(ibv_wc_status status);
  void established(const CmEvent& event);
  Status check_hello(const RdmaHello& hello);
  uint32_t send_room() const { return kSendDepth - (sent_end_ - sent_begin_); }
  void post(std::span<ibv_send_wr> requests);
  bool can_post(const StagedSend& staged) const { return staged.work != Work::kSend || credits_ > 0; }
  void prepare(ibv_send_wr& request, ibv_sge& piece, const StagedSend& staged);
  Status peer_end_status();
  void report_error(const Status& status);

  friend class RdmaTransport;  // sets ready_ and starved_

  RdmaTransport& transport_;
  rdma_cm_id* id_;
  RdmaConnection* connection_ = nullptr;
  RdmaDevice* device_ = nullptr;
  State state_ = State::kFinding;
  bool has_queue_pair_ = false;
  bool disconnected_ = false;  // rdma_disconnect() was called
  bool active_ = false;
  uint32_t awaited_ = 0;        // signalled sends without a completion
  uint32_t silent_probes_ = 0;  // consecutive calls of probe() that found awaited sends and no completion
  bool final_send_ = false;     // the connection has ended, and its last send reports a completion
  uint32_t max_inline_ = 0;
  uint32_t peer_buffer_bytes_ = kRdmaBufferBytes;
  uint32_t peer_granted_ = 0;
  uint32_t credits_ = 0;            // messages for which the peer has receive buffers
  uint32_t credits_to_return_ = 0;  // received messages whose credit is not given back yet
  uint32_t unsignalled_ = 0;
  std::deque<StagedSend> staged_;
  std::vector<RdmaBlock*> exposed_;            // blocks that the peer's device may reach, or that are being retracted
  std::array<PostedSend, kSendDepth> sent_{};  // a ring, from sent_begin_ to sent_end_
  uint32_t sent_begin_ = 0, sent_end_ = 0;
  uint64_t linger_until_ns_ = 0;
  bool ready_ = false, starved_ = false;  // whether the queue pair is in these lists of the transport
};

}  // namespace loam::net
