// Parses the output of loam-sim --json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

#include "common/base/status.h"

namespace loam::bench {

/// One campaign. Its output has one object a line for each seed, then one object with the totals.
struct SimOutput {
  std::map<uint64_t, uint64_t> hashes;  ///< hash of the events of each seed
  uint64_t seeds = 0;
  uint64_t failures = 0;
  uint64_t events = 0;
  double seconds = 0;      ///< wall-clock time
  double cpu_seconds = 0;  ///< CPU time of all simulating processes
};

/// Parses the output of a campaign. kMalformed: a line is no such object, the totals are missing, or they do not agree
/// with the seeds.
Result<SimOutput> parse_sim_output(std::string_view text);

/// Number of seeds that ran in both campaigns with different events.
size_t different_hashes(const SimOutput& a, const SimOutput& b);

}  // namespace loam::bench
