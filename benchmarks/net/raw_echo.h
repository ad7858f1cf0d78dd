// The ceiling of `net.tcp_vs_raw`: an echo over bare epoll, without the work of a transport.
#pragma once

#include <cstddef>
#include <cstdint>

namespace loam::bench {

/// The load of both sides of the comparison. One client thread keeps one batch of calls in flight on each connection
/// and sends the next batch when the last reply has arrived. One server thread returns every message. The client checks
/// the replies.
struct EchoLoad {
  size_t connections = 4;
  size_t batch = 64;          ///< calls in flight on one connection
  size_t message_bytes = 64;  ///< a multiple of 8, at least 8
  uint64_t duration_ns = 0;
  uint64_t spin_ns = 0;  ///< time for which either side polls for events before it sleeps
};

/// The result of one turn.
struct EchoResult {
  double calls_per_s = 0;
  double cpu_ns_per_call = 0;  ///< CPU time of both threads, with spinning and without sleeping
};

/// Runs the load over bare epoll: 8 bytes of header for each message, one recv and one send for each batch; no
/// handshake, credits, limits or back-pressure.
EchoResult raw_echo(const EchoLoad& load);

}  // namespace loam::bench
