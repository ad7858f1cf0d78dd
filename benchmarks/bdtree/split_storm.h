// Measures lookups in a Bd-tree while another client process splits its nodes.
#pragma once

#include <cstdint>

#include "benchmarks/harness/suite.h"

namespace loam::bench {

/// The load of measure_split_storm().
struct SplitStormLoad {
  uint64_t keys = 0;     ///< keys in the tree before; 0: 10,000 with --quick, else 300,000
  uint64_t lookups = 0;  ///< lookups of one turn; 0: 2,000 with --quick, else 100,000
};

/// Adds the figures bdtree.split_storm_*.
void measure_split_storm(Run& run, const SplitStormLoad& load);

}  // namespace loam::bench
