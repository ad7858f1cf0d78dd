// Decides whether the load of other clients worsens the tail latency of one client, on a machine with other load.
#pragma once

#include <vector>

namespace loam::fuzz {

/// The 99th percentile of each window of a measurement, in microseconds. The windows of the three groups alternate in
/// random order, so that other load of the machine disturbs all groups alike.
struct TailWindows {
  std::vector<double> good;     ///< beside well-formed messages
  std::vector<double> control;  ///< beside well-formed messages, too: differs from `good` by chance alone
  std::vector<double> mutated;  ///< beside the same number of mutated messages
};

/// The result of a comparison. Each ratio is the median of the ratios of all pairs of windows, one window of each
/// group (the Hodges-Lehmann estimator). A machine that makes any window thirty times slower with probability one
/// half leaves this estimate near 1; a single window can distort a ratio of two medians.
struct TailComparison {
  double noise = 1;  ///< control over good or good over control, whichever is at least 1: the error of the measurement
  double ratio = 1;  ///< mutated over both other groups
  /// The noise is so large that the test must measure more windows. This does not depend on the mutated windows, so
  /// that the test cannot repeat the measurement until its result suits.
  bool inconclusive = false;
  /// The mutated windows are slower than kMaxTailRatio times the noise.
  bool degraded = false;
};

/// Upper bound on the ratio for mutated windows, in multiples of the noise.
inline constexpr double kMaxTailRatio = 3;
/// Upper bound on the noise; above it the comparison is inconclusive.
inline constexpr double kMaxTailNoise = 1.5;

/// Compares the groups. No group is empty.
TailComparison compare_tail_latency(const TailWindows& windows);

}  // namespace loam::fuzz
