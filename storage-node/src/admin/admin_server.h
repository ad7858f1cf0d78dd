// The gRPC administration of a storage node.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <loam/storage/node.h>

#include "common/base/status.h"
#include "common/latency/recorder.h"
#include "storage-node/src/admin/query_status.h"

namespace loam::storage {

/// What the administration reads and changes. The storage node implements it. Threads: the threads of the
/// administration call the functions, several at the same time.
struct AdminBackend {
  /// Returns all statistics. Those of the tables are left out if `with_tables` is false, because they take long.
  std::function<NodeStatistics(bool with_tables)> statistics;
  /// Returns statistics of which only the members about identity and service are set, and does not wait for a call of
  /// `statistics`.
  std::function<NodeStatistics()> health;
  /// Copies the latencies of requests. The list of slow operations is left out if `with_slow` is false, because it is
  /// long.
  std::function<latency::Latencies(bool with_slow)> latencies;
  /// Returns whether the storage node serves requests.
  std::function<bool()> serving;
  /// Lists the scan queries under way.
  std::function<std::vector<QueryStatus>()> queries;
  /// Ends the queries with this id, and returns their number.
  std::function<size_t(const QueryId&)> cancel_query;
};

/// Serves NodeAdmin (proto/loam/storage/admin.proto) and the standard gRPC health service of a storage node.
///
/// Role: answers with the statistics of the storage node. Owner: the storage node. Threads: the threads of gRPC, and
/// the one that samples the history, call the functions of the backend, several at the same time. A thread of its own
/// calls `serving` every kHealthCheck and updates the health service; it polls because a lease runs out without an
/// event.
class AdminServer {
 public:
  /// Time between two calls of `serving`.
  static constexpr std::chrono::milliseconds kHealthCheck{50};

  /// Listens on "host:port"; with port 0 the system chooses a free port. kUnavailable: the port is in use.
  static Result<std::unique_ptr<AdminServer>> start(const std::string& address, AdminBackend backend);
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
