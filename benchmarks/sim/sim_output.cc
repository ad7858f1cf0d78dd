// The parser of the output of loam-sim --json. A campaign that ended early has no line of totals and is an error.
#include "benchmarks/sim/sim_output.h"

#include <string>

#include <nlohmann/json.hpp>

namespace loam::bench {
namespace {

Status malformed(const std::string& why) { return {StatusCode::kMalformed, "loam-sim: " + why}; }

}  // namespace

Result<SimOutput> parse_sim_output(std::string_view text) {
  SimOutput output;
  bool totals = false;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    if (totals) return malformed("a line after the totals");
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_discarded() || !object.is_object())
      return malformed("no JSON object: " + std::string(line.substr(0, 80)));
    try {
      if (object.contains("seed")) {
        output.hashes.emplace(object.at("seed").get<uint64_t>(), object.at("hash").get<uint64_t>());
        continue;
      }
      output.seeds = object.at("seeds").get<uint64_t>();
      output.failures = object.at("failures").get<uint64_t>();
      output.events = object.at("events").get<uint64_t>();
      output.seconds = object.at("seconds").get<double>();
      output.cpu_seconds = object.at("cpu_seconds").get<double>();
      totals = true;
    } catch (const nlohmann::json::exception& error) {
      return malformed(error.what());
    }
  }
  if (!totals) return malformed("it ended without its totals");
  if (output.hashes.size() != output.seeds || output.events == 0 || output.seconds <= 0 || output.cpu_seconds <= 0) {
    return malformed("totals of " + std::to_string(output.seeds) + " seeds and " + std::to_string(output.events) +
                     " events do not fit the " + std::to_string(output.hashes.size()) + " seeds that it told of");
  }
  return output;
}

size_t different_hashes(const SimOutput& a, const SimOutput& b) {
  size_t different = 0;
  for (const auto& [seed, hash] : a.hashes) {
    const auto other = b.hashes.find(seed);
    different += other != b.hashes.end() && other->second != hash ? 1 : 0;
  }
  return different;
}

}  // namespace loam::bench
