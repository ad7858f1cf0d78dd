// The thesis's scans [Thesis 4.5, 5.1]: the log, the hash index as a baseline, records one by one; around a compaction.
#pragma once

#include <cstddef>

#include "benchmarks/suite.h"

namespace loam::bench {

/// Adds scan.log_vs_hash and what lies behind it: a table of `rows` records of 200 bytes, all rows returned as chunks,
/// read from the log by the product's scan and by way of the index, whose growth is off, one entry after another or
/// with their memory fetched ahead. In process, no compaction; by one thread, then by two, which take every other page
/// of the log, and a half of the index's slots each.
void measure_hash_scan(Run& run, size_t rows);

/// Adds scan.fig51_… and scan.fig52_…: the durations of figures 5.1 and 5.2. Figure 5.1: scans that return 100, 50, 25
/// and 12.5 % of the rows, of a clean log, of one that is half garbage, by way of the index, and gets of the same
/// records one by one. Figure 5.2: a scan of all rows of a log that is half garbage, one while it is compacted, one
/// afterwards.
void measure_thesis_figures(Run& run, size_t rows);

}  // namespace loam::bench
