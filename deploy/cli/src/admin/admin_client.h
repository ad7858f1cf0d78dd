// Administration of a running cluster over gRPC.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"

namespace loam::cli {

/// All of these: objects with the field names of the services' protocols, names of enumerations in lower case.
/// kUnavailable: nobody answers there, or not in time.

/// What the commit manager and every storage node tell about themselves: {"manager": {…}, "nodes": [{"id": …, "state":
/// …, "statistics": {…}}, …]}. A node that does not answer has "error" in the place of "statistics".
Result<nlohmann::ordered_json> cluster_statistics(const std::string& admin_address);
/// Lists, as the commit manager knows them.
Result<nlohmann::ordered_json> list_nodes(const std::string& admin_address);
Result<nlohmann::ordered_json> list_sessions(const std::string& admin_address);
/// Names of the indexes that have to be made anew, since records were given up for lost.
Result<std::vector<std::string>> damaged_indexes(const std::string& admin_address);

/// Gives a storage node that has lost its records its shards back, empty (R10). kInvalidArgument: no such node, or it
/// has lost nothing.
Status accept_loss(const std::string& admin_address, uint64_t node, uint64_t timeout_ns);

/// Of a commit manager or a storage node.
Result<nlohmann::ordered_json> manager_health(const std::string& admin_address, uint64_t timeout_ns);
Result<nlohmann::ordered_json> node_health(const std::string& admin_address, uint64_t timeout_ns);

}  // namespace loam::cli
