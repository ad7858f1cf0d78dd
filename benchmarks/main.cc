// loam-bench [--quick] [--seed N] [--turns N] [--json FILE] SUITE [options of the suite] [SUITE …]

#include <algorithm>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "benchmarks/harness/suite.h"
#include "common/command/number_options.h"
#include "common/program/arguments.h"
#include "common/program/standard_streams.h"
#include "revision.h"

namespace {

using namespace loam::bench;  // NOLINT(google-build-using-namespace): the program's own file

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

int run_program(int argc, char** argv) {
  CLI::App app{
      "Measures Loam's figures. Prints a table for people, and one JSON object a line for programs: after the\n"
      "table, or into the file of --json. Several suites run one after another, each with the options behind its "
      "name.\n"
      "benchmarks/README.md says what each figure means."};
  app.set_version_flag("--version", "loam-bench " LOAM_VERSION);
  app.require_subcommand();  // one or more
  app.fallthrough();         // general options may stand behind the suite's name
  bool quick = false;
  uint64_t seed = 1;
  size_t turns = 5;
  std::string json_path;
  app.add_flag("--quick", quick, "finish within two minutes a suite");
  loam::command::add_unsigned(app, "--seed", seed, {}, "of all data and choices");
  loam::command::add_unsigned(app, "--turns", turns, {5, 1000}, "of each alternation of variants");
  app.add_option("--json", json_path, "write the JSON lines into this file");

  std::sort(suites().begin(), suites().end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::map<const CLI::App*, std::unique_ptr<Suite>> choices;
  for (const SuiteEntry& entry : suites()) {
    CLI::App* command = app.add_subcommand(entry.name, entry.description);
    const auto [choice, added] = choices.emplace(command, entry.make());
    choice->second->add_options(*command);
  }
  try {
    app.parse(loam::program::parser_arguments(argc, argv));
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }

  std::ofstream json_file;
  if (!json_path.empty()) {
    json_file.open(json_path);
    if (!json_file) {
      std::cerr << "loam-bench: cannot write " << json_path << "\n";
      return kExitUsage;
    }
  }
  Report report({LOAM_REVISION, LOAM_BUILD_FLAGS, describe_host(), seed, quick}, std::cout);
  std::cout << "revision " << report.info().revision << ", built with " << report.info().build << "\non "
            << report.info().host << "\n\n";
  Run run{report, quick, seed, turns};
  for (const CLI::App* const command : app.get_subcommands()) choices.at(command)->run(run);
  report.write_json(json_path.empty() ? std::cout : json_file);
  if (json_path.empty()) return 0;
  json_file.close();
  if (json_file) return 0;
  std::cerr << "loam-bench: " << json_path << " is incomplete: it cannot be written to its end\n";
  return kExitFailed;
}

}  // namespace

int main(int argc, char** argv) {
  loam::program::StandardStreams streams;
  try {
    const int code = run_program(argc, argv);
    const loam::Status written = streams.finish();
    if (!written.ok()) std::cerr << "loam-bench: " << written.message() << std::endl;
    return written.ok() || code != 0 ? code : kExitFailed;
  } catch (const std::exception& error) {
    std::cerr << "loam-bench: " << error.what() << "\n";
    return kExitFailed;
  }
}
