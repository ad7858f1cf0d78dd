// Zipf's distribution: few things are wanted often, most seldom.
#pragma once

#include <cstdint>

namespace loam::bench {

/// Ranks 0 to n - 1, of which rank r is drawn with a probability in proportion to (r + 1)^-theta. Ranks from 2 on are
/// drawn by an approximation in constant time, as YCSB does [Gray et al., Quickly generating billion-record synthetic
/// databases, 3.2]. Immutable. Making it costs n powers.
class Zipf {
 public:
  /// At least two ranks; 0 < theta < 1.
  Zipf(uint64_t ranks, double theta);

  /// Of a number drawn uniformly from [0, 1).
  uint64_t rank(double uniform) const;
  /// Its exact probability.
  double probability(uint64_t rank) const;

 private:
  double ranks_;
  double theta_;
  double zeta_ = 0;  // sum of all ranks' weights
  double eta_ = 0;
};

}  // namespace loam::bench
