// Rates per second between two samples of a cluster's statistics.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace loam::cli {

/// Computes rates from two results of cluster_statistics() that were taken `seconds` apart: {"seconds": …, "manager":
/// {"commits_per_s": …, "open": …}, "nodes": [{"node": …, "state": …, "operations_per_s": …, "memory_used_bytes": …}]}.
/// Counters become rates; levels are those of the later sample. The counters of a server that restarted between the
/// samples count from its start.
nlohmann::ordered_json rates(const nlohmann::ordered_json& before, const nlohmann::ordered_json& after, double seconds);

/// The rates as text for people, several lines.
std::string format_rates(const nlohmann::ordered_json& rates);

}  // namespace loam::cli
