// PostgreSQL as a server of its own under pgbench: benchmarks/peers/postgres/tpcb.py, which says what goes over the
// pipe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "benchmarks/peers/program.h"
#include "common/base/status.h"

namespace loam::bench {

/// TPC-B-like tables in a server on this machine, tuned as far as it goes without durability. Owner: the suite. One
/// thread. Throws std::runtime_error if the program does not do as it is asked, or finds sums that do not agree.
class Postgres {
 public:
  struct Measured {
    double per_second = 0;  ///< transactions, pgbench's count
    double latency_ms = 0;  ///< their mean
  };

  /// kUnavailable if there is no PostgreSQL here: the message says what to run. `program`: tpcb.py; empty: that of the
  /// tree which this program was built from.
  static Result<std::unique_ptr<Postgres>> start(const std::filesystem::path& program);

  std::string version() const;
  /// New tables, with so many accounts a branch.
  void fill(uint64_t branches, uint64_t accounts);
  /// So many clients for so long.
  Measured run(size_t clients, uint64_t seconds, uint64_t seed);

 private:
  explicit Postgres(std::unique_ptr<PeerProgram> program) : program_(std::move(program)) {}

  const std::unique_ptr<PeerProgram> program_;
};

}  // namespace loam::bench
