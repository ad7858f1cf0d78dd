// The factory of transports: the only code that knows all kinds of networks.
#pragma once

#include <memory>

#include "common/base/status.h"
#include "common/net/transport/transport.h"

namespace loam::net {

/// Makes a transport of the given scheme for the calling thread. The simulated build of this library supports the
/// scheme "sim" only, and makes a transport of the running process on the installed network
/// (common/net/simulated/sim_transport.h). kInvalidArgument: this build does not support the scheme, or an option is
/// out of range. kUnavailable: the process has no free file descriptor, or, for rdma, as make_rdma_transport() says.
Result<std::unique_ptr<Transport>> make_transport(Scheme scheme, const TransportOptions& options = {});

}  // namespace loam::net
