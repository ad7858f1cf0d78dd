// The list of sessions, which `loam sessions` and `loam status` print.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace loam::cli {

/// Prints the sessions as a table. `sessions` is the result of list_sessions().
void print_sessions(const nlohmann::ordered_json& sessions);

}  // namespace loam::cli
