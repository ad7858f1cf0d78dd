// The protocol of one connection, without sockets: handshake, frames, credits, fragments, regions. Internal.
//
// A ConnectionBase turns calls of its owner into bytes for the network, and bytes from the network into calls of the
// handler. The networks (tcp, rdma, simulated) derive from it and move the bytes. For input they write into
// input_space() and call received(). For output they send the bytes that gather() returns and call sent(). Calls of
// handlers happen only inside received() and service(), which only poll() of the transport calls.
//
//   states   kOpening ──start()──▶ kGreeting ──greeting of the peer──▶ kOpen ──close(), fail()──▶ kEnded
//            Every state leads to kEnded. Then the transport calls on_closed() in its poll() and destroys the object.
//
// Output is one list of frames:   head ▶ finalized … finalized ▶ waiting … waiting ◀ tail
// A finalized frame has its credit and its final header. The last waiting frame may still be filled.
//
// Input is one sequence of bytes: [begin, parsed) holds whole frames whose credits and writes are applied and whose
// messages are not delivered yet, because the handler pauses; [parsed, end) holds the begin of a frame. When `begin`
// passes a frame, its credit is due to the peer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <sys/uio.h>

#include "common/net/link/buffer_pool.h"
#include "common/net/link/frame.h"
#include "common/net/transport/transport.h"

namespace loam::net {

class TransportBase;

/// The memory of an offered region. It lives until the region is withdrawn or the connection is destroyed. The peer's
/// writes end before that.
class RegionMemory {
 public:
  virtual ~RegionMemory() = default;
  /// Called when the region is withdrawn while its connection is open, so that the peer can be told.
  virtual void withdraw() {}
  /// The memory itself.
  virtual MutableBytes bytes() = 0;
};

/// The part of a connection that all networks share. Owner: its TransportBase. Threads: the transport's.
class ConnectionBase : public Connection {
 public:
  /// `announced`: the owner knows the connection from connect(), and so gets on_closed() in any case.
  ConnectionBase(TransportBase& host, Handler& handler, Address peer, bool announced);
  ~ConnectionBase() override;

  // Connection
  [[nodiscard]] std::byte* reserve(size_t size) final;
  void commit(size_t size) final;
  Status refusal(size_t size) const final;
  Status write(const RemoteRegion& region, uint64_t offset, Bytes bytes) final;
  Result<OfferedRegion> offer_region(size_t size) final;
  void withdraw_region(const RemoteRegion& region) final;
  void pause_receiving() final;
  void resume_receiving() final;
  void flush() final;
  void close(Status status) final;
  bool is_open() const final { return state_ == State::kOpen; }
  size_t queued_bytes() const final { return queued_bytes_; }
  size_t max_message_bytes() const final { return max_message_bytes_; }
  const Address& peer() const final { return peer_; }

 protected:
  // For the networks.
  /// The states of the drawing above.
  enum class State : uint8_t { kOpening, kGreeting, kOpen, kEnded };

  State state() const { return state_; }
  /// Starts the handshake when the network has connected both sides. `greet`: this side has connected, and sends its
  /// greeting first.
  void start(bool greet);
  /// The memory for the next bytes from the network; never empty before kEnded.
  MutableBytes input_space();
  /// Processes `size` bytes that the network has written into input_space(). Calls the handler.
  void received(size_t size);
  /// Processes bytes that lie in memory of the network, at a multiple of 8. Delivers whole frames from there and
  /// copies the rest. The caller may reuse the memory when the call returns.
  void received_in_place(MutableBytes bytes);
  /// Returns the bytes that may be sent now, as at most `max` pieces. Finalizes their frames, which takes credits.
  size_t gather(iovec* pieces, size_t max);
  /// Notes that the network has accepted the next `size` bytes of gather().
  void sent(size_t size);
  /// Drops the next `size` bytes of gather(), because the network carries their content in another form.
  void skip_output(size_t size);
  /// The frame of the first piece of gather().
  const OutFrame& first_frame() const { return *head_; }
  bool has_output() const { return head_ != nullptr; }
  /// Ends the connection because the network failed or the peer is gone.
  void fail(Status status);

  /// Passes output to the network, as much as it accepts, by gather() and sent().
  virtual void transmit() = 0;

