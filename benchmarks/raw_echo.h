// The ceiling of `net.tcp_vs_raw`: an echo over bare epoll, with nothing that a transport adds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace loam::bench {

/// What both sides of the comparison do: every connection of one client thread has one batch of calls under way; when
/// the last answer of a batch is in, it sends the next. One server thread sends everything back. Answers are checked.
struct EchoLoad {
  size_t connections = 4;
  size_t batch = 64;          ///< calls that one connection has under way
  size_t message_bytes = 64;  ///< at least 8, a multiple of 8
  uint64_t duration_ns = 0;
  uint64_t spin_ns = 0;  ///< how long either side looks for events before it sleeps
};

struct EchoResult {
  double calls_per_s = 0;
  double cpu_ns_per_call = 0;  ///< thread CPU time of server and client together, sleeping excluded, spinning included
};

/// The load over bare epoll: 8 bytes of header a message, one recv and one send a batch, no handshake, no
/// credits, no limits, no back-pressure.
EchoResult raw_echo(const EchoLoad& load);

}  // namespace loam::bench
