// The protocol of one connection, without its sockets: handshake, frames, credits, fragments, regions. Internal.
//
// A Link turns calls of its owner into bytes for the network and bytes of the network into calls of the handler. The
// drivers (tcp_transport.cc, sim_transport.cc) move the bytes: they read into input_space() and tell received(), take
// what gather() offers and tell sent(). All calls of handlers happen inside received() and attend(), which only a
// driver's poll() calls.
//
//   states   kOpening ──start()──▶ kGreeting ──greeting of the peer──▶ kOpen ──close(), fail()──▶ kEnded
//            kEnded is reached from every state; the host then calls on_closed() from its poll() and destroys the link.
//
// Output is one list of frames:   head ▶ stamped … stamped ▶ waiting … waiting ◀ tail
// A stamped frame has its credit and its final header; a waiting one is filled further as long as it is the last.
//
// Input is one run of bytes:      [begin, parsed) whole frames whose credits and writes are done, whose messages are
// not delivered yet (the handler pauses); [parsed, end) the beginning of a frame. A frame's own credit is owed to the
// peer once begin has passed it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <sys/uio.h>

#include "common/net/buffer_pool.h"
#include "common/net/frame.h"
#include "common/net/transport.h"

namespace loam::net {

class TransportBase;

/// Memory of a region on offer. Dies with the link, or when the region is withdrawn; the peer's writes end before.
class RegionMemory {
 public:
  virtual ~RegionMemory() = default;
  /// The owner withdraws the region of a link that lives on: the peer may be told.
  virtual void withdraw() {}
  virtual MutableBytes bytes() = 0;
};

class Link : public Connection {
 public:
  /// `announced`: the owner knows of it (connect()), so it gets on_closed() whatever happens.
  Link(TransportBase& host, Handler& handler, Address peer, bool announced);
  ~Link() override;

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
  // For drivers.
  enum class State : uint8_t { kOpening, kGreeting, kOpen, kEnded };

  State state() const { return state_; }
  /// The way to the peer stands: the one that connected greets.
  void start(bool greet);
  /// Where the next bytes of the network go; never empty before kEnded.
  MutableBytes input_space();
  /// `size` bytes have been put into input_space(). Calls the handler.
  void received(size_t size);
  /// The same for bytes that lie in the network's own memory, on a multiple of 8: whole frames are delivered from
  /// there, the rest is copied. The memory is the caller's again when the call returns.
  void received_in_place(MutableBytes bytes);
  /// Bytes that may leave now, at most `max` pieces. Takes credits.
  size_t gather(iovec* pieces, size_t max);
  /// The network has taken `size` bytes of what gather() gave.
  void sent(size_t size);
  /// The same for bytes that it need not carry.
  void passed_over(size_t size);
  /// The frame of gather()'s first piece that is not sent yet.
  const OutFrame& first_frame() const { return *head_; }
  bool has_output() const { return head_ != nullptr; }
  /// The network broke or the peer is gone.
  void fail(Status status);

  /// Gives output to the network as far as it takes it: gather() and sent() until one of them ends it.
  virtual void transmit() = 0;

  // Networks on which the peer's device writes into regions.
  /// Memory for a region of this side.
  virtual std::unique_ptr<RegionMemory> make_region(uint64_t id, size_t size);
  /// Tells the peer where its device reaches a region; kOpen only.
  void queue_window(const WindowBody& window);
  /// The peer has said so.
  virtual Status take_window(const WindowBody& window);
  /// Where this side's device reaches a region of the peer: {key, address of its first byte}, or null. What
  /// queue_window() told of is written there, by frames that are marked as `direct`.
  virtual const PartHeader* window_of(const RemoteRegion& region) const;

  TransportBase& host() { return host_; }

 private:
  friend class TransportBase;

  struct Region {
    uint64_t id;
    std::unique_ptr<RegionMemory> memory;
  };

  // Output (link_send.cc)
  OutFrame& append_frame(FrameType type);
  void insert_after_stamped(std::unique_ptr<OutFrame> frame);
  bool room_in_tail(size_t footprint) const;
  bool accepts(size_t size) const;
  void queue_parts(FrameType type, PartHeader head, Bytes bytes, bool direct = false);
  void queue_greeting(GreetingKind kind, StatusCode code);
  void queue_goodbye(const Status& status);
  void queue_credits();
  void stamp(OutFrame& frame);
  void drop_waiting();
  void note_queued(OutFrame& frame, size_t bytes);
  void want_attention();

  // Input (link_receive.cc)
  void received_greeting(size_t size);
  void make_input_room();
  void release_input();
  Bytes frame_at(size_t at) const;
  Status parse();
  Status take_frame(const FrameHeader& header, Bytes payload);
  Status apply_write(const FrameHeader& header, Bytes payload);
  void deliver();
  Status deliver_frame(const FrameHeader& header, Bytes payload);
  Status deliver_messages(const FrameHeader& header, Bytes payload);
  Status deliver_fragment(const FrameHeader& header, Bytes payload);
  size_t max_input_bytes() const;
  void end(Status status, bool say_goodbye);
  /// What poll() does for a link that wanted attention: delivers after a pause, tells on_writable(), flushes.
  void attend();

  // Constant after construction.
  TransportBase& host_;
  Handler& handler_;
  const Address peer_;
  const uint64_t deadline_ns_;  // of the handshake

  State state_ = State::kOpening;
  bool announced_;
  bool greeted_first_ = false;  // this side connected
  bool attention_ = false;      // in the host's list
  bool paused_ = false;
  bool want_writable_ = false;
  bool said_goodbye_ = false;  // the peer; goodbye_ ends the link once what came before it is delivered
  Status goodbye_;
  Status end_status_;

  // Agreed in the handshake.
  size_t max_frame_out_ = kMinFrameBytes;  // before it: what every peer takes
  size_t max_message_bytes_;
  uint32_t window_out_ = 0;

  // Output.
  OutFrame* head_ = nullptr;  // owned list
  OutFrame* last_stamped_ = nullptr;
  OutFrame* tail_ = nullptr;
  size_t waiting_frames_ = 0;
  size_t queued_bytes_ = 0;
  size_t largest_queued_ = 0;  // message accepted before the handshake
  uint32_t credits_ = 0;       // frames that may be stamped
  size_t reserved_ = 0;
  std::byte* reserved_at_ = nullptr;
  std::vector<std::byte> large_;  // a reserved message that needs fragments

  // Input.
  std::unique_ptr<InBlock> block_;
  std::vector<std::byte> grown_;  // instead of block_ while a paused link holds more
  std::byte* in_ = nullptr;       // block_ or grown_
  size_t in_capacity_ = 0;
  size_t in_begin_ = 0, in_parsed_ = 0, in_end_ = 0;
  uint32_t unreturned_ = 0;  // frames received whose credit was not given back
  uint32_t owed_ = 0;        // of these, delivered
  std::vector<std::byte> reassembly_;
  size_t reassembly_whole_ = 0;  // 0: none under way
  std::vector<Region> regions_;
  uint64_t next_region_ = 1;
  std::array<std::byte, sizeof(Greeting)> greeting_;
  size_t greeting_bytes_ = 0;
};

}  // namespace loam::net
