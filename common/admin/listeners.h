// Listening sockets at every address that a host name stands for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sys/socket.h>

#include "common/base/status.h"

namespace loam {

/// An IPv4 or IPv6 address with a port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  uint16_t port() const;
  void set_port(uint16_t port);
  /// "127.0.0.1:7410", "[::1]:7410".
  std::string to_string() const;
};

/// The addresses of "host:port", each once, in the order of the system's resolver. An empty host stands for every
/// address of this machine. kInvalidArgument: the text has another form, or the name is not known.
Result<std::vector<SocketAddress>> addresses_to_listen_at(const std::string& text);

/// A listening socket at each of the addresses, which does not block; the caller closes them. Port 0 takes a free
/// port, the same at every address. An address that this machine does not have is left out, as `::1` is without IPv6.
/// kUnavailable names the first address that is in use or refused, or says that none is left; then no socket is open.
Result<std::vector<int>> listen_at(std::vector<SocketAddress> addresses);

/// The port that a listening socket has taken.
uint16_t port_of(int listener);

}  // namespace loam
