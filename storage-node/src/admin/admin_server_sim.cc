// The administration of nodes in the simulator: there is none.
#include "storage-node/src/admin/admin_server.h"

namespace loam::storage {

struct AdminServer::Impl {
  std::string address;
};

// NOLINTBEGIN(performance-unnecessary-value-param): as the real one takes them
Result<std::unique_ptr<AdminServer>> AdminServer::start(const std::string& address, std::function<NodeStatistics()>,
                                                        std::function<NodeStatistics()>, std::function<bool()>) {
  return Status(StatusCode::kInvalidArgument,
                "nothing is administered in the simulator, not at " + address + " either");
}
// NOLINTEND(performance-unnecessary-value-param)

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() = default;

const std::string& AdminServer::address() const { return impl_->address; }

}  // namespace loam::storage
