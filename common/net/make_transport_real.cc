// The transports of real machines.

#include <string>

#include "common/net/rdma_module.h"
#include "common/net/tcp_transport.h"
#include "common/net/transport.h"

namespace loam::net {

Result<std::unique_ptr<Transport>> make_transport(Scheme scheme, const TransportOptions& options) {
  if (scheme == Scheme::kTcp) return make_tcp_transport(options);
  if (scheme == Scheme::kRdma) return make_rdma_transport(options);
  return Status(StatusCode::kInvalidArgument,
                "this build connects by tcp:// and rdma:// only, not " + std::string(to_string(scheme)) + "://");
}

}  // namespace loam::net
