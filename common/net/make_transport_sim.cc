// make_transport() of simulated builds.

#include <string>

#include "common/base/assert.h"
#include "common/base/env.h"
#include "common/net/make_transport.h"
#include "common/net/simulated/sim_transport.h"

namespace loam::net {

Result<std::unique_ptr<Transport>> make_transport(Scheme scheme, const TransportOptions& options) {
  if (scheme != Scheme::kSim) {
    return Status(StatusCode::kInvalidArgument,
                  "the simulator connects by sim:// only, not " + std::string(to_string(scheme)) + "://");
  }
  LOAM_CHECK(sim_scheduler != nullptr && SimNetwork::installed() != nullptr,
             "a simulated process runs in a world with a network");
  return SimNetwork::installed()->make_transport(sim_scheduler->process(), options);
}

}  // namespace loam::net
