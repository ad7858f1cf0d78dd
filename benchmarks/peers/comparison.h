// Compares a storage node with memcached under the same load, in turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "benchmarks/harness/measure.h"
#include "benchmarks/harness/report.h"
#include "benchmarks/peers/content.h"
#include "benchmarks/peers/load.h"
#include "benchmarks/peers/memcached.h"
#include "benchmarks/peers/node.h"
#include "benchmarks/peers/server.h"

namespace loam::bench {

/// The measurements of one server in all turns of a load.
struct PeerSamples {
  Samples per_s;           ///< operations per second
  Samples cpu_us;          ///< CPU time of the serving thread for each operation
  Samples process_cpu_us;  ///< CPU time of the whole process for each operation
  Samples client_busy;     ///< share of the time for which the load generator was busy
  Samples p50_us, p99_us, p999_us;

  nlohmann::ordered_json to_json() const;
};

/// The measurements of both servers.
struct PeerPair {
  PeerSamples node, memcached;
};

/// Runs both servers, filled with the same records, and a load generator for each. Owner: a suite. Threads: one, which
/// is bound to a core of its own meanwhile. Throws std::runtime_error as its parts do.
class Comparison {
 public:
  struct Options {
    Servers::Options servers{};
    size_t records = 1'000'000;
    size_t value_bytes = 200;
    uint64_t seed = 1;
  };

  explicit Comparison(const Options& options);

  /// Measures the load on both servers, in turns. With `transactional` the gets of the storage node read in a snapshot.
  PeerPair run(const LoadShape& shape, bool transactional, size_t turns);

 private:
  double turn(LoadGenerator& generator, const ServerProcess& server, const LoadShape& shape, PeerSamples& into);

  const Content content_;
  Servers servers_;
  MemcachedPeer memcached_;
  NodePeer node_;
  LoadGenerator memcached_load_;
  LoadGenerator node_load_;
};

/// Upper bound on PeerSamples::client_busy. A busier load generator measures its own speed, not the server's.
inline constexpr double kMaxClientBusy = 0.95;

/// Explains why the figures of a pair are invalid: the load generator was the bottleneck, or memcached was much slower
/// than it is on this class of machine (`reference_per_s`; 0: not compared). Empty if the figures are valid.
std::string invalid_reason(const PeerPair& pair, double reference_per_s);

/// Makes a figure of a pair: the median of the samples, or null if `reason`, from invalid_reason(), is not empty. The
/// reason of the figure then also has the median.
Figure figure_of(std::string name, const Samples& samples, std::string unit, Better better, const std::string& reason,
                 nlohmann::ordered_json options = nlohmann::ordered_json::object());

}  // namespace loam::bench
