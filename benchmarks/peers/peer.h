// The interface between the load generator and a server, independent of the server's protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace loam::bench {

/// One request and its expected reply: a get finds the record with this stamp, a put writes it.
struct Operation {
  uint32_t record = 0;
  uint32_t stamp = 0;
  bool put = false;
};

/// The connections to one server. It translates operations to the server's protocol and checks every byte of the
/// replies. The load generator calls it; each server under comparison has an implementation. Owner: the suite. Threads:
/// one.
///
/// The replies of a connection arrive in the order of its requests. A wrong reply and the loss of the server are
/// exceptions (std::runtime_error). Implementations make no system calls except those that move bytes, and do not
/// allocate once their buffers have grown.
class Peer {
 public:
  virtual ~Peer() = default;

  /// Number of open connections. A load may use some or all of them.
  virtual size_t connections() const = 0;
  /// Sends all operations to one connection at once, pipelined. The caller sends the next batch of a connection after
  /// the replies to all operations of this one.
  virtual void send(size_t connection, std::span<const Operation> batch) = 0;
  /// Waits for replies, at most `timeout_ns`, checks them, and calls `answered` with a connection and its number of
  /// replies.
  virtual void poll(uint64_t timeout_ns, const std::function<void(size_t connection, size_t count)>& answered) = 0;
};

}  // namespace loam::bench
