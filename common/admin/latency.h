// Latencies and slow operations for the administration, the metrics and the history.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <loam/admin/latency.pb.h>
#include <loam/admin/statistics.pb.h>

#include "common/admin/metrics.h"
#include "common/latency/recorder.h"

namespace loam {

/// Upper bound on the slow operations of one reply.
inline constexpr size_t kMaxListedSlowOperations = 1'000;

/// Fills the reply to a request for slow operations.
void fill_slow_operations(latency::Latencies latencies, size_t max, admin::SlowOperationsReply& reply);

/// Adds the histograms of these kinds and stages: `<prefix>_request_seconds` and `<prefix>_stage_seconds`, and the
/// counter `<prefix>_slow_operations_total`.
void add_latencies(Metrics& metrics, const std::string& prefix, const latency::Latencies& latencies,
                   std::span<const latency::OperationKind> kinds, std::span<const latency::Stage> stages);

/// Kinds of operations whose recent latencies are counted together.
struct LatencyGroup {
  std::string_view name;                      ///< a plural, with which the names of the columns begin: "reads"
  std::vector<latency::OperationKind> kinds;  ///< the kinds of the group
};

/// Computes the latencies between two samples of the history (common/admin/history.h), for a few groups of operations.
///
/// A group has the columns `<name>_p50_ns`, `<name>_p99_ns` and `<name>_p999_ns`: what 50 %, 99 % and 99.9 % of its
/// operations did not exceed. The number 0 says that the group had no operation. Other numbers are upper bounds: less
/// than twice the exact quantile if that is above 1 us, because the bounds of a histogram's buckets double.
///
/// Owner: the administration of a server. Threads: one thread calls sample(), that of the history.
class RecentLatencies {
 public:
  /// `read` copies the latencies since the start of the server. Their list of slow operations may be empty.
  RecentLatencies(std::vector<LatencyGroup> groups, std::function<latency::Latencies()> read);

  /// Returns the columns of all groups.
  std::vector<admin::StatisticsTable::Column> columns() const;
  /// Returns the numbers of the columns for the operations that ended after the last call; in the first call, after the
  /// start of the server.
  std::vector<uint64_t> sample();

 private:
  const std::vector<LatencyGroup> groups_;
  const std::function<latency::Latencies()> read_;
  std::vector<latency::Histogram> before_;  // by group: the durations up to the last sample
};

}  // namespace loam
