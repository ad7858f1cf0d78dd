// The gRPC server for the administration of the cluster.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <loam/commit/core.h>
#include <loam/commit/manager.h>

#include "common/base/status.h"
#include "common/latency/recorder.h"

namespace loam::commit {

/// The functions of the server that the administration calls, on gRPC's threads.
struct AdminBackend {
  /// Runs a task on the server thread. False: the server is stopping, and the task never runs.
  std::function<bool(std::function<void(Core&)>)> post;
  /// Returns the counters of the core and the transport. Called from within a task.
  std::function<ManagerStatistics(const Core&)> statistics;
  /// Returns the bound address of the data path. Called from within a task.
  std::function<std::string()> address;
  /// Copies the latencies of requests. The list of slow operations is left out if `with_slow` is false, because it is
  /// long. Also called on the thread that samples the history.
  std::function<latency::Latencies(bool with_slow)> latencies;
  /// Returns the network address of a connection; empty if there is none. Called from within a task.
  std::function<std::string(PeerId)> peer_address;
  uint64_t timeout_ns = 0;  ///< ManagerOptions::admin_timeout_ns
  std::string token_file;   ///< ManagerOptions::admin_token_file
};

/// Serves ClusterAdmin (commit-manager/proto/loam/commit/admin.proto). A handler translates the request, posts it to
/// the state machine, and waits. It decides nothing. Owner: CommitManager. Threads: gRPC's own. One thread calls the
/// public functions.
class AdminServer {
 public:
  /// Listens on "host:port"; port 0 takes a free port. kUnavailable: the port is in use.
  static Result<std::unique_ptr<AdminServer>> start(const std::string& address, AdminBackend backend);
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  /// Sets the status that the health service reports: SERVING while clients are served. Any thread.
  void set_serving(bool serving);
  /// Refuses further calls, and cancels those that wait for storage nodes. Idempotent.
  void stop();

  /// Returns the address with the actual port.
  const std::string& address() const;

 private:
  struct Impl;
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::commit
