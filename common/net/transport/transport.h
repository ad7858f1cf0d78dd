// The interface of Loam's networks: ordered, reliable, batched messages between endpoints, and one-sided writes.
//
// Three networks implement it: TCP (tcp_transport.h), InfiniBand verbs (rdma_module.h) and the simulated network
// (sim_transport.h). One typed test suite tests all of them (transport_test.cc). frame.h and docs/wire-protocol.md
// describe the bytes on the wire.
//
// **Ownership of buffers**
//
//   | buffer                            | owner                                                                   |
//   | --------------------------------- | ----------------------------------------------------------------------- |
//   | argument of send(), write()       | the caller; the transport has copied it when the call returns           |
//   | pointer from reserve()            | the caller, until commit(), the next call on the connection, or poll()  |
//   | a committed message               | the transport                                                           |
//   | messages passed to on_messages()  | the transport; the handler may read them until the callback returns     |
//   | memory from offer_region()        | the transport; the peer's writes appear in it during poll() of the      |
//   |                                   | offering thread, with verbs at any time; the offering side may read it  |
//   |                                   | until withdraw_region(), or until on_closed() returns                   |
//
// **Flow control.** A *frame* is one network message of at most `max_frame_bytes`, which contains many logical
// messages. Each endpoint grants its peer `window_frames` credits. To send a frame takes one credit. The receiver
// gives the credit back when its handler has returned from the messages of the frame: with a frame of its own, or in
// a control frame when half of the window is due. So a receiver never holds more than window_frames * max_frame_bytes
// of a connection. Messages that cannot be sent yet wait at the sender, up to max_queued_bytes. Beyond that a send
// returns kOverloaded, and the transport calls on_writable() when half of the queue has drained. Verbs have credits
// of their own below these (rdma_device.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/base/bytes.h"
#include "common/base/status.h"
#include "common/net/transport/address.h"
#include "common/net/transport/transport_counters.h"

namespace loam::net {

class Connection;

/// Version of the framing. The handshake refuses a peer of another version with kUnsupportedVersion.
inline constexpr uint32_t kFramingVersion = 10;

/// Largest frame, with its header. 64 KiB is so large that the costs of the header and the system call are
/// negligible, and so small that the frame stays in the cache.
inline constexpr size_t kMaxFrameBytes = 64 * 1024;
/// Lowest value of TransportOptions::max_frame_bytes.
inline constexpr size_t kMinFrameBytes = 1024;
/// Credits granted to a peer. 16 frames in flight cover a round trip of 50 us at more than 10 GB/s.
inline constexpr uint32_t kWindowFrames = 16;
/// Largest logical message. The transport splits a message that is larger than a frame into fragments and reassembles
/// it at the receiver.
inline constexpr size_t kMaxMessageBytes = 16 * 1024 * 1024;
/// Largest amount of bytes of one connection that the sender has committed and the network has not accepted yet. An
/// empty queue accepts a message of any permitted size.
inline constexpr size_t kMaxQueuedBytes = 8 * 1024 * 1024;
/// Regions that one connection may offer at the same time.
inline constexpr size_t kMaxRegions = 1024;
/// Largest region.
inline constexpr size_t kMaxRegionBytes = 64 * 1024 * 1024;
/// Time after which the transport closes a connection without a handshake.
inline constexpr uint64_t kHandshakeTimeoutNs = 5'000'000'000;
/// Open connections of one transport. It refuses others with kOverloaded.
inline constexpr size_t kMaxConnections = 16 * 1024;
/// No time-out: poll(kForever) returns only after an event or wake().
inline constexpr uint64_t kForever = UINT64_MAX;

/// Options of a transport. The defaults are the limits above.
struct TransportOptions {
  size_t max_frame_bytes = kMaxFrameBytes;              ///< largest frame to receive, kMinFrameBytes to kMaxFrameBytes
  uint32_t window_frames = kWindowFrames;               ///< credits granted to each peer, 2 to 4096
  size_t max_message_bytes = kMaxMessageBytes;          ///< largest logical message to send or receive
  size_t max_queued_bytes = kMaxQueuedBytes;            ///< limit of the send queue of each connection
  size_t max_connections = kMaxConnections;             ///< limit of open connections
  uint64_t handshake_timeout_ns = kHandshakeTimeoutNs;  ///< limit of the time until the handshake is complete
  /// Time that poll() spins before it sleeps. A sleep with its wake-up adds about 40 us of latency, and the thread
  /// that wakes the sleeper spends about 5 us. Spinning uses a core, but yields it at each iteration to threads that
  /// are ready. It only helps while events arrive at shorter intervals than this; poll() learns whether they do.
  uint64_t spin_ns = 100'000;
  /// Time after which a peer that acknowledges nothing counts as dead. For TCP and verbs.
  uint64_t peer_timeout_ns = 15'000'000'000;
  /// The version that the handshake announces. Tests set another one to act as an old peer.
  uint32_t protocol_version = kFramingVersion;
};

/// Names a region of the peer's memory into which this endpoint may write (Connection::write()). The peer gets it
/// from offer_region() and sends it in a message of its own. It is valid on the connection on which it was offered
/// only.
struct RemoteRegion {
  uint64_t id = 0;    ///< never reused on its connection
  uint64_t size = 0;  ///< in bytes
};

/// A region that this endpoint offers to its peer.
struct OfferedRegion {
  RemoteRegion remote;  ///< the name of the region, to be sent to the peer
  Bytes memory;         ///< memory of the transport, in which the peer's writes appear; 8-byte aligned, uninitialized
};

/// Receives the events of connections. Their owner implements it.
///
/// All calls come from poll() of the connection's transport, on its thread, and never from inside another call of the
/// transport. A callback may call everything of the transport except poll() and the destructor. It must not throw,
/// and it should not block, because the thread also serves all other connections.
class Handler {
 public:
  virtual ~Handler() = default;

