// The contract of Loam's networks: ordered, reliable, batched messages between endpoints, and one-sided writes.
//
// tcp (tcp_transport.h), sim (sim_transport.h) and verbs (rdma_module.h) implement it and pass one typed test suite
// (transport_test.cc). What travels on the wire is in frame.h and docs/wire-protocol.md.
//
// **Who owns a buffer, and when**
//
//   | buffer                            | owner                                                                   |
//   | --------------------------------- | ----------------------------------------------------------------------- |
//   | argument of send(), write()       | the caller; the transport has copied it when the call returns           |
//   | pointer from reserve()            | the caller, until commit(), or the next call on that connection or poll()|
//   | a committed message               | the transport                                                           |
//   | messages given to on_messages()   | the transport; the handler may read them until the callback returns     |
//   | memory from offer_region()        | the transport; the peer's writes appear in it, within poll() of the      |
//   |                                   | offering thread or (verbs) at any time; the offerer may read it until    |
//   |                                   | withdraw_region(), or until on_closed() returns                          |
//
// **Flow control.** A *frame* is one network message: at most `max_frame_bytes`, with many logical messages in it. Each
// endpoint grants its peer `window_frames` credits; sending a frame takes one, and the receiver gives it back once its
// handler has returned from the frame's messages (piggy-backed on its own frames, or in a frame of its own when half of
// the window is owed). So a receiver never holds more than window_frames * max_frame_bytes of a connection. What cannot
// be sent yet waits at the sender, at most max_queued_bytes; beyond that the sender is told kOverloaded, and
// on_writable() when half of it has drained. Verbs have credits of their own below these (rdma_device.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/net/address.h"
#include "common/net/transport_counters.h"

namespace loam::net {

class Connection;

/// Version of the framing. An endpoint with another one is refused with kUnsupportedVersion at the handshake.
inline constexpr uint32_t kProtocolVersion = 8;

/// A frame with its header. 64 KiB: large enough that the header and the system call vanish, small enough to stay in
/// the cache.
inline constexpr size_t kMaxFrameBytes = 64 * 1024;
inline constexpr size_t kMinFrameBytes = 1024;
/// Credits granted to a peer. 16 frames in flight cover a round trip of 50 us at more than 10 GB/s.
inline constexpr uint32_t kWindowFrames = 16;
/// A logical message. Longer ones than a frame are cut up and put together again by the transport.
inline constexpr size_t kMaxMessageBytes = 16 * 1024 * 1024;
/// Accepted from the local sender and not yet given to the network, per connection. A message is always accepted by an
/// empty queue.
inline constexpr size_t kMaxQueuedBytes = 8 * 1024 * 1024;
/// Regions that one connection may have on offer.
inline constexpr size_t kMaxRegions = 1024;
inline constexpr size_t kMaxRegionBytes = 64 * 1024 * 1024;
/// A connection that has not shaken hands by then is closed.
inline constexpr uint64_t kHandshakeTimeoutNs = 5'000'000'000;
/// Open connections of one transport; more are refused with kOverloaded.
inline constexpr size_t kMaxConnections = 16 * 1024;
/// poll(kForever) returns on an event or wake() only.
inline constexpr uint64_t kForever = UINT64_MAX;

/// What differs between deployments and tests; the defaults are the named limits above.
struct TransportOptions {
  size_t max_frame_bytes = kMaxFrameBytes;  ///< largest frame to receive, kMinFrameBytes..kMaxFrameBytes
  uint32_t window_frames = kWindowFrames;   ///< credits granted to each peer, 2..4096
  size_t max_message_bytes = kMaxMessageBytes;
  size_t max_queued_bytes = kMaxQueuedBytes;
  size_t max_connections = kMaxConnections;
  uint64_t handshake_timeout_ns = kHandshakeTimeoutNs;
  /// poll() looks again and again for so long before it sleeps. A sleep and its wake-up cost about 40 us of latency,
  /// and whoever wakes it some 5 of its own time; spinning takes a core from others, but for those that it yields to at
  /// each look. Only worth it while events come closer together than this: poll() learns whether they do.
  uint64_t spin_ns = 100'000;
  /// tcp, rdma: a peer that acknowledges nothing for so long is taken for dead.
  uint64_t peer_timeout_ns = 15'000'000'000;
  /// Stands in the handshake. Tests set another one to play an old peer.
  uint32_t protocol_version = kProtocolVersion;
};

/// Memory of the peer that this endpoint may write into (Connection::write). The peer gets one from offer_region() and
/// sends the numbers in a message of its own. Worthless on any other connection.
struct RemoteRegion {
  uint64_t id = 0;    ///< never reused on its connection
  uint64_t size = 0;  ///< bytes
};

/// What offer_region() gives: what the peer is told, and where its writes appear.
struct OfferedRegion {
  RemoteRegion remote;
  Bytes memory;  ///< the transport's; begins on a multiple of 8, with whatever it held
};

/// What the owner of a connection is told. All calls come from poll() of the connection's transport, on its thread;
/// never from inside another call of the transport. A callback may call anything on the transport but poll() and the
/// destructor. It must not throw and should not block: the thread serves all other connections too.
class Handler {
 public:
  virtual ~Handler() = default;

