// Accepts the connections of an administration port.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/admin/listeners.h"
#include "common/base/status.h"

namespace loam {

/// Role: listening sockets and the thread that accepts from them. gRPC's own listener stops for ever at the first
/// accept that fails, which a process without free descriptors makes happen; this one says so in the log, waits for
/// kNoDescriptorsPauseMs and goes on. Owner: GrpcServer. Threads: start(), stop() and the destructor from one; the
/// receiver runs on the acceptor's own thread.
class Acceptor {
 public:
  /// Takes an accepted socket, which does not block, and owns it.
  using Receiver = std::function<void(int fd)>;

  Acceptor() = default;
  ~Acceptor() { stop(); }
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// Listens on "host:port", at every address of a host name; port 0 takes a free port, the same at all of them. The
  /// port that was taken, or kUnavailable: an address is in use, or the host is none of this machine.
  Result<int> listen(const std::string& address);
  /// Listens at these addresses, which have one port or port 0. `name` stands for them in errors.
  Result<int> listen(std::vector<SocketAddress> addresses, const std::string& name);
  /// Begins to accept.
  void start(Receiver receiver);
  /// Closes the port; no more sockets reach the receiver. Idempotent.
  void stop();

  /// How long the acceptor waits for descriptors before it tries again.
  static constexpr int kNoDescriptorsPauseMs = 100;

 private:
  void run();
  /// Accepts a connection, if one waits. False: the process has no descriptor or memory for it, which is logged.
  bool accept_one(int listener) const;

  std::vector<int> listeners_;
  int end_ = -1;  // eventfd: the thread is to end
  Receiver receiver_;
  std::thread thread_;
};

}  // namespace loam
