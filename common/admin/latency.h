// Latencies and slow operations for the administration and the metrics.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include <loam/admin/latency.pb.h>

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

}  // namespace loam