  /// The handshake is done, on both sides of a connection. The first call for an accepted connection.
  virtual void on_connected(Connection& connection) { static_cast<void>(connection); }

  /// All logical messages of one frame, at least one, in the order in which they were sent; servers execute them as
  /// one batch. A message starts on a multiple of 8 bytes. The bytes are the transport's and die when the call returns.
  virtual void on_messages(Connection& connection, std::span<const Bytes> messages) = 0;

  /// A send was refused with kOverloaded, and now half of the queue has drained.
  virtual void on_writable(Connection& connection) { static_cast<void>(connection); }

  /// The last call for a connection: exactly one for each that connect() returned or on_connected() announced. The
  /// object dies when the call returns. Codes: kUnavailable (refused, unreachable, died, closed by the peer),
  /// kUnsupportedVersion, kMalformed (the peer broke the protocol, or says that we did), kOverloaded (the peer has too
  /// many connections), kTimeout (no handshake), or the status given to close() on this side.
  virtual void on_closed(Connection& connection, const Status& status) = 0;
};

/// One end of an open (or opening) connection.
///
/// Owned by its transport, which destroys it after on_closed(). Used on the transport's thread only. Messages may be
/// sent from the moment connect() returns: they wait for the handshake.
///
/// Invariants: (1) messages arrive in the order in which they were committed, each once, or the connection is closed;
/// (2) a one-sided write is in place before any message committed after it is delivered; (3) memory held for the
/// connection never exceeds a window of received frames, one reassembled message and the send queue.
class Connection {
 public:
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Room for one message of up to `size` bytes in the output, on a multiple of 8 bytes; null if it cannot be taken
  /// now, and refusal() says why. Between reserve() and commit() nothing else may be called on this connection.
  [[nodiscard]] virtual std::byte* reserve(size_t size) = 0;

  /// Ends the reserved message at `size` bytes, no more than were reserved. It leaves at the end of the poll round, or
  /// before if several frames are full. 0 takes the reservation back: there are no empty messages.
  virtual void commit(size_t size) = 0;

  /// Why reserve(size) gives null: kOverloaded (wait for on_writable()), kInvalidArgument (beyond max_message_bytes of
  /// either side, or empty), kUnavailable (closed).
  virtual Status refusal(size_t size) const = 0;

  /// reserve, copy, commit.
  Status send(Bytes message);

  /// Copies `bytes` to `offset` of the peer's region without its handler taking part; the peer sees them no later than
  /// it gets the messages committed after this call. A range outside the region is kInvalidArgument here; a region
  /// that the peer has withdrawn closes the connection with kMalformed. kOverloaded as for send().
  virtual Status write(const RemoteRegion& region, uint64_t offset, Bytes bytes) = 0;

  /// Takes `size` bytes of memory and lets the peer of this connection, and nobody else, write into them until
  /// withdraw_region(). Tell the peer `remote` in a message. Verbs put the memory within reach of the peer's device, as
  /// long as there is enough that is registered; elsewhere writes travel as frames. kOverloaded beyond kMaxRegions,
  /// kInvalidArgument for 0 bytes or more than kMaxRegionBytes.
  virtual Result<OfferedRegion> offer_region(size_t size) = 0;

  /// The memory is not the offerer's to read any more, and not the peer's to write. A write of the peer that is still
  /// on its way closes the connection: agree with the peer first. Closing withdraws all.
  virtual void withdraw_region(const RemoteRegion& region) = 0;

