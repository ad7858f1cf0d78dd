// `loam slow`: the slowest operations of the servers, with the stages of their time, once or continuously (--follow).
#include <algorithm>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "common/base/env.h"
#include "common/command/number_options.h"
#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/commands.h"
#include "deploy/cli/src/host/interrupt.h"
#include "deploy/cli/src/output/human_readable.h"
#include "deploy/cli/src/output/json_line.h"
#include "deploy/cli/src/output/object_table.h"

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

struct SlowCommandOptions {
  unsigned max = 20;
  double follow_s = 0;  // 0: list once
  uint64_t count = 0;   // number of listings; 0: until interrupted
};

/// The operations that are asked of each server with --follow: all that a server keeps.
constexpr unsigned kAllKept = 1'000;

// "session 7, requests 41 to 43"; "session 7, request 41".
std::string request_of(const Json& operation) {
  const uint64_t first = number(operation, "first_sequence");
  const uint64_t last = number(operation, "last_sequence");
  if (number(operation, "session") == 0) return "";
  const std::string requests =
      first == last ? fmt::format("request {}", first) : fmt::format("requests {} to {}", first, last);
  return fmt::format("session {}, {}", number(operation, "session"), requests);
}

// "queue 3.1 ms, execution 0.2 ms", without stages below a hundredth of the whole.
std::string stages_of(const Json& operation) {
  std::string text;
  for (const Json& stage : operation["stages"]) {
    if (number(stage, "ns") * 100 < number(operation, "total_ns")) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", loam::cli::text(stage, "stage"),
                        format_duration(number(stage, "ns")));
  }
  return text;
}

void print_operations(const Json& operations) {
  print_objects(OutputFormat::kTable,
                {duration_column("ago", "age_ns"), text_column("server", "server"), text_column("kind", "kind"),
                 duration_column("time", "total_ns"), text_column("cause", "cause"), made_column("stages", stages_of),
                 made_column("request", request_of)},
                operations, std::cout);
}

void print_slow_kinds(const Json& kinds) {
  print_objects(OutputFormat::kTable,
                {text_column("server", "server"), text_column("kind", "kind"), number_column("requests", "requests"),
                 duration_column("mean", "mean_ns"), duration_column("50 % within", "p50_ns"),
                 duration_column("99 % within", "p99_ns"), duration_column("99.9 % within", "p999_ns")},
                kinds, std::cout);
}

void print_errors(const Json& reply) {
  for (const Json& one : reply["errors"]) {
    std::cerr << fmt::format("loam: {} is left out: {}\n", text(one, "server"), text(one, "error"));
  }
}

int show_slow(const Context& context, const std::string& admin, unsigned max) {
  auto reply = slow_operations(admin, max);
  if (!reply.ok()) return fail(context, reply.status());
  // Each server sends `max` operations; the slowest of all are listed.
  Json& operations = (*reply)["operations"];
  if (operations.size() > max) operations.erase(operations.begin() + max, operations.end());
  if (context.json) {
    std::cout << json_line(*reply) << "\n";
    return kExitOk;
  }
  print_errors(*reply);
  print_slow_kinds((*reply)["kinds"]);
  if (operations.empty()) {
    std::cout << "\nno operation of the last minute took longer than 1 ms\n";
  } else {
    std::cout << "\nthe slowest operations of the last minute\n";
    print_operations(operations);
  }
  return kExitOk;
}

// Prints the operations that have ended since the last listing, until a signal arrives or `count` listings are printed.
int follow_slow(const Context& context, const std::string& admin, const SlowCommandOptions& options) {
  catch_interrupts();
  const auto interval_ns = static_cast<uint64_t>(options.follow_s * 1e9);
  using Id = std::tuple<std::string, std::string, uint64_t, uint64_t>;
  std::set<Id> seen;
  for (uint64_t shown = 0; options.count == 0 || shown < options.count; ++shown) {
    const uint64_t began_ns = Env::now_ns();
    const auto reply = slow_operations(admin, kAllKept);
    if (!reply.ok()) {
      if (const int code = fail(context, reply.status()); shown == 0) return code;
    } else {
      Json fresh = Json::array();
      std::set<Id> kept;
      for (const Json& one : (*reply)["operations"]) {
        Id id(text(one, "server"), text(one, "kind"), number(one, "session"), number(one, "first_sequence"));
        if (!seen.contains(id)) fresh.push_back(one);
        kept.insert(std::move(id));
      }
      seen = std::move(kept);  // an operation that the server has dropped does not come again
      if (fresh.size() > options.max) fresh.erase(fresh.begin() + options.max, fresh.end());
      std::stable_sort(fresh.begin(), fresh.end(), [](const Json& one, const Json& other) {
        return number(one, "age_ns") > number(other, "age_ns");
      });
      if (context.json) {
        for (const Json& one : fresh) std::cout << json_line(one) << "\n";
      } else {
        print_errors(*reply);
        if (!fresh.empty()) print_operations(fresh);
      }
      std::cout << std::flush;
      if (!std::cout) return kExitFailed;
    }
    const bool last = options.count != 0 && shown + 1 == options.count;
    if (!last && !sleep_until(began_ns + interval_ns)) break;
  }
  return kExitOk;
}

int run_slow(const Context& context, const SlowCommandOptions& options) {
  int exit_code = 0;
  const std::string admin = administration(context, exit_code);
  if (admin.empty()) return exit_code;
  return options.follow_s > 0 ? follow_slow(context, admin, options) : show_slow(context, admin, options.max);
}

}  // namespace

void add_slow(CLI::App& app, Context& context) {
  auto options = std::make_shared<SlowCommandOptions>();
  CLI::App* command =
      app.add_subcommand("slow", "List the slowest operations of all servers, and where their time went");
  command::add_unsigned(*command, "--max", options->max, {1, kAllKept}, "List at most this many")->type_name("N");
  constexpr double kShortestS = 0.1;
  constexpr double kLongestS = 3'600;
  constexpr uint64_t kMostListings = 1'000'000'000;
  CLI::Option* following = command::add_decimal(*command, "--follow", options->follow_s, {kShortestS, kLongestS},
                                                "List operations as they end, at this interval (default 1 s)")
                               ->expected(0, 1)
                               ->default_str("1")
                               ->type_name("SECONDS");
  command::add_unsigned(*command, "--count", options->count, {1, kMostListings}, "End after this number of listings")
      ->needs(following)
      ->default_str("");
  add_administration(*command, context);
  set_body(*command, context, [&context, options] { return run_slow(context, *options); });
}

}  // namespace loam::cli
