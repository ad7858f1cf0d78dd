#include "common/net/tcp_transport.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/net/tcp_socket.h"
#include "common/net/transport_base.h"

namespace loam::net {
namespace {

class TcpTransport;

/// Readiness events taken from the kernel at once.
constexpr int kMaxEvents = 256;
/// Frames given to the kernel in one call.
constexpr size_t kMaxPieces = 64;
/// Reads from one socket in one round, so that one busy peer does not keep the others waiting.
constexpr int kMaxReads = 4;
/// Connections accepted in one round.
constexpr int kMaxAccepts = 64;
/// Sockets that were told goodbye and wait for the peer to close; beyond it they are closed at once.
constexpr size_t kMaxLingering = 256;
constexpr uint64_t kLingerNs = 1'000'000'000;
/// Pause of a listener when the process is out of file descriptors, and interval of looking at lingering sockets.
constexpr uint64_t kSweepNs = 10'000'000;

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

  /// Tries the addresses one after the other, from the back.
  void connect(std::vector<SocketAddress> candidates);
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
  bool blocked_ = false;  // the socket takes no more
  std::vector<SocketAddress> candidates_;
};

class TcpListener final : public Listener, public Source {
 public:
  TcpListener(TcpTransport& transport, Fd fd, std::span<const Transport::Share> shares)
      : Source(Kind::kListener),
        transport_(transport),
        fd_(std::move(fd)),
        address_(local_address(fd_.get()).to_address()),
        shares_(shares.begin(), shares.end()) {}

  const Address& address() const override { return address_; }
  void close() override;

 private:
  friend class TcpTransport;

  TcpTransport& transport_;
  Fd fd_;
  const Address address_;
  const std::vector<Transport::Share> shares_;
  size_t next_share_ = 0;
};

class TcpTransport final : public TransportBase {
 public:
  TcpTransport(const TransportOptions& options, Fd epoll, Fd bell)
      : TransportBase(options), epoll_(std::move(epoll)), bell_(std::move(bell)) {
    watch(bell_.get(), EPOLL_CTL_ADD, EPOLLIN, &bell_source_);
  }
  ~TcpTransport() override { drop_links(); }

  Result<Listener*> listen(const Address& address, std::span<const Share> shares) override;
  Result<Connection*> connect(const Address& address, Handler& handler) override;
  size_t poll(uint64_t timeout_ns) override;
  void wake() override;

  using TransportBase::counters_;
  uint64_t now_ns() const override { return RealEnv::now_ns(); }

  void watch(int fd, int operation, uint32_t events, Source* source) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = source;
    const int result = epoll_ctl(epoll_.get(), operation, fd, &event);
    LOAM_CHECK(result == 0 || operation == EPOLL_CTL_DEL || errno == ENOSPC || errno == ENOMEM, "epoll_ctl");
  }
  /// Keeps a socket whose last bytes are on their way until the peer has read them.
  void linger(Fd fd);
  void remove(TcpListener& listener);

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
  int spin(uint64_t timeout_ns);
  int sleep(uint64_t timeout_ns);
  void sweep();

  const Fd epoll_;
  const Fd bell_;
  Source bell_source_{Source::Kind::kBell};
  std::array<epoll_event, kMaxEvents> events_{};
  std::vector<std::unique_ptr<TcpListener>> listeners_;
  std::vector<std::pair<Fd, uint64_t>> lingering_;  // socket, when it is closed at the latest
  uint64_t next_sweep_ns_ = 0;
  uint64_t listen_again_ns_ = 0;  // out of descriptors until then
  // Whether spinning has found events lately: 0 never, kSpinScoreMost always.
  static constexpr int kSpinScoreMost = 16;
  int spin_score_ = kSpinScoreMost / 2;
  unsigned idle_rounds_ = 0;

  // Other threads set wake_pending_, and ring the bell if they see asleep_. The poller sets asleep_ and then looks at
  // wake_pending_. Both are seq_cst: in one order of all four accesses one of the two sees the other's store.
  std::atomic<bool> wake_pending_{false};
  std::atomic<bool> asleep_{false};

  std::mutex handed_mutex_;
  std::vector<Handed> handed_;  // guarded by handed_mutex_
};

// ---- TcpLink --------------------------------------------------------------------------------------------------------

TcpLink::TcpLink(TcpTransport& transport, Handler& handler, Address peer, bool announced)
    : Link(transport, handler, std::move(peer), announced), Source(Kind::kLink), transport_(transport) {}

TcpLink::~TcpLink() {
  if (fd_ && watched_ != 0) transport_.watch(fd_.get(), EPOLL_CTL_DEL, 0, nullptr);
  if (fd_ && state() == State::kEnded) transport_.linger(std::move(fd_));
}

