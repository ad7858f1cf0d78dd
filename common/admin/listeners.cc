// Listening sockets at every address of a host name, all with one port. acceptor.cc accepts connections from them.

#include "common/admin/listeners.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

namespace loam {
namespace {

/// Number of connections that the kernel queues for accept().
constexpr int kBacklog = 128;
/// Number of free ports to try. A port that is free at the first address may be in use at another one.
constexpr int kPortAttempts = 16;

const sockaddr* raw(const SocketAddress& address) { return reinterpret_cast<const sockaddr*>(&address.storage); }

in_port_t& port_field(sockaddr_storage& storage) {
  return storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(storage).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(storage).sin_port;
}

bool same(const SocketAddress& a, const SocketAddress& b) {
  return a.size == b.size && std::memcmp(&a.storage, &b.storage, a.size) == 0;
}

bool has_family(const std::vector<SocketAddress>& addresses, sa_family_t family) {
  return std::ranges::any_of(addresses, [&](const SocketAddress& one) { return one.storage.ss_family == family; });
}

/// Owns sockets, and closes them unless they are released.
class Sockets {
 public:
  Sockets() = default;
  ~Sockets() {
    for (const int fd : fds_) ::close(fd);
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  void add(int fd) { fds_.push_back(fd); }
  std::vector<int> release() { return std::exchange(fds_, {}); }

 private:
  std::vector<int> fds_;
};

void set_option(int fd, int level, int option) {
  const int on = 1;
  static_cast<void>(::setsockopt(fd, level, option, &on, sizeof(on)));
}

/// Opens a listening socket. Returns -1 and sets errno on a failure. `only_ipv6`: a socket of `::` does not serve
/// IPv4, because another socket does.
int open_listener(const SocketAddress& address, bool only_ipv6) {
  const int fd = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  // Lets a restarted server bind its port while old connections are in TIME_WAIT. Two listeners still conflict.
  set_option(fd, SOL_SOCKET, SO_REUSEADDR);
  // Accepted sockets inherit the option. gRPC sets it only on sockets that it opens itself.
  set_option(fd, IPPROTO_TCP, TCP_NODELAY);
  if (only_ipv6 && address.storage.ss_family == AF_INET6) set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY);
  if (::bind(fd, raw(address), address.size) == 0 && ::listen(fd, kBacklog) == 0) return fd;
  // close() may change errno, which the caller reads.
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

/// Whether an error says that this machine does not have the address, or no address of its family.
bool not_there(int error) { return error == EADDRNOTAVAIL || error == EAFNOSUPPORT || error == EPROTONOSUPPORT; }

/// One attempt of listen_at(). Sets `in_use` if an address was refused because its port is in use.
Result<std::vector<int>> listen_once(std::vector<SocketAddress> addresses, bool& in_use) {
  const bool only_ipv6 = has_family(addresses, AF_INET);
  Sockets listeners;
  std::string left_out;
  uint16_t port = 0;
  for (SocketAddress& address : addresses) {
    // Port 0 stands for the free port that the system has chosen for the first address.
    if (address.port() == 0) address.set_port(port);
    const int fd = open_listener(address, only_ipv6);
    const int error = errno;
    if (fd >= 0) {
      listeners.add(fd);
      port = port_of(fd);
      continue;
    }
    const std::string what = address.to_string() + ": " + std::strerror(error);
    in_use = error == EADDRINUSE;
    if (!not_there(error)) return Status(StatusCode::kUnavailable, what);
    left_out += (left_out.empty() ? "" : ", ") + what;
  }
  std::vector<int> opened = listeners.release();
  if (opened.empty()) return Status(StatusCode::kUnavailable, left_out);
  return opened;
}

}  // namespace

uint16_t SocketAddress::port() const { return ntohs(port_field(const_cast<sockaddr_storage&>(storage))); }

void SocketAddress::set_port(uint16_t port) { port_field(storage) = htons(port); }

std::string SocketAddress::to_string() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool ipv6 = storage.ss_family == AF_INET6;
  const void* const bytes = ipv6 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr)
                                 : &reinterpret_cast<const sockaddr_in&>(storage).sin_addr;
  ::inet_ntop(storage.ss_family, bytes, text.data(), text.size());
  return (ipv6 ? "[" : "") + std::string(text.data()) + (ipv6 ? "]:" : ":") + std::to_string(port());
}

Result<std::vector<SocketAddress>> resolve_listen_addresses(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return Status(StatusCode::kInvalidArgument, "it does not have the form host:port");
  std::string host = text.substr(0, colon);
  const std::string port = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return Status(StatusCode::kInvalidArgument, ::gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
    SocketAddress address;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.size = one->ai_addrlen;
    // The resolver returns 127.0.0.1 twice if /etc/hosts names a host for both families.
    const bool known = std::ranges::any_of(addresses, [&](const SocketAddress& other) { return same(address, other); });
    if (!known) addresses.push_back(address);
  }
  return addresses;
}

Result<std::vector<int>> listen_at(std::vector<SocketAddress> addresses) {
  for (int attempt = 1;; ++attempt) {
    bool in_use = false;
    auto listeners = listen_once(addresses, in_use);
    // Only a port that the system has chosen is worth another attempt. A port of the caller stays in use.
    const bool free_port = std::ranges::all_of(addresses, [](const SocketAddress& one) { return one.port() == 0; });
    if (listeners.ok() || !in_use || !free_port || attempt == kPortAttempts) return listeners;
  }
}

uint16_t port_of(int listener) {
  SocketAddress address;
  address.size = sizeof(address.storage);
  if (::getsockname(listener, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) return 0;
  return address.port();
}

}  // namespace loam