  /// The handshake is complete. Called on both sides; for an accepted connection this is the first call.
  virtual void on_connected(Connection& connection) { static_cast<void>(connection); }

  /// All logical messages of one frame have arrived, at least one, in the order in which they were sent. A server
  /// executes them as one batch. Each message begins at a multiple of 8 bytes. The transport owns the bytes, which
  /// are valid until the call returns.
  virtual void on_messages(Connection& connection, std::span<const Bytes> messages) = 0;

  /// Half of the send queue has drained after a send was refused with kOverloaded.
  virtual void on_writable(Connection& connection) { static_cast<void>(connection); }

  /// The connection has ended. This is the last call for a connection, and there is exactly one for each connection
  /// that connect() has returned or on_connected() has announced. The transport destroys the connection when the call
  /// returns.
  ///
  /// Codes: kUnavailable (refused, unreachable, died, or closed by the peer), kUnsupportedVersion, kMalformed (the
  /// peer violated the protocol, or reports that this side did), kOverloaded (the peer has too many connections),
  /// kTimeout (no handshake), or the status passed to close() on this side.
  virtual void on_closed(Connection& connection, const Status& status) = 0;
};

/// One end of a connection that is open or being opened.
///
/// Owner: its transport, which destroys it after on_closed(). Threads: the transport's. Messages may be sent as soon
/// as connect() returns; they wait for the handshake.
///
/// Invariants: (1) messages arrive in the order in which they were committed, each once, until the connection is
/// closed; (2) a one-sided write is in place before any message that is committed after it is delivered; (3) the
/// memory of a connection never exceeds a window of received frames, one reassembled message and the send queue.
class Connection {
 public:
  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Returns room in the output for one message of up to `size` bytes, at a multiple of 8 bytes. Null: there is no
  /// room now, and refusal() says why. Between reserve() and commit() the caller makes no other call on this
  /// connection.
  [[nodiscard]] virtual std::byte* reserve(size_t size) = 0;

  /// Sends the reserved message with its first `size` bytes, which are at most the reserved ones. The message leaves
  /// at the end of the poll round, or earlier if several frames are full. 0 cancels the reservation; there are no
  /// empty messages.
  virtual void commit(size_t size) = 0;

  /// The reason for which reserve(size) returns null: kOverloaded (wait for on_writable()), kInvalidArgument (0, or
  /// beyond max_message_bytes of either side) or kUnavailable (the connection is closed).
  virtual Status refusal(size_t size) const = 0;

  /// Sends a copy of `message`, by reserve() and commit(). Errors as refusal().
  Status send(Bytes message);

  /// Copies `bytes` to `offset` of a region of the peer, without a call of the peer's handler. The peer sees the
  /// bytes before it receives any message that is committed after this call. kInvalidArgument: the range is not
  /// inside the region. kOverloaded: as for send(). If the peer has withdrawn the region, it closes the connection
  /// with kMalformed.
  virtual Status write(const RemoteRegion& region, uint64_t offset, Bytes bytes) = 0;

  /// Allocates `size` bytes of memory, into which only the peer of this connection may write until withdraw_region().
  /// The caller sends `remote` to the peer in a message. With verbs, the peer's device writes into the memory
  /// directly, as long as enough registered memory is left; otherwise the writes travel as frames. kOverloaded:
  /// kMaxRegions are offered. kInvalidArgument: 0 bytes, or more than kMaxRegionBytes.
  virtual Result<OfferedRegion> offer_region(size_t size) = 0;

  /// Ends an offer and frees the memory; neither side uses it from now on. A write of the peer that is still in
  /// flight closes the connection, so the two sides must agree first. The end of a connection withdraws all its
  /// regions.
  virtual void withdraw_region(const RemoteRegion& region) = 0;

