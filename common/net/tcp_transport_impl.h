// The tcp transport's classes. Internal: tcp_transport.cc (polling, listening), tcp_link.cc (one connection).
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <sys/epoll.h>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/net/name_lookup.h"
#include "common/net/tcp_socket.h"
#include "common/net/transport_base.h"
#include "common/net/waiter.h"

namespace loam::net {

class TcpTransport;

/// Readiness events taken from the kernel at once.
inline constexpr int kMaxEvents = 256;

/// What an epoll event points to.
struct Source {
  enum class Kind : uint8_t { kLink, kListener, kBell };
  explicit Source(Kind of) : kind(of) {}
  const Kind kind;
};

class TcpLink final : public Link, public Source {
 public:
  TcpLink(TcpTransport& transport, Handler& handler, Address peer, bool announced);
  ~TcpLink() override;

  /// Tries the addresses one after the other.
  void connect(std::vector<SocketAddress> candidates);
  /// Connects when the name has been looked up.
  void connect_by_name();
  void accepted(Fd fd);
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
  bool blocked_ = false;                   // the socket takes no more
  std::vector<SocketAddress> candidates_;  // the next one last
  uint64_t lookup_ = 0;                    // of its name, under way
};

class TcpListener final : public Listener, public Source {
 public:
  TcpListener(TcpTransport& transport, Fd fd, std::span<const Transport::Share> shares)
      : Source(Kind::kListener),
        transport_(transport),
        fd_(std::move(fd)),
        address_(local_address(fd_.get()).to_address()),
        turns_(shares) {}

  const Address& address() const override { return address_; }
  void close() override;

 private:
  friend class TcpTransport;

  TcpTransport& transport_;
  Fd fd_;
  const Address address_;
  Turns turns_;
};

class TcpTransport final : public TransportBase {
 public:
  TcpTransport(const TransportOptions& options, Fd epoll, Fd bell)
      : TransportBase(Scheme::kTcp, options), waiter_(std::move(epoll), std::move(bell), 1) {
    watch(waiter_.bell_fd(), EPOLL_CTL_ADD, EPOLLIN, &bell_source_);
  }
  ~TcpTransport() override { drop_links(); }

  Result<Listener*> listen(const Address& address, std::span<const Share> shares) override;
  Result<Connection*> connect(const Address& address, Handler& handler) override;
  size_t poll(uint64_t timeout_ns) override;
  void wake() override { waiter_.wake(); }

  using TransportBase::counters_;
  uint64_t now_ns() const override { return RealEnv::now_ns(); }

  void watch(int fd, int operation, uint32_t events, Source* source) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = source;
    const int result = epoll_ctl(waiter_.epoll_fd(), operation, fd, &event);
    // Without memory in the system the socket is not watched, and its requests time out. All other errors are about the
    // arguments, which come from this transport alone.
    LOAM_CHECK(result == 0 || operation == EPOLL_CTL_DEL || errno == ENOSPC || errno == ENOMEM, "epoll_ctl");
  }
  /// Keeps a socket whose last bytes are on their way until the peer has read them.
  void linger(Fd fd);
  void remove(TcpListener& listener);
  NameLookups& lookups() { return lookups_; }

 private:
  /// A connection that another transport has accepted for this one.
  struct Handed {
    Fd fd;
    Handler* handler;
  };

  void accept(TcpListener& listener);
  void deal(TcpListener& listener, Fd fd);
  void hand(Fd fd, Handler& handler);
  void take(Fd fd, Handler& handler);
  size_t take_handed();
  int wait(uint64_t timeout_ns);
  void sweep();

  Waiter waiter_;
  NameLookups lookups_{[this] { wake(); }};
  Source bell_source_{Source::Kind::kBell};
  std::array<epoll_event, kMaxEvents> events_{};
  std::vector<std::unique_ptr<TcpListener>> listeners_;
  std::vector<std::pair<Fd, uint64_t>> lingering_;  // socket, when it is closed at the latest
  uint64_t next_sweep_ns_ = 0;
  uint64_t listen_again_ns_ = 0;  // out of descriptors until then

  std::mutex handed_mutex_;
  std::vector<Handed> handed_;  // guarded by handed_mutex_
};

}  // namespace loam::net
