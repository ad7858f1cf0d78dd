// Runs one seed, from the first process to the audit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/plan.h"

namespace loam::sim {

/// Limits in simulated time for each phase of a run without faults. They are long against the longest time-out that
/// occurs (a client's, 3 s), and short against a hang.
inline constexpr uint64_t kSetUpNs = 20'000'000'000;
inline constexpr uint64_t kProgressNs = 20'000'000'000;
inline constexpr uint64_t kEndNs = 40'000'000'000;
inline constexpr uint64_t kQuietNs = 20'000'000'000;
inline constexpr uint64_t kAuditNs = 20'000'000'000;

/// Options of one run.
struct RunOptions {
  /// Indexes of the plan's faults that are left out.
  std::vector<size_t> without;
  /// Receives every line of the trace; empty: no trace.
  std::function<void(const std::string& line)> trace;
};

/// The result of one run.
struct RunReport {
  uint64_t seed = 0;
  bool failed = false;
  std::string invariant;  ///< the violated invariant; empty if none
  std::string message;
  uint64_t events = 0;
  uint64_t hash = 0;
  uint64_t simulated_ns = 0;
  uint64_t faults = 0;  ///< faults that took place
  uint64_t crashes = 0;
  uint64_t transactions = 0;
  uint64_t commits = 0;
  std::map<std::string, uint64_t, std::less<>> probes;
};

/// Runs the plan and audits the cluster at the end. The same plan and options give the same report.
RunReport run(const Plan& plan, const RunOptions& options = {});

}  // namespace loam::sim
