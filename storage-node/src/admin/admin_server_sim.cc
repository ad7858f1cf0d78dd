// The AdminServer of the simulator, which refuses to start: a simulated storage node has no administration.
#include "storage-node/src/admin/admin_server.h"

namespace loam::storage {

struct AdminServer::Impl {
  std::string address;
};

// NOLINTBEGIN(performance-unnecessary-value-param): the signature of the real AdminServer
Result<std::unique_ptr<AdminServer>> AdminServer::start(const std::string& address, AdminBackend) {
  return Status(StatusCode::kInvalidArgument, "the simulator has no administration, so none can start at " + address);
}
// NOLINTEND(performance-unnecessary-value-param)

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() = default;

const std::string& AdminServer::address() const { return impl_->address; }

}  // namespace loam::storage