void TcpLink::watch(uint32_t events) {
  if (events == watched_) return;
  transport_.watch(fd_.get(), watched_ == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, events, this);
  watched_ = events;
}

void TcpLink::connect(std::vector<SocketAddress> candidates) {
  candidates_ = std::move(candidates);
  try_next(0);
}

void TcpLink::try_next(int last_error) {
  while (!candidates_.empty()) {
    const SocketAddress where = candidates_.back();
    candidates_.pop_back();
    if (fd_) transport_.watch(fd_.get(), EPOLL_CTL_DEL, 0, nullptr);
    watched_ = 0;
    fd_.reset(::socket(where.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd_) tune_socket(fd_.get(), host().options().peer_timeout_ns);
    if (fd_ && (::connect(fd_.get(), where.get(), where.size) == 0 || errno == EINPROGRESS)) {
      watch(EPOLLOUT);
      return;
    }
    last_error = errno;
  }
  transport_.counters_.refused.add(1);
  std::string message = "cannot connect to " + peer().to_string() + ": " + error_text(last_error);
  if (last_error == ECONNREFUSED) message += "; does the server run, and listen there?";
  fail({StatusCode::kUnavailable, std::move(message)});
}

void TcpLink::finish_connect() {
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) {
    try_next(error);
    return;
  }
  candidates_.clear();
  watch(EPOLLIN);
  start(true);
}

void TcpLink::accepted(Fd fd) {
  fd_ = std::move(fd);
  tune_socket(fd_.get(), host().options().peer_timeout_ns);
  watch(EPOLLIN);
  start(false);
}

void TcpLink::on_event(uint32_t events) {
  if (state() == State::kEnded) return;
  if (state() == State::kOpening) {
    finish_connect();
    return;
  }
  if ((events & EPOLLOUT) != 0) {
    blocked_ = false;
    watch(EPOLLIN);
    transmit();
  }
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) read();
}

void TcpLink::read() {
  for (int turn = 0; turn < kMaxReads && state() != State::kEnded; ++turn) {
    const MutableBytes space = input_space();
    const ssize_t size = ::recv(fd_.get(), space.data(), space.size(), 0);
    if (size > 0) {
      received(static_cast<size_t>(size));
      // Less than there was room for: nothing is left. A greeting is read to its end first.
      if (static_cast<size_t>(size) < space.size()) return;
      continue;
    }
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size == 0) {
      fail({StatusCode::kUnavailable, "the peer " + peer().to_string() + " closed the connection without a goodbye"});
    } else {
      fail({StatusCode::kUnavailable, "the connection to " + peer().to_string() + " broke: " + error_text(errno)});
    }
  }
}

void TcpLink::transmit() {
  std::array<iovec, kMaxPieces> pieces;
  while (!blocked_) {
    const size_t count = gather(pieces.data(), pieces.size());
    if (count == 0) return;
    size_t offered = 0;
    for (size_t i = 0; i < count; ++i) offered += pieces[i].iov_len;
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t size = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    transport_.counters_.flushes.add(1);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno != EAGAIN) {
      // What the peer sent before, and why it closed, may still be read: let read() find the end.
      blocked_ = true;
      return;
    }
    if (size > 0) sent(static_cast<size_t>(size));
    if (size < 0 || static_cast<size_t>(size) < offered) {
      blocked_ = true;
      if (state() != State::kEnded) watch(EPOLLIN | EPOLLOUT);
    }
  }
}

// ---- TcpListener ----------------------------------------------------------------------------------------------------

void TcpListener::close() { transport_.remove(*this); }

void TcpTransport::remove(TcpListener& listener) {
  watch(listener.fd_.get(), EPOLL_CTL_DEL, 0, nullptr);
  // An event of this round may still point to it: events_ is searched for it.
  for (epoll_event& event : events_) {
    if (event.data.ptr == static_cast<Source*>(&listener)) event.data.ptr = &bell_source_;
  }
  std::erase_if(listeners_, [&](const auto& owned) { return owned.get() == &listener; });
}

Result<Listener*> TcpTransport::listen(const Address& address, std::span<const Share> shares) {
  if (address.scheme != Scheme::kTcp) {
    return Status(StatusCode::kInvalidArgument, address.to_string() + " is no address of the tcp transport");
  }
  for (const Share& share : shares) {
    if (share.handler == nullptr || dynamic_cast<TcpTransport*>(share.transport) == nullptr) {
      return Status(StatusCode::kInvalidArgument, "a listening address is shared by tcp transports with handlers only");
    }
  }
  LOAM_ASSIGN_OR_RETURN(const std::vector<SocketAddress> found, resolve(address));
  LOAM_ASSIGN_OR_RETURN(Fd fd, listen_on(found.front(), address));
  auto listener = std::make_unique<TcpListener>(*this, std::move(fd), shares);
  watch(listener->fd_.get(), EPOLL_CTL_ADD, EPOLLIN, listener.get());
  listeners_.push_back(std::move(listener));
  return static_cast<Listener*>(listeners_.back().get());
}

