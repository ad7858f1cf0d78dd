// A whole cluster in this process: one commit manager and one storage node, over the real transport.
#pragma once

#include <memory>
#include <string>

#include <loam/commit/manager.h>
#include <loam/storage/node.h>

#include "common/base/status.h"

namespace loam::cli {

struct OneProcessOptions {
  commit::ManagerOptions manager;
  storage::NodeOptions node;  ///< its `manager` is filled in by start()

  /// All ports free ones of the loopback address.
  static OneProcessOptions on_free_ports();
};

/// The running pair. start() to the destructor; all records are gone with it. One thread; clients of any process may
/// connect meanwhile, and should be gone before it ends.
class OneProcessCluster {
 public:
  /// Returns when clients can connect. kInvalidArgument: an option; kUnavailable: a port is in use; kNoSpace: the
  /// node's memory cannot be had. The message begins with the part that failed.
  static Result<std::unique_ptr<OneProcessCluster>> start(OneProcessOptions options);
  ~OneProcessCluster();
  OneProcessCluster(const OneProcessCluster&) = delete;
  OneProcessCluster& operator=(const OneProcessCluster&) = delete;

  /// Where clients connect.
  const std::string& address() const { return manager_->address(); }
  const std::string& admin_address() const { return manager_->admin_address(); }
  const storage::StorageNode& node() const { return *node_; }
  const commit::CommitManager& manager() const { return *manager_; }

  /// Ends the node, then the manager. Idempotent.
  void stop();

 private:
  OneProcessCluster() = default;

  std::unique_ptr<commit::CommitManager> manager_;
  std::unique_ptr<storage::StorageNode> node_;
};

}  // namespace loam::cli
