// The classes of the TCP transport. Internal. tcp_transport.cc has polling and listening, tcp_connection.cc one
// connection.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <sys/epoll.h>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/net/link/transport_base.h"
#include "common/net/tcp/event_waiter.h"
#include "common/net/tcp/host_resolver.h"
#include "common/net/tcp/tcp_socket.h"

namespace loam::net {

class TcpTransport;

/// Largest number of readiness events that the kernel returns at once.
inline constexpr int kMaxEvents = 256;

/// The object to which an epoll event points.
struct Source {
  enum class Kind : uint8_t { kConnection, kListener, kWakeup };
  explicit Source(Kind of) : kind(of) {}
  const Kind kind;
};

/// One connection over a TCP socket.
class TcpConnection final : public ConnectionBase, public Source {
 public:
  TcpConnection(TcpTransport& transport, Handler& handler, Address peer, bool announced);
  ~TcpConnection() override;

  /// Connects to the first of the addresses that accepts, one after the other.
  void connect(std::vector<SocketAddress> candidates);
  /// Looks up the name of the peer and then connects.
  void connect_by_name();
  /// Starts the handshake over an accepted socket.
  void accepted(Fd fd);
  /// Handles readiness of the socket.
  void on_event(uint32_t events);

 private:
  void try_next(int last_error);
  void finish_connect();
  void read();
  void transmit() override;
  void watch(uint32_t events);

  TcpTransport& transport_;
  Fd fd_;
  uint32_t watched_ = 0;
  bool blocked_ = false;                   // the buffer of the socket is full
  std::vector<SocketAddress> candidates_;  // addresses to try, the next one last
  uint64_t lookup_ = 0;                    // number of the lookup of the peer's name
};

/// A listening socket, with the targets of its connections.
class TcpListener final : public Listener, public Source {
 public:
  TcpListener(TcpTransport& transport, Fd fd, std::span<const Transport::AcceptTarget> targets)
      : Source(Kind::kListener),
        transport_(transport),
        fd_(std::move(fd)),
        address_(local_address(fd_.get()).to_address()),
        round_robin_(targets) {}

  const Address& address() const override { return address_; }
  void close() override;

 private:
  friend class TcpTransport;

  TcpTransport& transport_;
  Fd fd_;
  const Address address_;
  RoundRobin round_robin_;
};

/// The transport over TCP sockets and epoll.
class TcpTransport final : public TransportBase {
 public:
  TcpTransport(const TransportOptions& options, Fd epoll, Fd wakeup)
      : TransportBase(Scheme::kTcp, options), waiter_(std::move(epoll), std::move(wakeup), 1) {
    watch(waiter_.wakeup_fd(), EPOLL_CTL_ADD, EPOLLIN, &wakeup_source_);
  }
  ~TcpTransport() override { drop_connections(); }

  Result<Listener*> listen(const Address& address, std::span<const AcceptTarget> targets) override;
  Result<Connection*> connect(const Address& address, Handler& handler) override;
  size_t poll(uint64_t timeout_ns) override;
  void wake() override { waiter_.wake(); }
  const uint64_t& last_look_ns() const override { return waiter_.last_look_ns(); }

  using TransportBase::counters_;
  uint64_t now_ns() const override { return RealEnv::now_ns(); }

  /// Calls epoll_ctl() for a socket of the transport.
  void watch(int fd, int operation, uint32_t events, Source* source) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = source;
    const int result = epoll_ctl(waiter_.epoll_fd(), operation, fd, &event);
    // If the system is out of memory, the socket is not watched, and its requests time out. All other errors concern
    // the arguments, which come from this transport only.
    LOAM_CHECK(result == 0 || operation == EPOLL_CTL_DEL || errno == ENOSPC || errno == ENOMEM, "epoll_ctl");
  }
  /// Keeps a socket open after its connection has ended, until the peer has read the last bytes.
  void linger(Fd fd);
  void remove(TcpListener& listener);
  HostResolver& host_resolver() { return host_resolver_; }

 private:
  /// A connection that another transport has accepted for this one.
  struct Handoff {
    Fd fd;
    Handler* handler;
  };

  void accept(TcpListener& listener);
  void dispatch(TcpListener& listener, Fd fd);
  void hand_off(Fd fd, Handler& handler);
  void accept_connection(Fd fd, Handler& handler);
  size_t accept_handoffs();
  int wait(uint64_t timeout_ns);
  void reap_lingering();

  EventWaiter waiter_;
  HostResolver host_resolver_{[this] { wake(); }};
  Source wakeup_source_{Source::Kind::kWakeup};
  std::array<epoll_event, kMaxEvents> events_{};
  std::vector<std::unique_ptr<TcpListener>> listeners_;
  std::vector<std::pair<Fd, uint64_t>> lingering_;  // socket, and the time at which it is closed at the latest
  uint64_t next_reap_ns_ = 0;
  uint64_t listen_again_ns_ = 0;  // end of the pause of all listeners because of missing descriptors; 0: no pause

  std::mutex handoffs_mutex_;
  std::vector<Handoff> handoffs_;  // guarded by handoffs_mutex_
};

}  // namespace loam::net
