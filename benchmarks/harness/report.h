// The report of a benchmark: figures, as a table for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "benchmarks/harness/measure.h"

namespace loam::bench {

/// Whether a higher or a lower value of a figure is better.
enum class Better { kHigher, kLower };

/// One measured value, under the name by which documents and targets refer to it.
struct Figure {
  std::string name;             ///< "net.tcp_vs_raw"
  std::optional<double> value;  ///< the median; none if it cannot be measured here, see `reason`
  std::string unit;             ///< "ratio", "ns", "calls/s", "bytes", …
  Better better = Better::kHigher;
  size_t n = 0;                                                       ///< number of samples
  double spread = 0;                                                  ///< of the samples, see Samples::spread()
  std::string reason;                                                 ///< why there is no value
  nlohmann::ordered_json options = nlohmann::ordered_json::object();  ///< conditions of the measurement: sizes, counts
};

/// The properties of the run that all rows of a report share.
struct RunInfo {
  std::string revision;  ///< git revision of the tree
  std::string build;     ///< compiler flags
  std::string host;      ///< processor, cores, kernel
  uint64_t seed = 0;     ///< of all data and choices
  bool quick = false;    ///< the run used --quick
};

/// Describes this host: processor, usable cores, kernel.
std::string describe_host();

/// Collects figures. Prints each as a row of a table as soon as it is added, and all of them as JSON lines at the end.
class Report {
 public:
  Report(RunInfo info, std::ostream& table) : info_(std::move(info)), table_(table) {}

  /// Adds a figure and prints its row.
  void add(Figure figure);
  /// Adds a figure with the median, count and spread of samples.
  void add(std::string name, const Samples& samples, std::string unit, Better better,
           nlohmann::ordered_json options = nlohmann::ordered_json::object());
  /// Adds a figure without a value because it cannot be measured here. A suite reports every figure and invents none.
  void add_unmeasured(std::string name, std::string unit, Better better, std::string reason);
  /// Prints a line that is not part of the JSON output.
  void note(std::string_view text);

  const RunInfo& info() const { return info_; }
  const std::vector<Figure>& figures() const { return figures_; }
  /// A figure as {"figure":…,"value":…,"unit":…,"better":…,"n":…,"spread":…,"options":{…},"revision":…,"host":…}. The
  /// value of an unmeasured figure is null, and the object has a "reason".
  nlohmann::ordered_json json_of(const Figure& figure) const;
  /// Writes all figures, one object a line.
  void write_json(std::ostream& out) const;

 private:
  RunInfo info_;
  std::ostream& table_;
  std::vector<Figure> figures_;
  bool header_printed_ = false;
};

}  // namespace loam::bench
