// Compares TPC-B-like transactions on Loam with the same transactions on PostgreSQL under pgbench.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "benchmarks/harness/suite.h"

namespace loam::bench {

/// The comparison behind tx.vs_postgres_tpcb, with its sizes and loads. A transaction adds one amount to an account, a
/// teller and a branch, reads the account, and inserts a row into the history. After each turn the sums of all four
/// must agree, on both sides.
class TpcbComparison {
 public:
  void add_options(CLI::App& app);
  /// Runs the comparison with a cluster of its own in this process. Without PostgreSQL the figures that need it are
  /// null, with the reason.
  void run(Run& run);

 private:
  uint64_t branches_ = 64;
  uint64_t accounts_ = 10'000;
  std::vector<size_t> fibers_ = {32, 64, 128};
  unsigned memory_mib_ = 1'024;
  std::string postgres_;
};

}  // namespace loam::bench
