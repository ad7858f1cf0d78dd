// make_transport() of production builds.

#include <string>

#include "common/net/make_transport.h"
#include "common/net/rdma/rdma_module.h"
#include "common/net/tcp/tcp_transport.h"
#include "common/net/transport/transport.h"

namespace loam::net {

Result<std::unique_ptr<Transport>> make_transport(Scheme scheme, const TransportOptions& options) {
  if (scheme == Scheme::kTcp) return make_tcp_transport(options);
  if (scheme == Scheme::kRdma) return make_rdma_transport(options);
  return Status(StatusCode::kInvalidArgument,
                "this build connects by tcp:// and rdma:// only, not " + std::string(to_string(scheme)) + "://");
}

}  // namespace loam::net
