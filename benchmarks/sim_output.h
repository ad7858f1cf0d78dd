// What the program loam-sim says with --json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

#include "common/base/status.h"

namespace loam::bench {

/// One campaign: an object a line for each seed, then one with the totals.
struct SimOutput {
  std::map<uint64_t, uint64_t> hashes;  ///< of each seed's events
  uint64_t seeds = 0;
  uint64_t failures = 0;
  uint64_t events = 0;
  double seconds = 0;      ///< of the wall clock
  double cpu_seconds = 0;  ///< of the simulating processes, all cores together
};

/// kMalformed if a line is no such object, the totals are missing, or do not fit the seeds.
Result<SimOutput> parse_sim_output(std::string_view text);

/// Seeds that ran in both and went another way.
size_t different_hashes(const SimOutput& a, const SimOutput& b);

}  // namespace loam::bench
