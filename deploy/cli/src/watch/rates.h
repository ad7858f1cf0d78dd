// What changed between two looks at a cluster's statistics, per second.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace loam::cli {

/// Of two answers of cluster_statistics(), `seconds` apart: {"seconds": …, "manager": {"commits_per_s": …, "open": …},
/// "nodes": [{"node": …, "state": …, "operations_per_s": …, "memory_used_bytes": …}]}. Counters become rates, levels
/// are those of the later look. A server that was started anew between the two looks counts from its start.
nlohmann::ordered_json rates(const nlohmann::ordered_json& before, const nlohmann::ordered_json& after, double seconds);

/// The same for people, some lines.
std::string rates_for_people(const nlohmann::ordered_json& rates);

}  // namespace loam::cli
