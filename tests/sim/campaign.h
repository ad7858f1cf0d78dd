// Runs many seeds, each in a child process.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/run.h"

namespace loam::sim {

/// The seeds of a campaign, and how it runs them.
struct CampaignOptions {
  uint64_t first_seed = 1;
  uint64_t seeds = 1;
  uint32_t jobs = 1;  ///< child processes at one time
  bool stop_at_failure = false;
};

/// Sums over all runs of a campaign.
struct CampaignReport {
  uint64_t seeds = 0;
  uint64_t failures = 0;
  uint64_t events = 0;
  uint64_t faults = 0;
  uint64_t transactions = 0;
  uint64_t commits = 0;
  double seconds = 0;      ///< elapsed time
  double cpu_seconds = 0;  ///< processor time of the child processes
  std::map<std::string, uint64_t, std::less<>> probes;
};

/// Runs the seeds, each in a child process of its own. The memory of crashed simulated processes ends with the child
/// process, and an assertion or a hang of product code ends one seed only; such a seed violates the invariant
/// "assertion" or "hang". `on_run` receives the report of every seed, in the order in which the seeds end.
CampaignReport run_campaign(const CampaignOptions& options, const std::function<void(const RunReport&)>& on_run);

/// Runs the plan once in a child process, without the faults whose indexes are in `without`.
RunReport run_in_child_process(const Plan& plan, const std::vector<size_t>& without);

/// Finds the faults that a failing plan needs. Returns the indexes of all faults that can be left out: without them
/// the plan still violates `invariant`.
std::vector<size_t> shrink(const Plan& plan, const std::string& invariant);

}  // namespace loam::sim
