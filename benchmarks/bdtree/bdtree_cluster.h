// The figures of suite bdtree that need a cluster: round trips, combined changes, bytes.
#pragma once

#include <cstdint>

#include "benchmarks/harness/suite.h"

namespace loam::bench {

/// The load of measure_tree().
struct TreeLoad {
  uint64_t keys = 0;  ///< keys in the tree before a measurement; 0: 300,000 with --quick, else 3,000,000
};

/// Measures a Bd-tree over a cluster in this process and adds the figures to the report.
void measure_tree(Run& run, const TreeLoad& load);

}  // namespace loam::bench
