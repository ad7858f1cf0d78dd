// A storage node and memcached under the same load, in turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "benchmarks/measure.h"
#include "benchmarks/peers/content.h"
#include "benchmarks/peers/load.h"
#include "benchmarks/peers/memcached.h"
#include "benchmarks/peers/node.h"
#include "benchmarks/peers/server.h"
#include "benchmarks/report.h"

namespace loam::bench {

/// What one server did in all turns of a load.
struct PeerSamples {
  Samples per_s;
  Samples cpu_us;          ///< of the serving thread, an operation
  Samples process_cpu_us;  ///< of the whole process, an operation
  Samples client_busy;     ///< share of the time for which the load generator worked
  Samples p50_us, p99_us, p999_us;

  nlohmann::ordered_json to_json() const;
};

struct PeerPair {
  PeerSamples node, memcached;
};

/// Role: both servers, filled with the same records, and the load generators of both. Owner: a suite. One thread, which
/// is bound to a core of its own meanwhile. Throws as its parts do.
class Comparison {
 public:
  struct Options {
    Servers::Options servers{};
    size_t records = 1'000'000;
    size_t value_bytes = 200;
    uint64_t seed = 1;
  };

  explicit Comparison(const Options& options);

  /// The load on both, alternated turn by turn. `transactional`: gets of the storage node are reads in a snapshot.
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

/// A load generator that is busier tells its own speed, not the server's.
inline constexpr double kMostClientBusy = 0.95;

/// Why a figure of this pair says nothing about the servers: the load generator was busy all the time, or memcached far
/// from what it does on this class of machine (`reference_per_s`; 0: not asked). Empty: it does.
std::string void_reason(const PeerPair& pair, double reference_per_s);

/// A figure of a pair: the samples' median, or null for a `reason` of void_reason(), which then tells the median all
/// the same.
Figure figure_of(std::string name, const Samples& samples, std::string unit, Better better, const std::string& reason,
                 nlohmann::ordered_json options = nlohmann::ordered_json::object());

}  // namespace loam::bench
