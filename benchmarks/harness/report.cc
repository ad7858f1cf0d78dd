// Each figure is printed at once, so that a run that is stopped has shown its figures up to then. The JSON lines come
// at the end.
#include "benchmarks/harness/report.h"

#include <cstdio>
#include <fstream>
#include <utility>

#include <sys/utsname.h>

namespace loam::bench {
namespace {

std::string format_value(const Figure& figure) {
  if (!figure.value) return "not measured";
  char text[64];
  const double value = *figure.value;
  if (value >= 10'000) {
    std::snprintf(text, sizeof(text), "%.0f", value);
  } else {
    std::snprintf(text, sizeof(text), "%.3g", value);
  }
  return text;
}

}  // namespace

std::string describe_host() {
  std::string cpu = "unknown processor";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    cpu = line.substr(line.find(':') + 2);
    break;
  }
  utsname kernel{};
  uname(&kernel);
  return cpu + ", " + std::to_string(usable_cores()) + " cores, Linux " + kernel.release;
}

void Report::add(Figure figure) {
  if (!header_printed_) {
    header_printed_ = true;
    char text[160];
    std::snprintf(text, sizeof(text), "%-34s %14s  %-10s %-6s %3s %7s  %s\n", "figure", "value", "unit", "better", "n",
                  "spread", "options");
    table_ << text;
  }
  char text[160];
  std::snprintf(text, sizeof(text), "%-34s %14s  %-10s %-6s %3zu %6.1f%%  ", figure.name.c_str(),
                format_value(figure).c_str(), figure.unit.c_str(),
                figure.better == Better::kHigher ? "higher" : "lower", figure.n, figure.spread * 100);
  table_ << text;
  if (!figure.value) table_ << figure.reason;
  const char* separator = "";
  for (const auto& [key, value] : figure.options.items()) {
    table_ << std::exchange(separator, " ") << key << '=' << value.dump();
  }
  table_ << std::endl;
  figures_.push_back(std::move(figure));
}

void Report::add(std::string name, const Samples& samples, std::string unit, Better better,
                 nlohmann::ordered_json options) {
  add(Figure{std::move(name), samples.median(), std::move(unit), better, samples.values.size(), samples.spread(), "",
             std::move(options)});
}

void Report::add_unmeasured(std::string name, std::string unit, Better better, std::string reason) {
  Figure figure;
  figure.name = std::move(name);
  figure.unit = std::move(unit);
  figure.better = better;
  figure.reason = std::move(reason);
  add(std::move(figure));
}

void Report::note(std::string_view text) { table_ << "  " << text << std::endl; }

nlohmann::ordered_json Report::json_of(const Figure& figure) const {
  nlohmann::ordered_json row;
  row["figure"] = figure.name;
  row["value"] = figure.value ? nlohmann::ordered_json(*figure.value) : nlohmann::ordered_json(nullptr);
  row["unit"] = figure.unit;
  row["better"] = figure.better == Better::kHigher ? "higher" : "lower";
  row["n"] = figure.n;
  row["spread"] = figure.spread;
  if (!figure.value) row["reason"] = figure.reason;
  row["options"] = figure.options;
  row["options"]["seed"] = info_.seed;
  row["options"]["quick"] = info_.quick;
  row["options"]["build"] = info_.build;
  row["revision"] = info_.revision;
  row["host"] = info_.host;
  return row;
}

void Report::write_json(std::ostream& out) const {
  for (const Figure& figure : figures_) out << json_of(figure).dump() << '\n';
  out.flush();
}

}  // namespace loam::bench
