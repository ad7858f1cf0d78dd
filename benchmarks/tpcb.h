// TPC-B-like transactions on Loam, beside the same on PostgreSQL under pgbench.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "benchmarks/suite.h"

namespace loam::bench {

/// Sizes and loads of the comparison, and how it is made: tx.vs_postgres_tpcb and what it comes of. A transaction adds
/// one amount to an account, a teller and a branch, reads the account, and writes a line into the history. After each
/// turn the sums of all four must agree, on either side.
class TpcbComparison {
 public:
  void add_options(CLI::App& app);
  /// With a cluster of its own in this process. Figures that need PostgreSQL are null, with the reason, where it is
  /// missing.
  void run(Run& run);

 private:
  uint64_t branches_ = 64;
  uint64_t accounts_ = 10'000;
  std::vector<size_t> fibers_ = {32, 64, 128};
  unsigned memory_mib_ = 1'024;
  std::string postgres_;
};

}  // namespace loam::bench
