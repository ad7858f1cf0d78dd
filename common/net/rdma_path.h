// The queue pair of one connection, and its conversation with rdma_cm. Internal.
//
// A path carries the bytes of a link in network messages of at most kChunkBytes, each a send with immediate data: the
// number of chunks that its sender gives back. It outlives its link until what the link wanted to say is on its way:
//
//   states   kFinding ─address, route─▶ kReady ─connect, accept─▶ kOpening ─established─▶ kOpen ─▶ kClosed
//            kClosed is reached from every state, and nothing is sent in it.
//
// A message is signalled if it is a path's kSignalEvery-th since the last one, the last words, or if chunks are scarce;
// a completion covers all sends before it. So a path's last few chunks may stay out while it is idle.
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
#include "common/net/frame.h"
#include "common/net/rdma_device.h"
#include "common/net/tcp_socket.h"

namespace loam::net {

class RdmaLink;
class RdmaTransport;

/// What the context of an rdma_cm_id points to.
struct CmSource {
  enum class Kind : uint8_t { kPath, kListener };
  explicit CmSource(Kind of) : kind(of) {}
  const Kind kind;
};

/// Private data of both sides: the part of a greeting that is in use, and what the queue pairs agree on. 56 bytes are
/// all that a connection request holds.
struct RdmaHello {
  uint64_t magic = kMagic;
  uint32_t size_bytes = 64;
  uint32_t protocol_version = 0;
  uint32_t kind = 0;
  uint32_t code = 0;
  uint32_t max_frame_bytes = 0;
  uint32_t window_frames = 0;
  uint64_t max_message_bytes = 0;
  uint32_t chunk_bytes = kChunkBytes;        ///< size of a receive buffer
  uint32_t chunks_granted = kChunksGranted;  ///< messages that may be on their way to the sender of this hello
  uint64_t reserved = 0;
};
static_assert(sizeof(RdmaHello) == 56 && std::has_unique_object_representations_v<RdmaHello>);
static_assert(offsetof(RdmaHello, max_message_bytes) == offsetof(Greeting, max_message_bytes));

/// Memory of the peer, as its device knows it.
struct RemotePlace {
  uint64_t address = 0;
  uint32_t key = 0;
};

/// An event of rdma_cm, copied, because an id is not destroyed before its events are given back.
struct CmEvent {
  rdma_cm_event_type type;
  int status = 0;
  bool has_hello = false;
  RdmaHello hello;
};

class RdmaPath final : public CmSource {
 public:
  /// Takes `id` over, which may be null (resolve() makes one).
  RdmaPath(RdmaTransport& transport, rdma_cm_id* id);
  ~RdmaPath();
  RdmaPath(const RdmaPath&) = delete;
  RdmaPath& operator=(const RdmaPath&) = delete;

  // Opening. Errors say what to do.
  Status resolve(const SocketAddress& where);
  Status make_queue_pair();
  Status greet(const Greeting& greeting, bool active);
  void on_cm_event(const CmEvent& event);

  // Sending.
  /// The most that a network message carries.
  size_t message_bytes() const { return peer_chunk_bytes_; }
  /// Messages that may be staged now; of a link that has ended as many as it takes to say so.
  size_t room(bool last_words) const;
  /// Copies at most kChunkBytes, for a message, or to be written to `where` without the peer's doing. False if there is
  /// no chunk: push() comes again when there is.
  bool stage(Bytes bytes, const RemotePlace* where = nullptr);
  /// Lets the peer's device write into a block of at least `size` bytes: what is staged after this call finds it so.
  /// The key is the peer's to know. Null if that cannot be had.
  RdmaBlock* expose(size_t size, uint32_t& key);
  /// Ends that. The block goes back when the device has said so, or with the path.
  void retract(RdmaBlock& block);
  /// Posts what is staged, as far as credits go, and gives credits back with it, or alone if many are owed.
  void push(bool last_words = false);

  /// Called four times within the time after which a peer that acknowledges nothing is taken for dead. Asks whether it
  /// is still there, unless an answer is awaited anyway: by a write of no bytes, which takes neither a receive nor a
  /// credit of the peer. A device that tries for ever, as Soft-RoCE does where small frames arrive and large ones do
  /// not, is not waited for.
  void probe();

  // Completions.
  void on_received(Chunk& chunk, const ibv_wc& completion);
  void on_sent(ibv_wc_status status);

  void attach(RdmaLink* link) { link_ = link; }
  /// The link is gone: stays until its last words are sent.
  void linger(uint64_t until_ns) { linger_until_ns_ = until_ns; }
  bool finished(uint64_t now_ns);
  RdmaLink* link() const { return link_; }
  RdmaDevice* device() const { return device_; }
  bool owes_much() const { return owed_ >= kChunksGranted / 2; }

 private:
  enum class State : uint8_t { kFinding, kReady, kOpening, kOpen, kClosed };
  static constexpr uint32_t kSignalEvery = kSendDepth / 4;
  static constexpr uint32_t kMostSilent = 3;

  enum class Work : uint8_t { kSend, kWrite, kBind, kInvalidate };
  /// In the order in which the peer is to see it.
  struct Staged {
    Work work = Work::kSend;
    Chunk* chunk = nullptr;
    uint32_t bytes = 0;
    RemotePlace where{};
    RdmaBlock* block = nullptr;
  };
  struct Sent {
    Chunk* chunk = nullptr;      // null: nothing to give back
    RdmaBlock* block = nullptr;  // is free when this is done
    bool signalled = false;
  };

  void opened();
  void close();
  void give_up(ibv_wc_status status);
  void established(const CmEvent& event);
  Status check_hello(const RdmaHello& hello);
  uint32_t send_room() const { return kSendDepth - (sent_end_ - sent_begin_); }
  void post(std::span<ibv_send_wr> requests);
  bool can_post(const Staged& staged) const { return staged.work != Work::kSend || credits_ > 0; }
  void prepare(ibv_send_wr& request, ibv_sge& piece, const Staged& staged);
  Status end_of_peer();
  void tell(const Status& status);

  friend class RdmaTransport;  // for the marks of its lists

  RdmaTransport& transport_;
  rdma_cm_id* id_;
  RdmaLink* link_ = nullptr;
  RdmaDevice* device_ = nullptr;
  State state_ = State::kFinding;
  bool has_queue_pair_ = false;
  bool disconnected_ = false;  // rdma_disconnect() was called
  bool active_ = false;
  uint32_t awaited_ = 0;     // signalled sends without a completion
  uint32_t silent_ = 0;      // probe()s since one was to be acknowledged, and nothing was
  bool last_words_ = false;  // the link has ended: what it said last reports its completion
  uint32_t max_inline_ = 0;
  uint32_t peer_chunk_bytes_ = kChunkBytes;
  uint32_t peer_granted_ = 0;
  uint32_t credits_ = 0;  // messages that the peer has room for
  uint32_t owed_ = 0;     // messages received whose room was not given back
  uint32_t unsignalled_ = 0;
  std::deque<Staged> staged_;
  std::vector<RdmaBlock*> exposed_;      // or being retracted
  std::array<Sent, kSendDepth> sent_{};  // a ring, from sent_begin_ to sent_end_
  uint32_t sent_begin_ = 0, sent_end_ = 0;
  uint64_t linger_until_ns_ = 0;
  bool ready_ = false, starved_ = false;  // in the transport's lists
};

}  // namespace loam::net
