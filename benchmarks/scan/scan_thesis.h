// The scans of the thesis [Thesis 4.5, 5.1]: log, hash index as a baseline, single gets; before and after a compaction.
#pragma once

#include <cstddef>

#include "benchmarks/harness/suite.h"

namespace loam::bench {

/// Adds scan.log_vs_hash and its components. Each measured scan returns all rows of a table of `rows` records of 200
/// bytes as chunks. The product scans the log. The baseline walks the hash index, whose growth is off, and reads one
/// entry after another, with and without prefetched memory. The measurement runs in process and without compaction:
/// first with one thread, then with two threads, which each read every second page of the log or half of the slots of
/// the index.
void measure_hash_scan(Run& run, size_t rows);

/// Adds scan.fig51_… and scan.fig52_…, the durations of figures 5.1 and 5.2. Figure 5.1: scans that return 100, 50, 25
/// and 12.5 % of the rows of a clean log, of a log that is half garbage, and through the index, and gets of the same
/// records one by one. Figure 5.2: a scan of all rows of a log that is half garbage, one while it is compacted, and one
/// afterwards.
void measure_thesis_figures(Run& run, size_t rows);

}  // namespace loam::bench
