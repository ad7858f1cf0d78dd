// Whether somebody's tail latency suffers from what others do, told on a machine that is not quiet itself.
#pragma once

#include <vector>

namespace loam::fuzz {

/// The 99th percentile of each window of a measurement, microseconds. The windows of the three groups were taken in
/// turns, in random order, so that what else goes on in the machine falls on all of them alike.
struct TailWindows {
  std::vector<double> good;     ///< beside good messages
  std::vector<double> control;  ///< beside good messages, too: differs from `good` by chance alone
  std::vector<double> mutated;  ///< beside as many mutated ones
};

/// Each ratio is the median of the ratios of all pairs of windows, one of each group (the estimator of Hodges and
/// Lehmann): a machine that makes any window thirty times slower with a chance of one half leaves it near 1, where a
/// ratio of two medians is thrown by a single window.
struct TailVerdict {
  double noise = 1;  ///< control over good, or good over control: what the measurement does to equals; at least 1
  double ratio = 1;  ///< mutated over both others
  /// So noisy that more windows are wanted. Does not look at the mutated ones: more are not taken until it suits.
  bool wants_more = false;
  bool suffers = false;
};

/// Times that the mutated windows may be slower than the others, and that equals may differ before more is measured.
inline constexpr double kMaxTailRatio = 3;
inline constexpr double kMaxTailNoise = 1.5;

/// `suffers` if the ratio is above kMaxTailRatio times the noise. No group is empty.
TailVerdict judge_tail(const TailWindows& windows);

}  // namespace loam::fuzz
