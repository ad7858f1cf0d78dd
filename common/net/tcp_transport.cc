#include "common/net/tcp_transport.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
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
  LOAM_RETURN_IF_ERROR(check_listen(address, shares));
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
    const int error = errno;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      // The waiting connection would be reported again and again: look away until descriptors are free again.
      watch(listener.fd_.get(), EPOLL_CTL_MOD, 0, &listener);
      listen_again_ns_ = now_ns() + kSweepNs;
      counters_.connections_refused.add(1);
      log_warning("connections wait: " + error_text(error) +
                  "; raise the limit on open files (ulimit -n, or LimitNOFILE of a service)");
      return;
    }
    if (error == EAGAIN) return;
    // Anything else is the fate of one connection (ECONNABORTED and the like).
  }
}

void TcpTransport::deal(TcpListener& listener, Fd fd) {
  const Share& share = listener.turns_.next();
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
    counters_.connections_refused.add(1);
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
  LOAM_RETURN_IF_ERROR(check_connect(address));
  auto owned = std::make_unique<TcpLink>(*this, handler, address, true);
  TcpLink& link = *owned;
  adopt(std::move(owned));
  if (auto found = resolve_number(address)) {
    link.connect(std::move(*found));
  } else {
    link.connect_by_name();
  }
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

int TcpTransport::wait(uint64_t timeout_ns) {
  const auto look = [this] { return epoll_wait(waiter_.epoll_fd(), events_.data(), kMaxEvents, 0); };
  const auto sleep = [this](uint64_t sleep_ns) {
    counters_.sleeps.add(1);
    return waiter_.sleep_on_epoll(events_.data(), kMaxEvents, sleep_ns);
  };
  return waiter_.wait(timeout_ns, options().spin_ns, look, sleep);
}

size_t TcpTransport::poll(uint64_t timeout_ns) {
  counters_.polls.add(1);
  size_t events = attend_links();
  bool woken = waiter_.take_wake();
  if (woken || wants_attention() || events > 0) timeout_ns = 0;
  timeout_ns = std::min(timeout_ns, check_handshakes());
  if (wants_attention()) timeout_ns = 0;  // the end of a handshake that came to nothing is told now
  if (!lingering_.empty() || listen_again_ns_ != 0) timeout_ns = std::min(timeout_ns, kSweepNs);

  const int count = std::max(wait(timeout_ns), 0);
  if (timeout_ns > 0) woken |= waiter_.take_wake();  // this poll has returned for it
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
      case Source::Kind::kBell:
        if (waiter_.drain_bell()) counters_.wakes.add(1);
        break;
    }
  }
  if (woken) events += take_handed() + lookups_.take();
  events += attend_links();
  sweep();
  if (events == 0) counters_.empty_polls.add(1);
  return events;
}

Result<std::unique_ptr<Transport>> make_tcp_transport(const TransportOptions& options) {
  LOAM_RETURN_IF_ERROR(check_options(options));
  Fd epoll;
  Fd bell;
  LOAM_RETURN_IF_ERROR(Waiter::make_descriptors(epoll, bell));
  return std::unique_ptr<Transport>(std::make_unique<TcpTransport>(options, std::move(epoll), std::move(bell)));
}

}  // namespace loam::net
