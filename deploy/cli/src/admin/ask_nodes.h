// One question to every storage node of a cluster.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/status.h"

namespace loam::cli {

/// What one storage node replied.
struct NodeReply {
  uint64_t node = 0;
  Result<nlohmann::ordered_json> reply;
};

/// Calls ask(address) for each live storage node of `nodes`, which list_nodes() returned, and returns the replies in
/// that order. Several threads call it at the same time, because a node that hangs delays its reply by seconds. A node
/// without administration has an error instead of a reply.
std::vector<NodeReply> ask_nodes(const nlohmann::ordered_json& nodes,
                                 const std::function<Result<nlohmann::ordered_json>(const std::string& address)>& ask);

}  // namespace loam::cli
