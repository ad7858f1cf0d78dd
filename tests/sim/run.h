// One seed, from the first process to the audit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/plan.h"

namespace loam::sim {

/// Simulated time within which a cluster without faults must have done what is asked of it. Generous against the
/// longest time-out in play (a client's, 3 s), small against never.
inline constexpr uint64_t kSetUpNs = 20'000'000'000;
inline constexpr uint64_t kProgressNs = 20'000'000'000;
inline constexpr uint64_t kEndNs = 40'000'000'000;
inline constexpr uint64_t kQuietNs = 20'000'000'000;
inline constexpr uint64_t kAuditNs = 20'000'000'000;

struct RunOptions {
  /// Faults of the plan, by index, that are left out.
  std::vector<size_t> without;
  std::function<void(const std::string& line)> trace;
};

struct RunReport {
  uint64_t seed = 0;
  bool failed = false;
  std::string invariant;  ///< its name
  std::string message;
  uint64_t events = 0;
  uint64_t hash = 0;
  uint64_t simulated_ns = 0;
  uint64_t faults = 0;  ///< that took place
  uint64_t crashes = 0;
  uint64_t transactions = 0;
  uint64_t commits = 0;
  std::map<std::string, uint64_t, std::less<>> probes;
};

RunReport run(const Plan& plan, const RunOptions& options = {});

}  // namespace loam::sim
