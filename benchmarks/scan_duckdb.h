// Order lines in DuckDB and here, asked for the same sums in turns: scan.vs_duckdb_* and what is behind them.
#pragma once

#include <cstddef>

#include "benchmarks/peers/duckdb.h"
#include "benchmarks/suite.h"

namespace loam::bench {

/// Measures them, or says why they cannot be measured here. Takes memory for the rows of both. A sum that differs
/// between the two, or from that of the rows as they were made, ends the program.
void measure_duckdb(Run& run, size_t rows, const DuckDb::Options& options);

}  // namespace loam::bench
