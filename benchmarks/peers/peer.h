// A server under the load generator, whatever it speaks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace loam::bench {

/// One request, and what its answer must be: a get finds the record with this stamp, a put writes it.
struct Operation {
  uint32_t record = 0;
  uint32_t stamp = 0;
  bool put = false;
};

/// Role: the connections to one server: turns operations into its protocol and checks every byte of its answers. The
/// load generator drives it; the servers under comparison implement it. Owner: the suite. Threads: one.
///
/// Answers of a connection come in the order of its requests. Errors are exceptions (std::runtime_error): a wrong
/// answer, a server that has gone. No system call but those that move bytes, and no allocation once buffers have grown.
class Peer {
 public:
  virtual ~Peer() = default;

  /// Connections that are open, all to be used by any number of them.
  virtual size_t connections() const = 0;
  /// Gives all operations to one connection at once, pipelined. Before the next batch of a connection every operation
  /// of this one has been answered.
  virtual void send(size_t connection, std::span<const Operation> batch) = 0;
  /// Sleeps until there are answers, at most `timeout_ns`; checks them, and says how many came on which connection.
  virtual void poll(uint64_t timeout_ns, const std::function<void(size_t connection, size_t count)>& answered) = 0;
};

}  // namespace loam::bench
