// YCSB's workloads over records that are found through a Bd-tree.
#pragma once

#include <cstddef>
#include <cstdint>

#include "benchmarks/suite.h"

namespace loam::bench {

struct YcsbLoad {
  uint64_t keys = 0;        ///< of each type, before anything is measured; 0: 10,000 with --quick, else 300,000
  uint64_t operations = 0;  ///< of a workload in one turn, scans a tenth; 0: 500 with --quick, else 20,000
  size_t fibers = 32;
  size_t value_bytes = 200;
};

/// The least that has room for a key of any type and a checksum.
inline constexpr size_t kLeastYcsbValueBytes = 64;

/// Adds the figures bdtree.ycsb_*: load, and workloads A to F with keys of each type and distribution.
void measure_ycsb(Run& run, const YcsbLoad& load);

}  // namespace loam::bench
