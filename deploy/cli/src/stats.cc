// `loam stats`: prints all statistics once, or rates at an interval (--watch). admin/admin_client.h fetches them,
// watch/rates.h computes the rates.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "common/base/env.h"
#include "common/command/number_options.h"
#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/host/interrupt.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/watch/rates.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

// Formats a statistic by its unit, for example "memory_used_bytes"; every other number gets separators.
std::string shown(const std::string& name, const Json& value) {
  if (!value.is_number_unsigned()) return value.is_string() ? value.get<std::string>() : value.dump();
  const auto number = value.get<uint64_t>();
  if (name.ends_with("_bytes") || name.starts_with("bytes_")) return format_bytes(number);
  if (name.ends_with("_ns")) return format_duration(number);
  return with_thousands_separators(number);
}

void print_fields(const Json& object) {
  size_t width = 0;
  for (const auto& [name, value] : object.items()) width = std::max(width, name.size());
  for (const auto& [name, value] : object.items()) {
    if (value.is_structured()) continue;
    std::cout << fmt::format("  {:<{}}  {:>14}\n", name, width, shown(name, value));
  }
}

void print_tables(const Json& tables) {
  if (tables.empty()) return;
  std::vector<OutputColumn> columns;
  for (const auto& [name, value] : tables.front().items()) {
    columns.push_back({name, value.is_string() ? FieldType::kText : FieldType::kUint64});
  }
  auto printer = make_printer(OutputFormat::kTable, columns, std::cout);
  for (const Json& table : tables) {
    std::vector<Value> row;
    for (const auto& [name, value] : table.items()) {
      row.push_back(value.is_string() ? Value::text(value.get<std::string>()) : Value::uint64(value.get<uint64_t>()));
    }
    printer->row(row);
  }
  printer->finish();
}

struct StatsCommandOptions {
  double watch_s = 0;  // 0: print the statistics once
  uint64_t count = 0;  // number of intervals; 0: until interrupted
};

int show_once(const Context& context, const std::string& admin) {
  auto statistics = cluster_statistics(admin);
  if (!statistics.ok()) return fail(context, statistics.status());
  if (context.json) {
    std::cout << json_line(*statistics) << "\n";
    return kExitOk;
  }
  std::cout << "commit manager\n";
  print_fields((*statistics)["manager"]);
  for (const Json& node : (*statistics)["nodes"]) {
    std::cout << fmt::format("\nstorage node {} at {}, {}\n", node["id"].get<uint64_t>(),
                             node["address"].get<std::string>(), node["state"].get<std::string>());
    if (node.contains("error")) std::cout << "  " << node["error"].get<std::string>() << "\n";
    if (!node.contains("statistics")) continue;
    print_fields(node["statistics"]);
    std::cout << "\n";
    print_tables(node["statistics"]["tables"]);
  }
  return kExitOk;
}

// Prints rates until the count is reached or a signal arrives. The first sample must succeed. Later the command
// continues if the commit manager does not answer, for example because it restarts.
int watch(const Context& context, const StatsCommandOptions& options, const std::string& admin) {
  catch_interrupts();
  const bool redraws = !context.json && isatty(STDOUT_FILENO) == 1;
  const auto interval_ns = static_cast<uint64_t>(options.watch_s * 1e9);
  auto before = cluster_statistics(admin);
  if (!before.ok()) return fail(context, before.status());
  uint64_t before_ns = Env::now_ns();
  uint64_t next_ns = before_ns;
  for (uint64_t shown = 0; (options.count == 0 || shown < options.count) && std::cout; ++shown) {
    // The times are multiples of the interval, so the time of a request does not add up. After a long delay the missed
    // times are left out.
    next_ns = std::max(next_ns + interval_ns, Env::now_ns());
    if (!sleep_until(next_ns)) break;
    auto after = cluster_statistics(admin);
    const uint64_t after_ns = Env::now_ns();
    // Moves to the upper left corner and clears the screen below.
    if (redraws) std::cout << "\x1b[H\x1b[J";
    // `before` stays, so the next rates cover the whole time since the last sample.
    if (!after.ok()) {
      fail(context, after.status());
      continue;
    }
    const Json changes = rates(*before, *after, static_cast<double>(after_ns - before_ns) / 1e9);
    std::cout << (context.json ? json_line(changes) : format_rates(changes)) << std::endl;
    before = std::move(after);
    before_ns = after_ns;
  }
  return kExitOk;
}

int run_stats(const Context& context, const StatsCommandOptions& options) {
  int exit_code = 0;
  const std::string admin = administration(context, exit_code);
  if (admin.empty()) return exit_code;
  return options.watch_s > 0 ? watch(context, options, admin) : show_once(context, admin);
}

}  // namespace

void add_stats(CLI::App& app, Context& context) {
  auto options = std::make_shared<StatsCommandOptions>();
  CLI::App* command =
      app.add_subcommand("stats", "Statistics of the commit manager, the storage nodes and their tables");
  constexpr double kShortestS = 0.1;
  constexpr double kLongestS = 86'400;
  constexpr uint64_t kMostIntervals = 1'000'000'000;
  CLI::Option* watching = command::add_decimal(*command, "--watch", options->watch_s, {kShortestS, kLongestS},
                                               "Print rates at this interval (default 1 s) until Ctrl-C")
                              ->expected(0, 1)
                              ->default_str("1")
                              ->type_name("SECONDS");
  command::add_unsigned(*command, "--count", options->count, {1, kMostIntervals}, "End after this number of intervals")
      ->needs(watching)
      ->default_str("");
  add_administration(*command, context);
  set_body(*command, context, [&context, options] { return run_stats(context, *options); });
}

}  // namespace loam::cli
