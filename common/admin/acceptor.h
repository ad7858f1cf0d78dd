// Accepts the connections of an administration port.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "common/base/status.h"

namespace loam {

/// Role: a listening socket and the thread that accepts from it. gRPC's own listener stops for ever at the first accept
/// that fails, which a process without free descriptors makes happen; this one says so in the log, waits for
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

  /// Listens on "host:port"; port 0 takes a free one. The port that was taken, or kUnavailable: it is in use, or the
  /// host is none of this machine.
  Result<int> listen(const std::string& address);
  /// Begins to accept.
  void start(Receiver receiver);
  /// Closes the port; no more sockets reach the receiver. Idempotent.
  void stop();

  /// How long the acceptor waits for descriptors before it tries again.
  static constexpr int kNoDescriptorsPauseMs = 100;

 private:
  void run();
  /// Waits for a connection, or until `timeout_ms` are over; false if it is to end.
  bool wait(bool for_connection, int timeout_ms) const;

  int listener_ = -1;
  int end_ = -1;  // eventfd: the thread is to end
  Receiver receiver_;
  std::thread thread_;
};

}  // namespace loam
