// A stand-in for the administration in the simulator, which has none.
#include "commit-manager/src/admin/admin_server.h"

namespace loam::commit {

struct AdminServer::Impl {
  std::string address;
};

// NOLINTBEGIN(performance-unnecessary-value-param): as the real one takes them
Result<std::unique_ptr<AdminServer>> AdminServer::start(const std::string& address, AdminBackend) {
  return Status(StatusCode::kInvalidArgument, "the simulator has no administration, so none can listen at " + address);
}
// NOLINTEND(performance-unnecessary-value-param)

AdminServer::AdminServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AdminServer::~AdminServer() = default;

void AdminServer::set_serving(bool) {}
void AdminServer::stop() {}
const std::string& AdminServer::address() const { return impl_->address; }

}  // namespace loam::commit
