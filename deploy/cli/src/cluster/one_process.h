// A whole cluster in this process: one commit manager and one storage node, over the real transport.
#pragma once

#include <memory>
#include <string>

#include <loam/commit/manager.h>
#include <loam/storage/node.h>

#include "common/base/status.h"

namespace loam::cli {

/// Options of the two servers of a OneProcessCluster.
struct OneProcessOptions {
  commit::ManagerOptions manager;
  storage::NodeOptions node;  ///< start() sets its `manager`

  /// Options with which both servers listen on free ports of the loopback address.
  static OneProcessOptions on_free_ports();
};

/// A commit manager and a storage node that run in this process, from start() to the destructor. The records are gone
/// afterwards. Threads: the functions from one thread. Clients of any process may connect; they should disconnect
/// before the object ends.
class OneProcessCluster {
 public:
  /// Starts both servers and returns when clients can connect. kInvalidArgument: a bad option; kUnavailable: a port is
  /// in use; kNoSpace: the storage node cannot allocate its memory. The message begins with the server that failed.
  static Result<std::unique_ptr<OneProcessCluster>> start(OneProcessOptions options);
  ~OneProcessCluster();
  OneProcessCluster(const OneProcessCluster&) = delete;
  OneProcessCluster& operator=(const OneProcessCluster&) = delete;

  /// Address of the commit manager, to which clients connect.
  const std::string& address() const { return manager_->address(); }
  const std::string& admin_address() const { return manager_->admin_address(); }
  const storage::StorageNode& node() const { return *node_; }
  const commit::CommitManager& manager() const { return *manager_; }

  /// Ends the storage node, then the commit manager. Idempotent.
  void stop();

 private:
  OneProcessCluster() = default;

  std::unique_ptr<commit::CommitManager> manager_;
  std::unique_ptr<storage::StorageNode> node_;
};

}  // namespace loam::cli
