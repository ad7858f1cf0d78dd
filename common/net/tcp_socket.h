// System calls on sockets, with errors as Status. Internal.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/status.h"
#include "common/net/address.h"

namespace loam::net {

/// A file descriptor, closed with its owner.
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
  Address to_address() const;
};

/// All socket addresses of a host and port, at least one. A name may block for long: connections use NameLookups.
Result<std::vector<SocketAddress>> resolve(const Address& address);
/// The same for a host that is a number; nothing for a name. Never blocks.
std::optional<std::vector<SocketAddress>> resolve_number(const Address& address);

/// A non-blocking socket that listens. kUnavailable: port in use or not allowed; kInvalidArgument: no address of this
/// host.
Result<Fd> listen_on(const SocketAddress& where, const Address& as_given);
/// The address that a socket has on this side.
SocketAddress local_address(int fd);

/// No delay, keep-alive, and the time after which a silent peer is dead.
void tune_socket(int fd, uint64_t peer_timeout_ns);

/// "Connection refused (ECONNREFUSED)"
std::string error_text(int error);

}  // namespace loam::net
