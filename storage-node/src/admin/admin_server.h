// gRPC administration of a storage node.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <loam/storage/node.h>

#include "common/base/status.h"

namespace loam::storage {

/// Role: answers NodeAdmin (proto/loam/storage/admin.proto) from the node's statistics, and the standard health
/// service. Owner: the node. Threads: gRPC's own, which call `statistics` and `health`, several at one time, and one
/// that looks every kHealthCheck whether the node is `serving`: a lease ends by itself.
class AdminServer {
 public:
  static constexpr std::chrono::milliseconds kHealthCheck{50};

  /// Listens on "host:port"; port 0 takes a free one. `health` gives the first members of the statistics, and never
  /// waits for a call of `statistics`. kUnavailable if the port is in use.
  static Result<std::unique_ptr<AdminServer>> start(const std::string& address,
                                                    std::function<NodeStatistics()> statistics,
                                                    std::function<NodeStatistics()> health,
                                                    std::function<bool()> serving);
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  /// With the port that was taken.
  const std::string& address() const;

 private:
  struct Impl;
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::storage
