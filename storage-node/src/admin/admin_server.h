// gRPC administration of a storage node.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <loam/storage/node.h>

#include "common/base/status.h"

namespace loam::storage {

/// Role: answers NodeAdmin (proto/loam/storage/admin.proto) from the node's statistics. Owner: the node. Threads:
/// gRPC's own; `statistics` is called on them.
class AdminServer {
 public:
  /// Listens on "host:port"; port 0 takes a free one. kUnavailable if the port is in use.
  static Result<std::unique_ptr<AdminServer>> start(const std::string& address,
                                                    std::function<NodeStatistics()> statistics);
  ~AdminServer();
  AdminServer(const AdminServer&) = delete;
  AdminServer& operator=(const AdminServer&) = delete;

  /// What the standard health service says: requests are served, with a lease and with all records. Any thread.
  void set_serving(bool serving);

  /// With the port that was taken.
  const std::string& address() const;

 private:
  struct Impl;
  explicit AdminServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::storage
