// The estimate uses every pair of windows, so that a few windows that other programs disturbed change it little.
#include "tests/fuzz/tail_comparison.h"

#include <algorithm>
#include <cstddef>

#include "common/base/assert.h"

namespace loam::fuzz {
namespace {

double ratio_of_pairs(const std::vector<double>& over, const std::vector<double>& under) {
  std::vector<double> ratios;
  ratios.reserve(over.size() * under.size());
  for (const double a : over) {
    for (const double b : under) ratios.push_back(a / b);
  }
  const auto middle = ratios.begin() + static_cast<ptrdiff_t>(ratios.size() / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  return *middle;
}

}  // namespace

TailComparison compare_tail_latency(const TailWindows& windows) {
  LOAM_CHECK(!windows.good.empty() && !windows.control.empty() && !windows.mutated.empty(), "each group is measured");
  TailComparison verdict;
  verdict.noise = ratio_of_pairs(windows.control, windows.good);
  verdict.noise = std::max(verdict.noise, 1 / verdict.noise);
  std::vector<double> others = windows.good;
  others.insert(others.end(), windows.control.begin(), windows.control.end());
  verdict.ratio = ratio_of_pairs(windows.mutated, others);
  verdict.inconclusive = verdict.noise > kMaxTailNoise;
  verdict.degraded = verdict.ratio > kMaxTailRatio * verdict.noise;
  return verdict;
}

}  // namespace loam::fuzz
