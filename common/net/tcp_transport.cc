#include "common/net/tcp_transport.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include <sched.h>
#include <sys/eventfd.h>

#include "common/net/tcp_transport_impl.h"

namespace loam::net {
namespace {

/// Connections accepted in one round.
constexpr int kMaxAccepts = 64;
/// Sockets that were told goodbye and wait for the peer to close; beyond it they are closed at once.
constexpr size_t kMaxLingering = 256;
constexpr uint64_t kLingerNs = 1'000'000'000;
/// Reads that empty such a socket in one round.
constexpr int kMaxDrains = 16;
/// Pause of a listener when the process is out of file descriptors, and interval of looking at lingering sockets.
constexpr uint64_t kSweepNs = 10'000'000;

}  // namespace

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
    for (int i = 0; i < kMaxDrains; ++i) {
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
  // Of kForever there is no end.
  const uint64_t until = limit_ns == kForever ? kForever : now_ns() + limit_ns;
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
  if (wants_attention()) timeout_ns = 0;  // the end of a handshake that came to nothing is told now
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
