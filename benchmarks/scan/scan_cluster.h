// Measures scans over TCP: how garbage, concurrent gets and slow readers affect them.
#pragma once

#include <cstddef>

#include "benchmarks/harness/suite.h"

namespace loam::bench {

/// Adds scan.garbage_penalty, scan.get_p99_under_scan and scan.slow_reader_p99_ratio with their components. Uses one
/// cluster in this process with two tables of `rows` records of 200 bytes. Half of one table is garbage that is never
/// collected.
void measure_scans_of_a_cluster(Run& run, size_t rows);

}  // namespace loam::bench
