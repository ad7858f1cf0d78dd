// What a client process of the demo tells, a line of JSON at a time, and how the demo reads it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/cli/src/demo/histogram.h"
#include "deploy/cli/src/demo/movers.h"

namespace loam::cli {

/// How often a client process writes a line.
inline constexpr uint64_t kReportIntervalNs = 100'000'000;

/// What the client process of that number calls itself.
std::string session_name(unsigned client_number);

struct ClientLine {
  uint64_t at_ns = 0;  ///< the host's monotonic clock, the same in all processes
  MoverCounts counts;
  Histogram latencies;  ///< of the transfers acknowledged since the line before
  Silence silence;      ///< the longest that ended since the line before
  bool last = false;    ///< the client has ended orderly
};

std::string to_json_line(const ClientLine& line);
/// Whether `text` was a line of a report; other lines of the same output (warnings) are none.
bool from_json_line(std::string_view text, ClientLine& line);

/// Reads a growing file of such lines. One thread.
class ReportTail {
 public:
  explicit ReportTail(std::filesystem::path path) : path_(std::move(path)) {}

  /// Reads what has been added.
  const std::vector<ClientLine>& poll();
  const std::vector<ClientLine>& lines() const { return lines_; }
  uint64_t transfers() const { return lines_.empty() ? 0 : lines_.back().counts.transfers(); }

 private:
  std::filesystem::path path_;
  uint64_t offset_ = 0;
  std::vector<ClientLine> lines_;
};

}  // namespace loam::cli
