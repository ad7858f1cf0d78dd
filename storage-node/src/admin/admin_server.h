// The gRPC administration of a storage node.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <loam/storage/node.h>

#include "common/base/status.h"

namespace loam::storage {

/// Serves NodeAdmin (proto/loam/storage/admin.proto) and the standard gRPC health service of a storage node.
///
/// Role: answers with the statistics of the storage node. Owner: the storage node. Threads: the threads of gRPC call
/// `statistics`, `health` and `latencies`, several at the same time. A thread of its own calls `serving` every
/// kHealthCheck and updates the health service; it polls because a lease runs out without an event.
class AdminServer {
 public:
  /// Time between two calls of `serving`.
  static constexpr std::chrono::milliseconds kHealthCheck{50};

  /// Listens on "host:port"; with port 0 the system chooses a free port. `health` returns statistics of which only the
  /// members about identity and service are set, and must not wait for a call of `statistics`. kUnavailable: the port
  /// is in use.
  static Result<std::unique_ptr<AdminServer>> start(const std::string& address,
                                                    std::function<NodeStatistics()> statistics,
                                                    std::function<NodeStatistics()> health,
                                                    std::function<latency::Latencies()> latencies,
                                                    std::function<bool()> serving);
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  /// Returns "host:port" with the port that the server listens on.
  const std::string& address() const;

 private:
  struct Impl;
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::storage
