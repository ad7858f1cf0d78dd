// The scans of the thesis [Thesis 4.5, 5.1]: log, hash index as a baseline, single gets; before and after a compaction.
#pragma once

#include <cstddef>

#include "benchmarks/harness/suite.h"

namespace loam::bench {

/// Adds scan.log_vs_hash and its components. A table of `rows` records of 200 bytes is scanned and all rows are
/// returned as chunks: from the log, by the product's scan, and through the index, whose growth is off, one entry after
/// another or with prefetched memory. In process, without compaction; by one thread, then by two threads, which each
/// take every second page of the log or half of the index's slots.
void measure_hash_scan(Run& run, size_t rows);

/// Adds scan.fig51_… and scan.fig52_…, the durations of figures 5.1 and 5.2. Figure 5.1: scans that return 100, 50, 25
/// and 12.5 % of the rows of a clean log, of a log that is half garbage, and through the index, and gets of the same
/// records one by one. Figure 5.2: a scan of all rows of a log that is half garbage, one while it is compacted, and one
/// afterwards.
void measure_thesis_figures(Run& run, size_t rows);

}  // namespace loam::bench
