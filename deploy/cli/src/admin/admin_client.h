// Administration of a running cluster over gRPC.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"

namespace loam::cli {

/// What the commit manager and every storage node tell about themselves, as objects with the field names of their
/// protocols: {"manager": {…}, "nodes": [{"id": …, "live": …, "statistics": {…}}, …]}. A node that does not answer has
/// "error" in the place of "statistics". kUnavailable: the commit manager's administration does not answer.
Result<nlohmann::ordered_json> cluster_statistics(const std::string& admin_address);

/// HealthReply of a commit manager or a storage node. kUnavailable: nobody answers within `timeout_ns`.
Result<nlohmann::ordered_json> manager_health(const std::string& admin_address, uint64_t timeout_ns);
Result<nlohmann::ordered_json> node_health(const std::string& admin_address, uint64_t timeout_ns);

}  // namespace loam::cli
