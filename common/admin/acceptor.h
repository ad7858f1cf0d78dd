// The acceptor of connections to an administration port.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/admin/listeners.h"
#include "common/base/status.h"

namespace loam {

/// The listening sockets of an administration port, and the thread that accepts connections from them.
///
/// gRPC's own listener stops for ever at the first accept that fails, as it does in a process without free file
/// descriptors. The acceptor logs such a failure, waits for kNoDescriptorsPauseMs and tries again.
///
/// Owner: GrpcServer. Threads: start(), stop() and the destructor from one thread; the receiver runs on the
/// acceptor's own thread.
class Acceptor {
 public:
  /// Receives an accepted, non-blocking socket, and owns it.
  using Receiver = std::function<void(int fd)>;

  Acceptor() = default;
  ~Acceptor() { stop(); }
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// Listens on "host:port", at every address of the host name. Port 0 chooses a free port, which is the same at all
  /// addresses. Returns the port. kUnavailable: an address is in use, or the host is not this machine.
  Result<int> listen(const std::string& address);
  /// Listens at these addresses, which all have the same port or port 0. `name` stands for them in messages.
  Result<int> listen(std::vector<SocketAddress> addresses, const std::string& name);
  /// Starts the thread, which accepts connections.
  void start(Receiver receiver);
  /// Ends the thread and closes the port. The receiver gets no more sockets. Idempotent.
  void stop();

  /// Pause after a failure because of missing file descriptors, in milliseconds.
  static constexpr int kNoDescriptorsPauseMs = 100;

 private:
  void run();
  /// Accepts a waiting connection. False: the process has no file descriptor or memory for it; the failure is logged.
  bool accept_one(int listener) const;

  std::vector<int> listeners_;
  int stop_fd_ = -1;  // an eventfd that tells the thread to end
  Receiver receiver_;
  std::thread thread_;
};

}  // namespace loam
