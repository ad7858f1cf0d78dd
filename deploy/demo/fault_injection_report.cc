// The result of the test as JSON and as a table for people.
#include <algorithm>

#include <fmt/format.h>

#include "deploy/cli/src/output/display_width.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/demo/fault_injection.h"

namespace loam::cli {
namespace {

uint64_t median(std::vector<uint64_t> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

uint64_t largest(const std::vector<uint64_t>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

double per_second(uint64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }

/// One line of the report: a name, and a value in a column of its own.
std::string line(std::string_view name, const std::string& value) {
  const size_t width = display_width(name);
  return fmt::format("  {}{}{}\n", name, std::string(width < 34 ? 34 - width : 1, ' '), value);
}

// A cell of the latency table, aligned to the right.
std::string cell(const std::string& text) {
  const size_t width = display_width(text);
  return std::string(width < 12 ? 12 - width : 1, ' ') + text;
}

std::string what_happened(const FaultInjectionReport& report, const FaultInjectionOptions& options) {
  std::string text = line("clients killed", with_thousands_separators(report.kills));
  text += line("transactions rolled back", with_thousands_separators(report.rolled_back));
  if (!report.locked_ns.empty()) {
    text += line("keys that the dead had locked",
                 fmt::format("{}: writable after {} (median), {} (all); the lease is {}", report.locked_ns.size(),
                             format_duration(median(report.locked_ns)), format_duration(largest(report.locked_ns)),
                             format_duration(options.lease_ns)));
  }
  text +=
      line("client paused", fmt::format("for {}: fenced, and moving money again within {}",
                                        format_duration(report.paused_ns), format_duration(report.resume_latency_ns)));
  text += line("commit manager killed",
               fmt::format("the first transaction began after {}", format_duration(report.manager_recovery_ns)));
  return text;
}

}  // namespace

nlohmann::ordered_json to_json(const FaultInjectionReport& report) {
  nlohmann::ordered_json json = {{"seconds", report.seconds},
                                 {"transactions", report.transfers},
                                 {"transactions_per_s", per_second(report.transfers, report.seconds)},
                                 {"given_up", report.retries_exhausted},
                                 {"sessions_ended", report.sessions_ended},
                                 {"refused", report.refused},
                                 {"unknown_outcomes", report.unknown},
                                 {"scans", report.scans},
                                 {"scans_refused", report.scans_refused},
                                 {"kills", report.kills},
                                 {"rolled_back", report.rolled_back},
                                 {"locked_keys", report.locked_ns.size()},
                                 {"locked_median_ns", median(report.locked_ns)},
                                 {"locked_max_ns", largest(report.locked_ns)},
                                 {"paused_ns", report.paused_ns},
                                 {"paused_fenced", report.fenced},
                                 {"paused_went_on_ns", report.resume_latency_ns},
                                 {"manager_back_ns", report.manager_recovery_ns},
                                 {"latencies", nlohmann::ordered_json::object()}};
  for (const LatencyPhase& phase : report.phases) {
    json["latencies"][phase.name] = {{"transactions", phase.latencies.count()},
                                     {"p50_ns", phase.latencies.quantile_ns(0.5)},
                                     {"p99_ns", phase.latencies.quantile_ns(0.99)},
                                     {"max_ns", phase.latencies.max_ns()}};
  }
  return json;
}

std::string format_report(const FaultInjectionReport& report, const FaultInjectionOptions& options) {
  std::string text =
      line("transfers",
           fmt::format("{} ({}/s)", with_thousands_separators(report.transfers),
                       with_thousands_separators(static_cast<uint64_t>(per_second(report.transfers, report.seconds)))));
  text += line("sums of all balances", fmt::format("{}{}", with_thousands_separators(report.scans),
                                                   report.wrong.empty() ? ", all of them exact" : ""));
  if (!options.fault_free) text += what_happened(report, options);
  text += fmt::format("\n  {:<34}{:>12}{:>12}{:>12}\n", "latency of a transfer while", "p50", "p99", "max");
  for (const LatencyPhase& phase : report.phases) {
    text += fmt::format("  {:<34}{}{}{}\n", phase.title, cell(format_duration(phase.latencies.quantile_ns(0.5))),
                        cell(format_duration(phase.latencies.quantile_ns(0.99))),
                        cell(format_duration(phase.latencies.max_ns())));
  }
  return text;
}

}  // namespace loam::cli
