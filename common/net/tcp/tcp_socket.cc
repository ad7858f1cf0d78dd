// System calls on sockets, with errors that tell an operator what to do.

#include "common/net/tcp/tcp_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>

namespace loam::net {
namespace {

/// Number of connections that the kernel queues for accept(). The kernel limits it to net.core.somaxconn.
constexpr int kBacklog = 1024;

void set_option(int fd, int level, int option, int value) {
  // A failure is harmless: on a kernel without the option the connection works with the kernel's defaults.
  static_cast<void>(setsockopt(fd, level, option, &value, sizeof(value)));
}

}  // namespace

std::string error_text(int error) {
  std::string text = std::strerror(error);
  if (const char* name = strerrorname_np(error)) text += std::string(" (") + name + ")";
  return text;
}

Address SocketAddress::to_address() const {
  Address address;
  char text[INET6_ADDRSTRLEN] = "?";
  if (storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    address.port = ntohs(v6.sin6_port);
  } else {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    address.port = ntohs(v4.sin_port);
  }
  address.host = text;
  return address;
}

namespace {

/// Appends the addresses of a host to `found`. Returns the error of getaddrinfo(), or 0.
int look_up(const Address& address, int flags, std::vector<SocketAddress>& found) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (error != 0) return error;
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    if (info->ai_family != AF_INET && info->ai_family != AF_INET6) continue;
    SocketAddress one;
    std::memcpy(&one.storage, info->ai_addr, info->ai_addrlen);
    one.size = info->ai_addrlen;
    found.push_back(one);
  }
  freeaddrinfo(list);
  return 0;
}

}  // namespace

std::optional<std::vector<SocketAddress>> resolve_number(const Address& address) {
  std::vector<SocketAddress> found;
  if (look_up(address, AI_NUMERICHOST, found) != 0 || found.empty()) return std::nullopt;
  return found;
}

Result<std::vector<SocketAddress>> resolve(const Address& address) {
  if (auto number = resolve_number(address)) return std::move(*number);
  std::vector<SocketAddress> found;
  if (const int error = look_up(address, 0, found); error != 0) {
    return Status(StatusCode::kUnavailable,
                  "host '" + address.host + "' of " + address.to_string() + " has no address: " + gai_strerror(error));
  }
  if (!found.empty()) return found;
  return Status(StatusCode::kUnavailable, "host '" + address.host + "' has neither an IPv4 nor an IPv6 address");
}

Result<Fd> listen_on(const SocketAddress& where, const Address& as_given) {
  Fd fd(::socket(where.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return Status(StatusCode::kUnavailable, "no socket for " + as_given.to_string() + ": " + error_text(errno));
  // Lets a restarted server bind its port while old connections are in TIME_WAIT. Two listeners still conflict.
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd.get(), where.get(), where.size) == 0 && ::listen(fd.get(), kBacklog) == 0) return fd;
  const std::string port = "port " + std::to_string(as_given.port) + " of " + as_given.host;
  switch (errno) {
    case EADDRINUSE:
      return Status(StatusCode::kUnavailable,
                    port + " is in use by another program; stop it, or choose another port (0 takes a free one)");
    case EADDRNOTAVAIL:
      return Status(StatusCode::kInvalidArgument,
                    as_given.host + " is not an address of this host; `ip address` shows its addresses");
    case EACCES:
      return Status(StatusCode::kUnavailable, port + " needs privilege; choose one above 1023");
    default:
      return Status(StatusCode::kUnavailable, "cannot listen on " + port + ": " + error_text(errno));
  }
}

SocketAddress local_address(int fd) {
  SocketAddress result;
  result.size = sizeof(result.storage);
  if (::getsockname(fd, result.get(), &result.size) != 0) result.size = 0;
  return result;
}

void tune_socket(int fd, uint64_t peer_timeout_ns) {
  // Two limits detect a dead peer within the time-out: the keep-alive probes on a connection without traffic, and
  // TCP_USER_TIMEOUT on one with bytes that the peer does not acknowledge.
  constexpr int kProbes = 3;
  const int timeout_ms = static_cast<int>(std::clamp<uint64_t>(peer_timeout_ns / 1'000'000, 100, 3'600'000));
  const int between_s = std::max(1, timeout_ms / 1'000 / (kProbes + 1));
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, between_s);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, between_s);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, timeout_ms);
}

}  // namespace loam::net
