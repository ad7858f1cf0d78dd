// The report that a client process of the demo prints, one line of JSON at a time, and the reader of such lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/demo/histogram.h"
#include "deploy/demo/transfer_workload.h"

namespace loam::cli {

/// Interval at which a client process prints a line.
inline constexpr uint64_t kReportIntervalNs = 100'000'000;

/// The session name of the client process with this number.
std::string session_name(unsigned client_number);

/// One line of a report. Counts are totals since the start of the process.
struct ClientReport {
  uint64_t at_ns = 0;  ///< on the host's monotonic clock, which all processes share
  TransferCounts counts;
  Histogram latencies;  ///< of the transfers that were acknowledged since the line before
  Stall stall;          ///< the longest stall that ended since the line before
  bool last = false;    ///< the last line of a client that ended by SIGTERM, not by a crash
};

/// A report as one line of JSON, without a line end.
std::string to_json_line(const ClientReport& line);
/// Parses a line. False if `text` is not a report; the same output contains warnings, too.
bool from_json_line(std::string_view text, ClientReport& line);

/// Reads a growing file of reports. Threads: one.
class ReportTail {
 public:
  explicit ReportTail(std::filesystem::path path) : path_(std::move(path)) {}

  /// Reads the lines that the process has added and returns all lines so far.
  const std::vector<ClientReport>& poll();
  const std::vector<ClientReport>& lines() const { return lines_; }
  /// The total of acknowledged transfers by the last line that was read.
  uint64_t transfers() const { return lines_.empty() ? 0 : lines_.back().counts.transfers(); }

 private:
  std::filesystem::path path_;
  uint64_t offset_ = 0;
  std::vector<ClientReport> lines_;
};

}  // namespace loam::cli