  /// No on_messages() until resume_receiving(): the peer is stopped by its credits. The frames of its window wait here.
  virtual void pause_receiving() = 0;
  virtual void resume_receiving() = 0;

  /// Gives what is committed to the network now, as far as credits and the network take it, without waiting for the
  /// end of the poll round.
  virtual void flush() = 0;

  /// Ends the connection: nothing more is delivered, on_closed(status) comes from the next poll(). What the network
  /// takes at once is still sent, with the status as the reason for the peer; the rest is dropped. Whoever needs to
  /// know what arrived waits for answers first.
  virtual void close(Status status) = 0;

  virtual bool is_open() const = 0;
  /// Bytes of messages accepted and not yet given to the network.
  virtual size_t queued_bytes() const = 0;
  /// The largest message that both sides take. Before the handshake: this side's limit.
  virtual size_t max_message_bytes() const = 0;
  /// Where the peer is, for messages to people.
  virtual const Address& peer() const = 0;

  /// For the handler: whatever it wants to find again. Not touched by the transport.
  void set_context(void* context) { context_ = context; }
  template <class T>
  T* context() const {
    return static_cast<T*>(context_);
  }

 protected:
  Connection() = default;

 private:
  void* context_ = nullptr;
};

/// A listening address. Owned by the transport that listens; lives until close() or the transport's end.
class Listener {
 public:
  virtual ~Listener() = default;
  /// With the port that was really taken.
  virtual const Address& address() const = 0;
  /// No new connections from now on; those that were accepted stay. The object is dead when the call returns.
  virtual void close() = 0;
};

/// Connections and listening addresses served by one thread.
///
/// Owner and life: made by whoever runs the thread (a network thread of a server, a thread of fibers), destroyed after
/// the last poll(); the destructor drops all connections without callbacks. Threads: everything is for the one thread
/// that polls, except wake() and counters(). Several threads serve one address by sharing a listener, see listen().
/// Allocates when connections open and when queues reach a new peak, not per message.
class Transport {
 public:
  /// One of the transports that share a listening address, with the handler of the connections it gets.
  struct Share {
    Transport* transport = nullptr;
    Handler* handler = nullptr;
  };

  virtual ~Transport() = default;

  /// Accepts connections for `handler` on this transport. Port 0 takes a free one: see Listener::address().
  /// kUnavailable: the port is in use (the message names it), kInvalidArgument: not an address of this host or scheme.
  Result<Listener*> listen(const Address& address, Handler& handler);

  /// The same, with the connections dealt out in turn to the given transports (this one may be among them). They are
  /// of the same kind as this one, run on threads of their own, and outlive the listener; all of a connection's
  /// callbacks come from the transport that got it. (Not SO_REUSEPORT: that deals by hash, unevenly for a few
  /// connections, and lets a second server take the same port in silence.)
  virtual Result<Listener*> listen(const Address& address, std::span<const Share> shares) = 0;

  /// Starts to connect and returns at once; on_connected() or on_closed() tells how it went. kInvalidArgument: the
  /// address is not of this transport's scheme; kUnavailable: its host name has no address (a name is looked up here
  /// and may block; numbers never do).
  virtual Result<Connection*> connect(const Address& address, Handler& handler) = 0;

  /// One round: gives what was sent since the last one to the network, waits up to `timeout_ns` for an event (0: not at
  /// all), handles all that is there, calls handlers, and flushes what they sent. Returns the number of events handled;
  /// 0 after a time-out, or a wake() without one.
  virtual size_t poll(uint64_t timeout_ns) = 0;

  /// Makes a poll() that waits, or the next one, return at once. Any thread. Cheap when the poller is not asleep.
  virtual void wake() = 0;

  virtual const TransportCounters& counters() const = 0;
  virtual const TransportOptions& options() const = 0;
};

/// A transport of the given kind for the calling thread: what processes of Loam make theirs with. In the simulator's
/// kind of this library "sim" only: a transport of the running process, on the network that is installed
/// (sim_transport.h). kInvalidArgument: a scheme that this build does not speak, or an option out of its range;
/// kUnavailable: the process is out of file descriptors.
Result<std::unique_ptr<Transport>> make_transport(Scheme scheme, const TransportOptions& options = {});

}  // namespace loam::net
