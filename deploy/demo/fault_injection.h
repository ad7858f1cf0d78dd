// The demo's test of failures: clients move money while the demo kills and pauses processes and checks the results.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "deploy/cli/src/cluster/local_cluster.h"
#include "deploy/demo/histogram.h"

namespace loam::cli {

/// Options of one run.
struct FaultInjectionOptions {
  uint64_t accounts = 10'000;
  unsigned fibers = 32;                   ///< fibers of each of the two clients
  uint64_t duration_ns = 10'000'000'000;  ///< minimum duration; the failures may take longer
  uint64_t seed = 1;
  uint64_t lease_ns = 500'000'000;              ///< the lease of clients that the commit manager uses
  bool fault_free = false;                      ///< kill and pause no process
  std::filesystem::path program;                ///< the program `loam`, which also runs as the client processes
  std::function<void(const std::string&)> say;  ///< receives one line of text for each event
};

/// Latencies of transfers during one kind of failure.
struct LatencyPhase {
  std::string name;   ///< name in JSON: "client_killed"
  std::string title;  ///< title in the report for people
  Histogram latencies;
};

/// The result of one run. Counts cover all clients.
struct FaultInjectionReport {
  double seconds = 0;
  uint64_t transfers = 0;  ///< acknowledged, by the clients' reports
  uint64_t retries_exhausted = 0, unknown = 0, refused = 0;
  uint64_t scans = 0;                ///< scans with the correct total
  uint64_t scans_refused = 0;        ///< scans that failed because a server was away
  unsigned kills = 0;                ///< of client processes
  uint64_t rolled_back = 0;          ///< transactions that recovery has undone
  std::vector<uint64_t> locked_ns;   ///< by key of a killed client: from the kill to another client's write
  uint64_t paused_ns = 0;            ///< duration of the pause
  uint64_t fenced = 0;               ///< sessions that the paused client lost by the pause
  uint64_t resume_latency_ns = 0;    ///< from the end of the pause to the client's next transfer
  uint64_t manager_recovery_ns = 0;  ///< from the kill of the commit manager to the first begin
  uint64_t sessions_ended = 0;       ///< sessions that ended before their clients did
  std::vector<LatencyPhase> phases;
  std::vector<std::string> wrong;  ///< violations, as messages; empty if the cluster behaved correctly
};

/// The report as JSON.
nlohmann::ordered_json to_json(const FaultInjectionReport& report);
/// The report as a table for people.
std::string format_report(const FaultInjectionReport& report, const FaultInjectionOptions& options);

/// Runs the test on a running cluster. It fills the accounts, starts client processes that move money, and a scanner
/// that sums it. Then it kills a client (and further ones, until recovery has undone a transaction), pauses a client
/// for longer than its lease, and kills and restarts the commit manager. The report lists every violation; an error
/// means that the test could not be carried out. Blocks; ends every client process that it started. Needs the
/// administration of the commit manager.
Result<FaultInjectionReport> run_fault_injection(LocalCluster& cluster, const FaultInjectionOptions& options);

}  // namespace loam::cli
