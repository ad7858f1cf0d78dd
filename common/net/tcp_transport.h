// Transport over TCP sockets and epoll.
#pragma once

#include <memory>

#include "common/net/transport.h"

namespace loam::net {

/// Makes a TCP transport for the calling thread. kUnavailable if the process is out of file descriptors,
/// kInvalidArgument if an option is out of its range.
Result<std::unique_ptr<Transport>> make_tcp_transport(const TransportOptions& options = {});

}  // namespace loam::net
