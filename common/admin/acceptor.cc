#include "common/admin/acceptor.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"

namespace loam {
namespace {

/// Connections that the kernel keeps for accept().
constexpr int kBacklog = 128;

Status cannot_listen(const std::string& address, const std::string& why) {
  return {StatusCode::kUnavailable, "cannot listen on " + address + " for administration: " + why +
                                        ": the port is in use, or the address is not one of this host; choose another "
                                        "one"};
}

int port_of(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return 0;
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

/// A listening socket at one of the addresses; -1 and errno if there is none.
int listen_at(const addrinfo& where) {
  const int fd = ::socket(where.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  // Only lets a restarted server take its port while old connections linger; two listeners still collide.
  static_cast<void>(::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
  // Accepted sockets inherit the option. gRPC sets it on the sockets that it opens itself, not on those that it is
  // given.
  static_cast<void>(::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
  if (::bind(fd, where.ai_addr, where.ai_addrlen) == 0 && ::listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

}  // namespace

Result<int> Acceptor::listen(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return cannot_listen(address, "it is not written host:port");
  std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return cannot_listen(address, ::gai_strerror(error));
  for (const addrinfo* one = found; one != nullptr && listener_ < 0; one = one->ai_next) listener_ = listen_at(*one);
  const std::string why = std::strerror(errno);
  ::freeaddrinfo(found);
  if (listener_ < 0) return cannot_listen(address, why);
  end_ = ::eventfd(0, EFD_CLOEXEC);
  if (end_ < 0) return cannot_listen(address, std::strerror(errno));
  return port_of(listener_);
}

void Acceptor::start(Receiver receiver) {
  receiver_ = std::move(receiver);
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "loam-admin");
}

void Acceptor::stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    static_cast<void>(::write(end_, &one, sizeof(one)));
    thread_.join();
  }
  if (listener_ >= 0) ::close(std::exchange(listener_, -1));
  if (end_ >= 0) ::close(std::exchange(end_, -1));
}

bool Acceptor::wait(bool for_connection, int timeout_ms) const {
  std::array<pollfd, 2> wanted = {{{end_, POLLIN, 0}, {for_connection ? listener_ : -1, POLLIN, 0}}};
  static_cast<void>(::poll(wanted.data(), wanted.size(), timeout_ms));
  return wanted[0].revents == 0;
}

void Acceptor::run() {
  while (wait(true, -1)) {
    const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      receiver_(fd);
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      log_warning(std::string("administration: connections wait: ") + std::strerror(errno) +
                  "; raise the limit on open files (ulimit -n, or LimitNOFILE of a service)");
      if (!wait(false, kNoDescriptorsPauseMs)) return;
    }
    // Anything else is the fate of one connection (ECONNABORTED and the like).
  }
}

}  // namespace loam
