// PostgreSQL under pgbench, as a server of its own. benchmarks/peers/postgres/tpcb.py is its program and describes the
// messages on the pipe.
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

/// TPC-B-like tables in a PostgreSQL server on this machine, which is tuned as far as possible without durability.
/// Owner: the suite. Threads: one. Throws std::runtime_error if the program does not answer as expected or finds sums
/// that do not agree.
class Postgres {
 public:
  /// The result of one run.
  struct Measured {
    double per_second = 0;  ///< transactions per second, by pgbench
    double latency_ms = 0;  ///< mean latency of a transaction
  };

  /// Starts the server. kUnavailable: there is no PostgreSQL here; the message says how to install it. `program`:
  /// tpcb.py; empty: the one in the source tree of this program.
  static Result<std::unique_ptr<Postgres>> start(const std::filesystem::path& program);

  std::string version() const;
  /// Creates new tables with `accounts` accounts for each branch.
  void fill(uint64_t branches, uint64_t accounts);
  /// Runs pgbench with `clients` clients for `seconds` seconds.
  Measured run(size_t clients, uint64_t seconds, uint64_t seed);

 private:
  explicit Postgres(std::unique_ptr<PeerProgram> program) : program_(std::move(program)) {}

  const std::unique_ptr<PeerProgram> program_;
};

}  // namespace loam::bench