void TcpTransport::accept(TcpListener& listener) {
  for (int i = 0; i < kMaxAccepts; ++i) {
    Fd fd(::accept4(listener.fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      deal(listener, std::move(fd));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The waiting connection would be reported again and again: look away until descriptors are free again.
      watch(listener.fd_.get(), EPOLL_CTL_MOD, 0, &listener);
      listen_again_ns_ = now_ns() + kSweepNs;
      counters_.refused.add(1);
      return;
    }
    if (errno == EAGAIN) return;
    // Anything else is the fate of one connection (ECONNABORTED and the like).
  }
}

void TcpTransport::deal(TcpListener& listener, Fd fd) {
  const Share share = listener.shares_[listener.next_share_];
  listener.next_share_ = (listener.next_share_ + 1) % listener.shares_.size();
  auto& to = static_cast<TcpTransport&>(*share.transport);
  if (&to == this) {
    take(std::move(fd), *share.handler);
  } else {
    to.hand(std::move(fd), *share.handler);
  }
}

void TcpTransport::hand(Fd fd, Handler& handler) {
  {
    const std::lock_guard lock(handed_mutex_);
    handed_.push_back({std::move(fd), &handler});
  }
  wake();
}

size_t TcpTransport::take_handed() {
  std::vector<Handed> handed;
  {
    const std::lock_guard lock(handed_mutex_);
    handed.swap(handed_);
  }
  for (Handed& one : handed) take(std::move(one.fd), *one.handler);
  return handed.size();
}

void TcpTransport::take(Fd fd, Handler& handler) {
  SocketAddress peer;
  peer.size = sizeof(peer.storage);
  if (::getpeername(fd.get(), peer.get(), &peer.size) != 0) return;  // gone already
  if (full()) {
    counters_.refused.add(1);
    Greeting greeting;
    greeting.protocol_version = options().protocol_version;
    greeting.kind = GreetingKind::kReject;
    greeting.code = static_cast<uint32_t>(StatusCode::kOverloaded);
    static_cast<void>(::send(fd.get(), &greeting, sizeof(greeting), MSG_NOSIGNAL));
    linger(std::move(fd));
    return;
  }
  auto link = std::make_unique<TcpLink>(*this, handler, peer.to_address(), false);
  link->accepted(std::move(fd));
  adopt(std::move(link));
}

Result<Connection*> TcpTransport::connect(const Address& address, Handler& handler) {
  if (address.scheme != Scheme::kTcp) {
    return Status(StatusCode::kInvalidArgument, address.to_string() + " is no address of the tcp transport");
  }
  if (address.port == 0) {
    return Status(StatusCode::kInvalidArgument, address.to_string() + " has no port to connect to");
  }
  if (full()) {
    return Status(StatusCode::kOverloaded,
                  "the transport has its maximum of " + std::to_string(options().max_connections) + " connections");
  }
  LOAM_ASSIGN_OR_RETURN(std::vector<SocketAddress> found, resolve(address));
  std::reverse(found.begin(), found.end());
  auto owned = std::make_unique<TcpLink>(*this, handler, address, true);
  TcpLink& link = *owned;
  adopt(std::move(owned));
  link.connect(std::move(found));
  return static_cast<Connection*>(&link);
}

void TcpTransport::linger(Fd fd) {
  ::shutdown(fd.get(), SHUT_WR);
  if (lingering_.size() < kMaxLingering) lingering_.emplace_back(std::move(fd), now_ns() + kLingerNs);
}

void TcpTransport::sweep() {
  if (lingering_.empty() && listen_again_ns_ == 0) return;
  const uint64_t now = now_ns();
  if (now < next_sweep_ns_) return;
  next_sweep_ns_ = now + kSweepNs;
  // Closing a socket with unread bytes resets the connection and may destroy what was sent last.
  std::erase_if(lingering_, [now](const auto& one) {
    std::array<std::byte, 4096> rest;
    ssize_t size = 0;
    for (int i = 0; i < kMaxReads * 4; ++i) {
      size = ::recv(one.first.get(), rest.data(), rest.size(), MSG_DONTWAIT);
      if (size <= 0) break;
    }
    return size == 0 || (size < 0 && errno != EAGAIN) || now >= one.second;
  });
  if (listen_again_ns_ != 0 && now >= listen_again_ns_) {
    listen_again_ns_ = 0;
    for (const auto& listener : listeners_) watch(listener->fd_.get(), EPOLL_CTL_MOD, EPOLLIN, listener.get());
  }
}

// ---- polling --------------------------------------------------------------------------------------------------------

void TcpTransport::wake() {
  // seq_cst twice: see asleep_. The exchange also releases what the caller did before to the poller's exchange.
  if (wake_pending_.exchange(true, std::memory_order_seq_cst)) return;
  if (!asleep_.load(std::memory_order_seq_cst)) return;
  const uint64_t one = 1;
  // Fails only when the counter is at its end, and then the poller is awake anyway.
  static_cast<void>(!::write(bell_.get(), &one, sizeof(one)));
}

int TcpTransport::spin(uint64_t timeout_ns) {
  const uint64_t limit_ns = std::min(timeout_ns, options().spin_ns);
  // Also tried now and then when it has not paid lately.
  const bool worthwhile = limit_ns == timeout_ns || spin_score_ > 0 || ++idle_rounds_ % 64 == 0;
  if (limit_ns == 0 || !worthwhile) return 0;
  const uint64_t until = now_ns() + limit_ns;
  do {
    sched_yield();  // the peer may wait for this very core
    // relaxed: only ends the spinning; poll() looks again.
    if (wake_pending_.load(std::memory_order_relaxed)) return 0;
    const int count = epoll_wait(epoll_.get(), events_.data(), kMaxEvents, 0);
    if (count != 0) {
      spin_score_ = std::min(spin_score_ + 2, kSpinScoreMost);
      return count;
    }
  } while (now_ns() < until);
  spin_score_ = std::max(spin_score_ - 1, 0);
  return 0;
}

int TcpTransport::sleep(uint64_t timeout_ns) {
  int count = 0;
  asleep_.store(true, std::memory_order_seq_cst);        // see asleep_
  if (!wake_pending_.load(std::memory_order_seq_cst)) {  // see asleep_
    counters_.sleeps.add(1);
    timespec timeout{};
    timeout.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000);
    timeout.tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000);
    count =
        epoll_pwait2(epoll_.get(), events_.data(), kMaxEvents, timeout_ns == kForever ? nullptr : &timeout, nullptr);
  }
  asleep_.store(false, std::memory_order_relaxed);  // relaxed: a waker that sees it late rings once for nothing
  return count;
}

