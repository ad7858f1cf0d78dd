// The transport over TCP sockets and epoll.
#pragma once

#include <memory>

#include "common/net/transport/transport.h"

namespace loam::net {

/// Makes a TCP transport for the calling thread. kUnavailable: the process has no free file descriptor.
/// kInvalidArgument: an option is out of range.
Result<std::unique_ptr<Transport>> make_tcp_transport(const TransportOptions& options = {});

}  // namespace loam::net