  /// Suspends on_messages() until resume_receiving(). The frames of the peer's window wait here; then the peer is out
  /// of credits.
  virtual void pause_receiving() = 0;
  /// Ends pause_receiving(). The waiting messages arrive in the next poll().
  virtual void resume_receiving() = 0;

  /// Passes committed messages to the network now, instead of at the end of the poll round, as far as credits and the
  /// network permit.
  virtual void flush() = 0;

  /// Closes the connection. Nothing more is delivered, and the next poll() calls on_closed(status). Output that
  /// flush() or a poll round has passed to the network is still sent, as far as the network accepts it at once,
  /// followed by the status as the reason for the peer. Other output is dropped, also messages that were committed
  /// after the last flush(). A caller that must know which requests arrived waits for their replies before it closes.
  virtual void close(Status status) = 0;

  /// Whether the handshake is complete and the connection has not ended.
  virtual bool is_open() const = 0;
  /// Bytes of committed messages that the network has not accepted yet.
  virtual size_t queued_bytes() const = 0;
  /// The largest message that both sides accept. Before the handshake: the limit of this side.
  virtual size_t max_message_bytes() const = 0;
  /// The address of the peer, for messages to people.
  virtual const Address& peer() const = 0;

  /// Attaches a pointer of the handler's own to the connection. The transport does not use it.
  void set_context(void* context) { context_ = context; }
  /// The pointer of set_context().
  template <class T>
  T* context() const {
    return static_cast<T*>(context_);
  }

 protected:
  Connection() = default;

 private:
  void* context_ = nullptr;
};

/// An address at which a transport listens for connections. Owner: the transport; it lives until close() or the end
/// of the transport. Threads: the transport's.
class Listener {
 public:
  virtual ~Listener() = default;
  /// The address with its real port, also if listen() was asked for port 0.
  virtual const Address& address() const = 0;
  /// Stops listening and destroys this object. Accepted connections stay.
  virtual void close() = 0;
};

/// The connections and listening addresses of one thread, and its event loop.
///
/// Owner: the thread that polls it, which is a network thread of a server or a thread of fibers. The owner destroys
/// it after the last poll(); the destructor drops all connections without callbacks. Threads: the owner's, except for
/// wake() and counters(). Several threads serve one address by sharing a listener, see listen(). The transport
/// allocates when a connection opens and when a queue reaches a new peak, not for each message.
class Transport {
 public:
  /// One of the transports that share a listening address, with the handler of its connections.
  struct AcceptTarget {
    Transport* transport = nullptr;
    Handler* handler = nullptr;
  };

  virtual ~Transport() = default;

  /// Listens at `address` and accepts connections for `handler` on this transport. Port 0 chooses a free port, which
  /// Listener::address() tells. kUnavailable: the port is in use; the message names it. kInvalidArgument: the address
  /// does not belong to this host or scheme.
  Result<Listener*> listen(const Address& address, Handler& handler);

  /// Listens at `address` and distributes the connections to the given transports in turn; this transport may be one
  /// of them. The others are of the same kind, run on threads of their own, and outlive the listener. All callbacks
  /// of a connection come from the transport that received it. Errors as above.
  ///
  /// SO_REUSEPORT would not do: it distributes by a hash, which is uneven for few connections, and lets a second
  /// server use the same port without an error.
  virtual Result<Listener*> listen(const Address& address, std::span<const AcceptTarget> targets) = 0;

  /// Starts to connect and returns at once; on_connected() or on_closed() reports the result. A host name is looked
  /// up on another thread, so the call never blocks. kInvalidArgument: the address has another scheme, or no port.
  /// kOverloaded: the transport has max_connections already.
  virtual Result<Connection*> connect(const Address& address, Handler& handler) = 0;

  /// Runs one round: passes the messages sent since the last round to the network, waits up to `timeout_ns` for an
  /// event (0: does not wait), handles all present events, calls handlers, and flushes the messages that they send.
  /// Returns the number of handled events, which is 0 after a time-out or a wake() without an event.
  virtual size_t poll(uint64_t timeout_ns) = 0;

  /// Makes the poll() that is waiting, or the next one, return at once. Any thread. Cheap if the polling thread does
  /// not sleep.
  virtual void wake() = 0;

  /// The time of the last look for events that found none, while the running or the last poll() spun; 0 if it has not
  /// spun, or has slept since. If it is long ago when an event comes, something else ran on the core of the polling
  /// thread. The polling thread; the reference is valid as long as the transport.
  virtual const uint64_t& last_look_ns() const = 0;
  /// Numbers since the start of the transport. Any thread.
  virtual const TransportCounters& counters() const = 0;
  /// The options with which the transport was made.
  virtual const TransportOptions& options() const = 0;
};

}  // namespace loam::net
