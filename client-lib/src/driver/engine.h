// Everything of one client that lives on its worker's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <loam/client/options.h>
#include <loam/client/statistics.h>
#include <loam/client/table.h>

#include "client-lib/src/core/catalog_cache.h"
#include "client-lib/src/driver/link.h"
#include "client-lib/src/driver/manager_session.h"
#include "client-lib/src/driver/worker.h"
#include "common/base/status.h"
#include "common/net/transport.h"

namespace loam::client {

/// Commits whose undo records are still being cleared, at most; more wait (so that nothing grows without bound while a
/// node that holds undo records hangs).
inline constexpr size_t kMaxClears = 4'096;
/// Fibers for the library's own work and for calls of ordinary threads, beyond ClientOptions::max_fibers.
inline constexpr size_t kReservedFibers = 1'024;

/// Written by the worker's thread, read by any.
struct EngineCounters {
  net::Counter begun, committed, aborted, conflicts, retries, unknown_outcomes, resolved, read_only, round_trips, scans;
};

/// The session, the links to the storage nodes, the catalog and the counters of one client, and what holds them
/// together. Owner: the client; made and used on the worker's thread, destroyed after the worker has stopped.
class Engine final : private RoundHook {
 public:
  Engine(Worker& worker, const std::string& manager_address, ClientOptions options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// In a fiber.
  Status open();
  /// In a fiber; waits until nothing of the client's is under way. Afterwards the worker may stop.
  void close();

  /// The link to a node of the cached catalog. kUnavailable: no such node; the session's end.
  Result<Link*> node(NodeId id);
  /// The link to the node that owns a record.
  Result<Link*> owner(TableId table, Key key);
  uint64_t request_deadline() const { return worker_.now_ns() + options_.request_timeout_ns; }
  uint64_t commit_deadline() const { return worker_.now_ns() + options_.commit_timeout_ns; }

  /// A snapshot that lasts as long as the result. In a fiber.
  Result<std::shared_ptr<SnapshotLease>> lease_snapshot();

  Worker& worker() { return worker_; }
  ManagerSession& session() { return session_; }
  CatalogCache& catalog() { return catalog_; }
  const ClientOptions& options() const { return options_; }
  EngineCounters& counters() { return counters_; }
  Gate& clears() { return clears_; }
  uint64_t random() { return random_(); }
  /// Commits under way, the clearing of their undo records included.
  void run_started() { runs_.add(); }
  void run_ended() { runs_.done(); }

  /// Any thread.
  ClientStatistics statistics() const;

 private:
  struct NodeLink {
    Incarnation incarnation;
    std::string address;
    std::unique_ptr<Link> link;
  };

  uint64_t before_poll() override;
  void after_poll(uint64_t now_ns) override;
  std::unique_ptr<Link> make_link(const wire::NodeInfo& info);
  bool all_connections_gone() const;

  Worker& worker_;
  const ClientOptions options_;
  EngineCounters counters_;
  CatalogCache catalog_;
  ManagerSession session_;
  std::map<NodeId, NodeLink> nodes_;
  std::vector<std::unique_ptr<Link>> retired_;  // of old incarnations, until their connections have ended
  Gate clears_{kMaxClears};
  fiber::WaitGroup runs_;
  std::mt19937_64 random_;
};

}  // namespace loam::client
