// The Bd-tree over a cluster in this process: round trips, combining, bytes.
#pragma once

#include <cstdint>

#include "benchmarks/suite.h"

namespace loam::bench {

struct TreeLoad {
  uint64_t keys = 0;  ///< in the tree before anything is measured; 0: 300,000 with --quick, else 3,000,000
};

/// Adds the figures of suite bdtree that need a cluster.
void measure_tree(Run& run, const TreeLoad& load);

}  // namespace loam::bench
