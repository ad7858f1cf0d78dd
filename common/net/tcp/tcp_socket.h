// Wrappers of system calls on sockets that return errors as Status. Internal.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/net/transport/address.h"

namespace loam::net {

/// An owned file descriptor, which the destructor closes.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  /// Closes the descriptor, and owns `fd` from now on.
  void reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

/// A socket address of IPv4 or IPv6.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  /// The address with scheme tcp.
  Address to_address() const;
};

/// Looks up all socket addresses of a host and port. kUnavailable: the name has no address. May block for long if the
/// host is a name; connections use HostResolver instead.
Result<std::vector<SocketAddress>> resolve(const Address& address);
/// Converts a host that is a number into a socket address. Returns nothing for a name. Never blocks.
std::optional<std::vector<SocketAddress>> resolve_number(const Address& address);

/// Opens a non-blocking socket that listens. kUnavailable: the port is in use, or the process may not use it.
/// kInvalidArgument: the address does not belong to this host. `as_given` is the address for messages.
Result<Fd> listen_on(const SocketAddress& where, const Address& as_given);
/// The address of this side of a socket.
SocketAddress local_address(int fd);

/// Sets the options of a connection: no delay, keep-alive, and the time after which a silent peer counts as dead.
void tune_socket(int fd, uint64_t peer_timeout_ns);

/// The text and the name of an errno, "Connection refused (ECONNREFUSED)".
std::string error_text(int error);

}  // namespace loam::net
