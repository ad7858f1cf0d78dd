// The join of the records of client and servers.
#include "benchmarks/retail/slow_causes.h"

#include <algorithm>

namespace loam::bench {
namespace {

using latency::SlowOperation;
using latency::Stage;

/// Returns the record of the server that executed a client's request; null if it has none.
const SlowOperation* record_of(const SlowOperation& request, const std::vector<ServerLatencies>& servers) {
  const SlowOperation* found = nullptr;
  for (const ServerLatencies& server : servers) {
    if (server.node != request.node) continue;
    for (const SlowOperation& one : server.latencies.slow) {
      const bool same = one.session == request.session && one.first_sequence <= request.first_sequence &&
                        request.first_sequence <= one.last_sequence;
      if (same && (found == nullptr || one.stages.sum() > found->stages.sum())) found = &one;
    }
  }
  return found;
}

std::string cause_of(const SlowOperation& request, const std::vector<ServerLatencies>& servers) {
  const Stage longest = request.stages.longest();
  if (longest != Stage::kNetwork) return "client " + std::string(to_string(longest));
  const SlowOperation* const record = record_of(request, servers);
  if (record == nullptr || record->stages.sum() * 2 < request.stages[Stage::kNetwork]) return "unknown";
  const std::string server = request.node == 0 ? "manager" : "node " + std::to_string(request.node);
  return server + " " + std::string(to_string(record->stages.longest()));
}

}  // namespace

void SlowCauses::add(const latency::Latencies& client, const std::vector<ServerLatencies>& servers, uint64_t times) {
  for (const SlowOperation& request : client.slow) {
    const latency::Histogram& of_kind = client.kinds[static_cast<size_t>(request.kind)];
    if (request.stages.sum() <= times * of_kind.quantile_ns(0.5)) continue;
    const std::string cause = cause_of(request, servers);
    ++requests;
    named += cause == "unknown" ? 0 : 1;
    ++by_cause[cause];
  }
}

}  // namespace loam::bench
