// Zipf's distribution: a few items are requested often, and most items rarely.
#pragma once

#include <cstdint>

namespace loam::bench {

/// Draws ranks 0 to n - 1; the probability of rank r is proportional to (r + 1)^-theta. Ranks 0 and 1 are exact. Ranks
/// from 2 on use an approximation in constant time, as in YCSB [Gray et al., Quickly generating billion-record
/// synthetic databases, 3.2]. Immutable. The constructor computes n powers.
class Zipf {
 public:
  /// `ranks` is at least 2; 0 < theta < 1.
  Zipf(uint64_t ranks, double theta);

  /// The rank for a number that was drawn uniformly from [0, 1).
  uint64_t rank(double uniform) const;
  /// The exact probability of a rank.
  double probability(uint64_t rank) const;

 private:
  double ranks_;
  double theta_;
  double zeta_ = 0;  // sum of all ranks' weights
  double eta_ = 0;
};

}  // namespace loam::bench
