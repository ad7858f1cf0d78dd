// gRPC administration of the cluster.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <loam/commit/core.h>
#include <loam/commit/manager.h>

#include "common/base/status.h"

namespace loam::commit {

/// What the administration needs of the server. Called on gRPC's threads.
struct AdminBackend {
  /// Runs a task on the server's thread; false if the server is stopping: the task never runs.
  std::function<bool(std::function<void(Core&)>)> post;
  /// From inside a task: the core's counters and the transport's.
  std::function<ManagerStatistics(const Core&)> statistics;
  /// Data path, as it was bound; from inside a task.
  std::function<std::string()> address;
  uint64_t timeout_ns = 0;
};

/// Role: answers ClusterAdmin (proto/loam/commit/admin.proto). A handler translates, posts to the state machine, and
/// waits; it decides nothing. Owner: CommitManager. Threads: gRPC's own; the public functions from one.
class AdminServer {
 public:
  /// Listens on "host:port"; port 0 takes a free one. kUnavailable if the port is in use.
  static Result<std::unique_ptr<AdminServer>> start(const std::string& address, AdminBackend backend);
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  /// What the health service says: clients are let in. Any thread.
  void set_serving(bool serving);
  /// Takes no more calls; those that still wait for storage nodes are cancelled. Idempotent.
  void stop();

  /// With the port that was taken.
  const std::string& address() const;

 private:
  struct Impl;
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::commit
