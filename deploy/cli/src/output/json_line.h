// JSON output: one object a line.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace loam::cli {

/// Serialises a value without line breaks. Bytes that are not UTF-8 become U+FFFD, so every text can be printed.
inline std::string json_line(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace loam::cli
