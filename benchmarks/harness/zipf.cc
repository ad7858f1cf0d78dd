// The inverse of the distribution, approximated as in [Gray et al., 3.2]. The constants of one distribution are
// computed once, in the constructor.
#include "benchmarks/harness/zipf.h"

#include <algorithm>
#include <cmath>

namespace loam::bench {

Zipf::Zipf(uint64_t ranks, double theta) : ranks_(static_cast<double>(ranks)), theta_(theta) {
  // Adds the smallest weights first, so that rounding loses less of them.
  for (uint64_t rank = ranks; rank-- > 0;) zeta_ += std::pow(static_cast<double>(rank + 1), -theta);
  const double zeta_2 = 1 + std::pow(0.5, theta);
  eta_ = (1 - std::pow(2 / ranks_, 1 - theta)) / (1 - zeta_2 / zeta_);
}

uint64_t Zipf::rank(double uniform) const {
  const double weight = uniform * zeta_;
  if (weight < 1) return 0;
  if (weight < 1 + std::pow(0.5, theta_)) return 1;
  const double rank = ranks_ * std::pow(eta_ * uniform - eta_ + 1, 1 / (1 - theta_));
  return static_cast<uint64_t>(std::clamp(rank, 0.0, ranks_ - 1));
}

double Zipf::probability(uint64_t rank) const { return std::pow(static_cast<double>(rank + 1), -theta_) / zeta_; }

}  // namespace loam::bench
