// Listening, accepting, lingering sockets and the poll round of the TCP transport. tcp_connection.cc has one
// connection, and common/net/link the protocol above the sockets.

#include "common/net/tcp/tcp_transport.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/net/tcp/tcp_transport_impl.h"

namespace loam::net {
namespace {

/// Largest number of connections that a listener accepts in one round.
constexpr int kMaxAccepts = 64;
/// Largest number of lingering sockets, which wait for the peer to close after a goodbye. Others are closed at once.
constexpr size_t kMaxLingering = 256;
/// Longest time for which a socket lingers.
constexpr uint64_t kLingerNs = 1'000'000'000;
/// Reads from a lingering socket in one round.
constexpr int kMaxDrains = 16;
/// Pause of the listeners when the process is out of file descriptors, and interval between checks of lingering
/// sockets.
constexpr uint64_t kReapIntervalNs = 10'000'000;

}  // namespace

// ---- TcpListener ----------------------------------------------------------------------------------------------------

void TcpListener::close() { transport_.remove(*this); }

void TcpTransport::remove(TcpListener& listener) {
  watch(listener.fd_.get(), EPOLL_CTL_DEL, 0, nullptr);
  // An event of this round that is not handled yet may point to the listener. It is redirected to a harmless source.
  for (epoll_event& event : events_) {
    if (event.data.ptr == static_cast<Source*>(&listener)) event.data.ptr = &wakeup_source_;
  }
  std::erase_if(listeners_, [&](const auto& owned) { return owned.get() == &listener; });
}

Result<Listener*> TcpTransport::listen(const Address& address, std::span<const AcceptTarget> targets) {
  LOAM_RETURN_IF_ERROR(check_listen(address, targets));
  LOAM_ASSIGN_OR_RETURN(const std::vector<SocketAddress> found, resolve(address));
  LOAM_ASSIGN_OR_RETURN(Fd fd, listen_on(found.front(), address));
  auto listener = std::make_unique<TcpListener>(*this, std::move(fd), targets);
  watch(listener->fd_.get(), EPOLL_CTL_ADD, EPOLLIN, listener.get());
  listeners_.push_back(std::move(listener));
  return static_cast<Listener*>(listeners_.back().get());
}

void TcpTransport::accept(TcpListener& listener) {
  for (int i = 0; i < kMaxAccepts; ++i) {
    Fd fd(::accept4(listener.fd_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) {
      dispatch(listener, std::move(fd));
      continue;
    }
    const int error = errno;
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      // epoll would report the waiting connection in every round. The listener pauses until descriptors may be free
      // again.
      watch(listener.fd_.get(), EPOLL_CTL_MOD, 0, &listener);
      listen_again_ns_ = now_ns() + kReapIntervalNs;
      counters_.connections_refused.add(1);
      log_warning("data.connections_wait",
                  "connections wait: " + error_text(error) +
                      "; raise the limit on open files (ulimit -n, or LimitNOFILE of a service)");
      return;
    }
    if (error == EAGAIN) return;
    // Any other error, such as ECONNABORTED, concerns one connection only.
  }
}

void TcpTransport::dispatch(TcpListener& listener, Fd fd) {
  const AcceptTarget& target = listener.round_robin_.next();
  auto& to = static_cast<TcpTransport&>(*target.transport);
  if (&to == this) {
    accept_connection(std::move(fd), *target.handler);
  } else {
    to.hand_off(std::move(fd), *target.handler);
  }
}

void TcpTransport::hand_off(Fd fd, Handler& handler) {
  {
    // The other transport's thread takes the socket in its next poll(), because all callbacks of a connection come from
    // that thread.
    const std::lock_guard lock(handoffs_mutex_);
    handoffs_.push_back({std::move(fd), &handler});
  }
  wake();
}

size_t TcpTransport::accept_handoffs() {
  std::vector<Handoff> handed;
  {
    const std::lock_guard lock(handoffs_mutex_);
    handed.swap(handoffs_);
  }
  for (Handoff& one : handed) accept_connection(std::move(one.fd), *one.handler);
  return handed.size();
}

void TcpTransport::accept_connection(Fd fd, Handler& handler) {
  SocketAddress peer;
  peer.size = sizeof(peer.storage);
  if (::getpeername(fd.get(), peer.get(), &peer.size) != 0) return;  // the peer has closed the connection
  if (full()) {
    counters_.connections_refused.add(1);
    // Tells the peer why. The send buffer of a new socket is empty, so it accepts the 64 bytes at once.
    Greeting greeting;
    greeting.protocol_version = options().protocol_version;
    greeting.kind = GreetingKind::kReject;
    greeting.code = static_cast<uint32_t>(StatusCode::kOverloaded);
    static_cast<void>(::send(fd.get(), &greeting, sizeof(greeting), MSG_NOSIGNAL));
    linger(std::move(fd));
    return;
  }
  auto connection = std::make_unique<TcpConnection>(*this, handler, peer.to_address(), false);
  connection->accepted(std::move(fd));
  adopt(std::move(connection));
}

Result<Connection*> TcpTransport::connect(const Address& address, Handler& handler) {
  LOAM_RETURN_IF_ERROR(check_connect(address));
  auto owned = std::make_unique<TcpConnection>(*this, handler, address, true);
  TcpConnection& connection = *owned;
  adopt(std::move(owned));
  if (auto found = resolve_number(address)) {
    connection.connect(std::move(*found));
  } else {
    connection.connect_by_name();
  }
  return static_cast<Connection*>(&connection);
}

void TcpTransport::linger(Fd fd) {
  // The kernel sends the bytes in the buffer and then the end of the stream. The socket stays open to read the bytes
  // that the peer still sends, see reap_lingering().
  ::shutdown(fd.get(), SHUT_WR);
  if (lingering_.size() < kMaxLingering) lingering_.emplace_back(std::move(fd), now_ns() + kLingerNs);
}

void TcpTransport::reap_lingering() {
  if (lingering_.empty() && listen_again_ns_ == 0) return;
  const uint64_t now = now_ns();
  if (now < next_reap_ns_) return;
  next_reap_ns_ = now + kReapIntervalNs;
  // To close a socket with unread bytes would reset the connection, and the peer could lose the last bytes of this
  // side.
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
  const auto poll_events = [this] { return epoll_wait(waiter_.epoll_fd(), events_.data(), kMaxEvents, 0); };
  const auto sleep = [this](uint64_t sleep_ns) {
    counters_.sleeps.add(1);
    return waiter_.sleep_on_epoll(events_.data(), kMaxEvents, sleep_ns);
  };
  return waiter_.wait(timeout_ns, options().spin_ns, poll_events, sleep);
}

size_t TcpTransport::poll(uint64_t timeout_ns) {
  counters_.polls.add(1);
  // Phase 1: send what the owner has committed since the last round, and report connections that have ended. After
  // such a report the round does not wait, so that the owner can react at once.
  size_t events = service_connections();
  bool woken = waiter_.consume_wake();
  if (woken || has_pending_service() || events > 0) timeout_ns = 0;
  // Phase 2: limit the wait by the next deadline of a handshake and by the checks of reap_lingering().
  timeout_ns = std::min(timeout_ns, check_handshakes());
  if (has_pending_service()) timeout_ns = 0;  // check_handshakes() has ended a connection, which is reported now
  if (!lingering_.empty() || listen_again_ns_ != 0) timeout_ns = std::min(timeout_ns, kReapIntervalNs);

  // Phase 3: wait, and handle the events. Connections are destroyed only in service_connections(), so the pointers in
  // events_ stay valid. remove() redirects the events of a listener.
  const int count = std::max(wait(timeout_ns), 0);
  if (timeout_ns > 0) woken |= waiter_.consume_wake();  // a wake-up that has ended this wait
  for (int i = 0; i < count; ++i) {
    auto* source = static_cast<Source*>(events_[static_cast<size_t>(i)].data.ptr);
    switch (source->kind) {
      case Source::Kind::kConnection:
        static_cast<TcpConnection*>(source)->on_event(events_[static_cast<size_t>(i)].events);
        ++events;
        break;
      case Source::Kind::kListener:
        accept(*static_cast<TcpListener*>(source));
        ++events;
        break;
      case Source::Kind::kWakeup:
        if (waiter_.drain_wakeup()) counters_.wakes.add(1);
        break;
    }
  }
  // Phase 4: take what other threads have left before they called wake().
  if (woken) events += accept_handoffs() + host_resolver_.poll();
  // Phase 5: send what the handlers have committed in this round.
  events += service_connections();
  reap_lingering();
  if (events == 0) counters_.empty_polls.add(1);
  return events;
}

Result<std::unique_ptr<Transport>> make_tcp_transport(const TransportOptions& options) {
  LOAM_RETURN_IF_ERROR(check_options(options));
  Fd epoll;
  Fd wakeup;
  LOAM_RETURN_IF_ERROR(EventWaiter::make_descriptors(epoll, wakeup));
  return std::unique_ptr<Transport>(std::make_unique<TcpTransport>(options, std::move(epoll), std::move(wakeup)));
}

}  // namespace loam::net
