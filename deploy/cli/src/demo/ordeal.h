// Money moves while processes die: what the demo does to a cluster and its clients, and what it sees.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "deploy/cli/src/cluster/local_cluster.h"
#include "deploy/cli/src/demo/histogram.h"

namespace loam::cli {

struct OrdealOptions {
  uint64_t accounts = 10'000;
  unsigned fibers = 32;                   ///< of each of the two clients
  uint64_t duration_ns = 10'000'000'000;  ///< longer if what is done takes longer
  uint64_t seed = 1;
  uint64_t lease_ns = 500'000'000;              ///< of a client, as the commit manager was told
  bool calm = false;                            ///< nobody is killed or paused
  std::filesystem::path program;                ///< `loam` itself: the client processes
  std::function<void(const std::string&)> say;  ///< what happens, a line at a time
};

/// Latencies of the transfers of some clients while something happened.
struct Episode {
  std::string name;   ///< for JSON, "client_killed"
  std::string title;  ///< for people
  Histogram latencies;
};

struct OrdealReport {
  double seconds = 0;
  uint64_t transfers = 0;  ///< acknowledged, as the clients told
  uint64_t gave_up = 0, unknown = 0, refused = 0;
  uint64_t scans = 0;          ///< with the right total
  uint64_t scans_refused = 0;  ///< while a server was away
  unsigned kills = 0;
  uint64_t rolled_back = 0;         ///< transactions, by recovery
  std::vector<uint64_t> locked_ns;  ///< for each key that a killed client held: from the kill to another's write
  uint64_t paused_ns = 0;
  uint64_t fenced = 0;           ///< sessions of the paused client that ended over it
  uint64_t went_on_ns = 0;       ///< from its continuation to its next transfer
  uint64_t manager_back_ns = 0;  ///< from the commit manager's kill to the first begin
  uint64_t sessions_ended = 0;   ///< of all clients, before they ended themselves
  std::vector<Episode> episodes;
  std::vector<std::string> wrong;  ///< what was not as it must be
};

nlohmann::ordered_json to_json(const OrdealReport& report);
/// A table.
std::string for_people(const OrdealReport& report, const OrdealOptions& options);

/// Fills the accounts of a running cluster, lets client processes move money and scans sum it, kills a client (and
/// another, until recovery has rolled back a transaction), pauses one for longer than its lease,
/// kills and restarts the commit manager. Whatever is not as it must be is in the report; an error: it could not be
/// done. Blocks; ends every client process that it started. Needs the administration of the commit manager.
Result<OrdealReport> run_ordeal(LocalCluster& cluster, const OrdealOptions& options);

}  // namespace loam::cli
