// Writes and reads the reports of client processes, one JSON object a line.
#include "deploy/demo/client_report.h"

#include <fstream>

#include <nlohmann/json.hpp>

#include "deploy/cli/src/output/json_line.h"

namespace loam::cli {

std::string session_name(unsigned client_number) { return "loam demo client " + std::to_string(client_number); }

std::string to_json_line(const ClientReport& line) {
  return json_line({{"at_ns", line.at_ns},
                    {"acknowledged", line.counts.acknowledged},
                    {"unknown", line.counts.unknown},
                    {"gave_up", line.counts.retries_exhausted},
                    {"fenced", line.counts.fenced},
                    {"refused", line.counts.refused},
                    {"fatal", line.counts.fatal},
                    {"latencies", line.latencies.to_json()},
                    {"silence_ns", line.stall.length_ns},
                    {"silence_end_ns", line.stall.end_ns},
                    {"last", line.last}});
}

bool from_json_line(std::string_view text, ClientReport& line) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("at_ns")) return false;
  try {
    line.at_ns = json.at("at_ns").get<uint64_t>();
    line.counts.acknowledged = json.at("acknowledged").get<std::vector<uint64_t>>();
    line.counts.unknown = json.at("unknown").get<std::vector<uint64_t>>();
    line.counts.retries_exhausted = json.at("gave_up").get<uint64_t>();
    line.counts.fenced = json.at("fenced").get<uint64_t>();
    line.counts.refused = json.at("refused").get<uint64_t>();
    line.counts.fatal = json.at("fatal").get<std::string>();
    line.latencies = Histogram::from_json(json.at("latencies"));
    line.stall = {json.at("silence_ns").get<uint64_t>(), json.at("silence_end_ns").get<uint64_t>()};
    line.last = json.at("last").get<bool>();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return true;
}

const std::vector<ClientReport>& ReportTail::poll() {
  std::ifstream file(path_);
  file.seekg(static_cast<std::streamoff>(offset_));
  // A line without a line end is still being written, so eof() skips it and the next call reads it again.
  for (std::string text; std::getline(file, text) && !file.eof();) {
    offset_ += text.size() + 1;
    ClientReport line;
    if (from_json_line(text, line)) lines_.push_back(std::move(line));
  }
  return lines_;
}

}  // namespace loam::cli
