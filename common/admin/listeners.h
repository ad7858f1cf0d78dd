// Listening sockets at every address of a host name.
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
  /// The address as text, "127.0.0.1:7410" or "[::1]:7410".
  std::string to_string() const;
};

/// Looks up the addresses of "host:port", each once, in the order of the system's resolver. An empty host means every
/// address of this machine. kInvalidArgument: the text has another form, or the name is unknown.
Result<std::vector<SocketAddress>> resolve_listen_addresses(const std::string& text);

/// Opens a non-blocking listening socket at each of the addresses; the caller closes them. Port 0 chooses a free
/// port, which is the same at every address. Addresses that this machine does not have are left out, such as `::1`
/// without IPv6. kUnavailable: no address is left, or an address is in use or refused, which the message names.
/// After an error no socket is open.
Result<std::vector<int>> listen_at(std::vector<SocketAddress> addresses);

/// The port of a listening socket.
uint16_t port_of(int listener);

}  // namespace loam
