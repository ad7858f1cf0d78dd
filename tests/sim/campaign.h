// Many seeds, in child processes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/run.h"

namespace loam::sim {

struct CampaignOptions {
  uint64_t first_seed = 1;
  uint64_t seeds = 1;
  uint32_t jobs = 1;  ///< child processes at one time
  bool stop_at_failure = false;
};

struct CampaignReport {
  uint64_t seeds = 0;
  uint64_t failures = 0;
  uint64_t events = 0;
  uint64_t faults = 0;
  uint64_t transactions = 0;
  uint64_t commits = 0;
  double seconds = 0;      ///< of the wall clock
  double cpu_seconds = 0;  ///< of the children
  std::map<std::string, uint64_t, std::less<>> probes;
};

/// Runs the seeds in batches, each in a child process of its own: what crashed processes leave behind goes with it, and
/// an assertion or a hang of product code ends one seed only, as the invariants "assertion" and "hang". `on_run` is
/// told of every seed, in the order in which they end.
CampaignReport run_campaign(const CampaignOptions& options, const std::function<void(const RunReport&)>& on_run);

/// One run in a child process.
RunReport run_apart(const Plan& plan, const std::vector<size_t>& without);

/// The faults, by index, without which the plan does not fail in the same way: all others are left out.
std::vector<size_t> shrink(const Plan& plan, const std::string& invariant);

}  // namespace loam::sim
