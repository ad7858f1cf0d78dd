// The metrics of a storage node.
#pragma once

#include <cstddef>
#include <string>

#include <loam/storage/statistics.h>

#include "common/latency/recorder.h"

namespace loam::storage {

/// Tables of which the metrics have numbers of their own: those with the most memory.
inline constexpr size_t kTablesInMetrics = 100;
/// The label `table` of the sums over all other tables. No table has this name.
inline constexpr const char* kOtherTables = "(others)";

/// Returns the metrics of the node, of its latencies and of its largest tables, for Prometheus. More tables would make
/// a scrape slow, and Prometheus large. The other tables appear as one, with the sums of their gauges. It has no
/// counters: a table that becomes one of the largest would make them fall, which Prometheus takes for a restart.
std::string metrics_of(NodeStatistics statistics, const latency::Latencies& latencies);

}  // namespace loam::storage