  // For networks on which the peer's device writes into regions.
  /// Allocates the memory of a region that this side offers.
  virtual std::unique_ptr<RegionMemory> make_region(uint64_t id, size_t size);
  /// Tells the peer the address and the key by which its device reaches a region. Only in kOpen.
  void queue_memory_window(const MemoryWindowBody& window);
  /// Processes the peer's message of queue_memory_window().
  virtual Status apply_memory_window(const MemoryWindowBody& window);
  /// The key and the address of the first byte by which this side's device reaches a region of the peer. Null: it
  /// does not. Writes to such a region are queued as frames that are marked `direct`.
  virtual const PartHeader* memory_window_of(const RemoteRegion& region) const;

  TransportBase& host() { return host_; }

 private:
  friend class TransportBase;

  struct Region {
    uint64_t id;
    std::unique_ptr<RegionMemory> memory;
  };

  // Output (connection_send.cc)
  OutFrame& append_frame(FrameType type);
  void insert_after_finalized(std::unique_ptr<OutFrame> frame);
  bool room_in_tail(size_t footprint) const;
  bool accepts(size_t size) const;
  void queue_parts(FrameType type, PartHeader head, Bytes bytes, bool direct = false);
  void queue_greeting(GreetingKind kind, StatusCode code);
  void queue_goodbye(const Status& status);
  void queue_credits();
  void finalize(OutFrame& frame);
  void drop_waiting();
  void note_queued(OutFrame& frame, size_t bytes);
  void request_service();

  // Input (connection_receive.cc)
  void received_greeting(size_t size);
  void make_input_room();
  void release_input();
  Bytes frame_at(size_t at) const;
  Status parse();
  Status process_frame(const FrameHeader& header, Bytes payload);
  Status apply_write(const FrameHeader& header, Bytes payload);
  void deliver();
  Status deliver_frame(const FrameHeader& header, Bytes payload);
  Status deliver_messages(const FrameHeader& header, Bytes payload);
  Status deliver_fragment(const FrameHeader& header, Bytes payload);
  size_t max_input_bytes() const;
  void end(Status status, bool say_goodbye);
  /// Called by poll() after request_service(): delivers messages after a pause, calls on_writable(), and flushes.
  void service();

  // Constant after construction.
  TransportBase& host_;
  Handler& handler_;
  const Address peer_;
  const uint64_t deadline_ns_;  // deadline of the handshake

  State state_ = State::kOpening;
  bool announced_;
  bool is_initiator_ = false;     // this side has connected
  bool service_pending_ = false;  // whether the connection is in host_.service_pending_
  bool paused_ = false;
  bool want_writable_ = false;
  bool said_goodbye_ = false;  // the peer has sent kGoodbye; received() ends the connection
  Status goodbye_;
  Status end_status_;

  // Set in the handshake.
  size_t max_frame_out_ = kMinFrameBytes;  // until then: a size that every peer accepts
  size_t max_message_bytes_;
  uint32_t window_out_ = 0;

  // Output.
  OutFrame* head_ = nullptr;  // owned list
  OutFrame* last_finalized_ = nullptr;
  OutFrame* tail_ = nullptr;
  size_t waiting_frames_ = 0;
  size_t queued_bytes_ = 0;
  size_t largest_queued_ = 0;  // largest committed message, which the handshake compares with the peer's limit
  uint32_t credits_ = 0;       // number of frames that may be finalized
  size_t reserved_ = 0;
  std::byte* reserved_at_ = nullptr;
  std::vector<std::byte> large_;  // a reserved message that is larger than a frame

  // Input.
  std::unique_ptr<InBlock> block_;
  std::vector<std::byte> grown_;  // instead of block_ while a paused connection holds more bytes
  std::byte* in_ = nullptr;       // the begin of block_, of grown_, or of received_in_place()'s bytes
  size_t in_capacity_ = 0;
  size_t in_begin_ = 0, in_parsed_ = 0, in_end_ = 0;
  uint32_t credits_outstanding_ = 0;  // received frames whose credit is not given back yet
  uint32_t credits_to_return_ = 0;    // those of these frames that are delivered
  std::vector<std::byte> reassembly_;
  size_t reassembly_whole_ = 0;  // size of the message that is being reassembled; 0: none
  std::vector<Region> regions_;
  uint64_t next_region_ = 1;
  std::array<std::byte, sizeof(Greeting)> greeting_;
  size_t greeting_bytes_ = 0;
};

}  // namespace loam::net
