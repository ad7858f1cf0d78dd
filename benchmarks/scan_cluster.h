// Scans of a storage node by clients over TCP: what garbage, gets and slow readers have to do with them.
#pragma once

#include <cstddef>

#include "benchmarks/suite.h"

namespace loam::bench {

/// Adds scan.garbage_penalty, scan.get_p99_under_scan and scan.slow_reader_p99_ratio, with what lies behind them. One
/// cluster in this process; two tables of `rows` records of 200 bytes, half of one of them garbage, which nobody
/// collects.
void measure_scans_of_a_cluster(Run& run, size_t rows);

}  // namespace loam::bench