int TcpTransport::wait(uint64_t timeout_ns) {
  int count = epoll_wait(epoll_.get(), events_.data(), kMaxEvents, 0);
  if (count != 0 || timeout_ns == 0) return count;
  const uint64_t from = now_ns();
  count = spin(timeout_ns);
  if (count != 0 || wake_pending_.load(std::memory_order_relaxed)) return count;  // relaxed: sleep() looks again
  if (timeout_ns != kForever) {
    const uint64_t spent = now_ns() - from;
    if (spent >= timeout_ns) return 0;
    timeout_ns -= spent;
  }
  return sleep(timeout_ns);
}

size_t TcpTransport::poll(uint64_t timeout_ns) {
  counters_.polls.add(1);
  size_t events = attend_links();
  // acquire (by seq_cst) pairs with wake(): what the waker did before is seen below.
  if (wake_pending_.exchange(false, std::memory_order_seq_cst) || wants_attention() || events > 0) timeout_ns = 0;
  timeout_ns = std::min(timeout_ns, check_handshakes());
  if (!lingering_.empty() || listen_again_ns_ != 0) timeout_ns = std::min(timeout_ns, kSweepNs);

  const int count = std::max(wait(timeout_ns), 0);
  if (timeout_ns > 0) wake_pending_.exchange(false, std::memory_order_seq_cst);  // this poll has returned for it
  for (int i = 0; i < count; ++i) {
    auto* source = static_cast<Source*>(events_[static_cast<size_t>(i)].data.ptr);
    switch (source->kind) {
      case Source::Kind::kLink:
        static_cast<TcpLink*>(source)->on_event(events_[static_cast<size_t>(i)].events);
        ++events;
        break;
      case Source::Kind::kListener:
        accept(*static_cast<TcpListener*>(source));
        ++events;
        break;
      case Source::Kind::kBell: {
        uint64_t rings = 0;
        if (::read(bell_.get(), &rings, sizeof(rings)) > 0) counters_.wakes.add(1);
        break;
      }
    }
  }
  events += take_handed();
  events += attend_links();
  sweep();
  if (events == 0) counters_.empty_polls.add(1);
  return events;
}

}  // namespace

Result<std::unique_ptr<Transport>> make_tcp_transport(const TransportOptions& options) {
  LOAM_RETURN_IF_ERROR(check_options(options));
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  Fd bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll || !bell) {
    return Status(StatusCode::kUnavailable,
                  "no file descriptors for a tcp transport: " + error_text(errno) + "; raise the limit (ulimit -n)");
  }
  return std::unique_ptr<Transport>(std::make_unique<TcpTransport>(options, std::move(epoll), std::move(bell)));
}

}  // namespace loam::net
