// Causes of slow requests: what the client recorded, joined with what the servers recorded under the same id.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/latency/recorder.h"

namespace loam::bench {

/// What one server recorded.
struct ServerLatencies {
  uint64_t node = 0;  ///< the storage node; 0: the commit manager
  latency::Latencies latencies;
};

/// How many slow requests there were, by cause.
struct SlowCauses {
  uint64_t requests = 0;                     ///< requests above the limit
  uint64_t named = 0;                        ///< requests with a named cause
  std::map<std::string, uint64_t> by_cause;  ///< "client scheduling", "node 1 queue", …, "unknown"

  /// Adds the requests of a client that took longer than `times` the median of their kind.
  ///
  /// The cause of a request is its longest stage. If that is the wait for the network and the server, the cause is the
  /// longest stage that the server recorded for the same session and sequence, provided that its stages are at least
  /// half of the wait. Otherwise the cause is unknown.
  void add(const latency::Latencies& client, const std::vector<ServerLatencies>& servers, uint64_t times);
};

}  // namespace loam::bench
