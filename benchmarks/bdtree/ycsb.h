// Measures YCSB's workloads over records that clients find through a Bd-tree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "benchmarks/harness/suite.h"

namespace loam::bench {

/// The load of measure_ycsb().
struct YcsbLoad {
  uint64_t keys = 0;        ///< keys of each type before a measurement; 0: 10,000 with --quick, else 300,000
  uint64_t operations = 0;  ///< of a workload in one turn, a tenth for scans; 0: 500 with --quick, else 20,000
  size_t fibers = 32;
  size_t value_bytes = 200;
};

/// Minimum size of a value: it must hold a key of any type and a checksum.
inline constexpr size_t kMinYcsbValueBytes = 64;

/// Adds the figures bdtree.ycsb_*: the load, and workloads A to F with each type of key and each distribution.
void measure_ycsb(Run& run, const YcsbLoad& load);

}  // namespace loam::bench
