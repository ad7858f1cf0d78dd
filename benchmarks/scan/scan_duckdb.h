// Compares sums over order lines in DuckDB and in Loam, in turns: scan.vs_duckdb_* and their components.
#pragma once

#include <cstddef>

#include "benchmarks/harness/suite.h"
#include "benchmarks/peers/duckdb.h"

namespace loam::bench {

/// Adds the figures, or says why they cannot be measured here. The comparison needs memory for two copies of the
/// rows. It aborts the program if a sum of either side differs from the sum of the generated rows.
void measure_duckdb(Run& run, size_t rows, const DuckDb::Options& options);

}  // namespace loam::bench
