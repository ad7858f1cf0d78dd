// What a benchmark says: figures, as a table for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "benchmarks/measure.h"

namespace loam::bench {

enum class Better { kHigher, kLower };

/// One measured number under the name that the targets know it by.
struct Figure {
  std::string name;             ///< "net.tcp_vs_raw"
  std::optional<double> value;  ///< the median; none if it cannot be measured here, and `reason` says why
  std::string unit;             ///< "ratio", "ns", "calls/s", "bytes", …
  Better better = Better::kHigher;
  size_t n = 0;       ///< repetitions
  double spread = 0;  ///< of these, see Samples::spread()
  std::string reason;
  nlohmann::ordered_json options = nlohmann::ordered_json::object();  ///< what it was measured with: sizes, counts
};

/// The run that all rows of a report share.
struct RunInfo {
  std::string revision;  ///< git's
  std::string build;     ///< compiler flags
  std::string host;      ///< processor, cores, kernel
  uint64_t seed = 0;
  bool quick = false;
};

/// Processor, usable cores, kernel.
std::string describe_host();

/// Collects figures, prints each as a row of a table as soon as it is known, and all as JSON lines.
class Report {
 public:
  Report(RunInfo info, std::ostream& table) : info_(std::move(info)), table_(table) {}

  void add(Figure figure);
  /// The usual case: median, count and spread of samples.
  void add(std::string name, const Samples& samples, std::string unit, Better better,
           nlohmann::ordered_json options = nlohmann::ordered_json::object());
  /// A figure that cannot be measured here. Never leave one out, never invent one.
  void add_unmeasured(std::string name, std::string unit, Better better, std::string reason);
  /// A line for people only.
  void note(std::string_view text);

  const RunInfo& info() const { return info_; }
  const std::vector<Figure>& figures() const { return figures_; }
  /// One object: {"figure":…,"value":…,"unit":…,"better":…,"n":…,"spread":…,"options":{…},"revision":…,"host":…}; an
  /// unmeasured one has a null value and a "reason".
  nlohmann::ordered_json json_of(const Figure& figure) const;
  /// One object a line.
  void write_json(std::ostream& out) const;

 private:
  RunInfo info_;
  std::ostream& table_;
  std::vector<Figure> figures_;
  bool header_printed_ = false;
};

}  // namespace loam::bench
