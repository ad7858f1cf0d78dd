// JSON as the program prints it: one line, whatever bytes the texts have.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace loam::cli {

/// Without line breaks; bytes that are no UTF-8 become U+FFFD.
inline std::string json_line(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace loam::cli
