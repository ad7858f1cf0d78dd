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

#include "benchmarks/suite.h"
#include "revision.h"

namespace {

using namespace loam::bench;  // NOLINT(google-build-using-namespace): the program's own file

int run_program(int argc, char** argv) {
  CLI::App app{
      "Measures Loam's figures. Prints a table for people, and one JSON object a line for programs: after the\n"
      "table, or into the file of --json. Several suites run one after another, each with the options behind its "
      "name.\n"
      "benchmarks/README.md says what each figure means."};
  app.require_subcommand();  // one or more
  app.fallthrough();         // general options may stand behind the suite's name
  bool quick = false;
  uint64_t seed = 1;
  size_t turns = 5;
  std::string json_path;
  app.add_flag("--quick", quick, "finish within two minutes a suite");
  app.add_option("--seed", seed, "of all data and choices")->capture_default_str();
  app.add_option("--turns", turns, "of each alternation of variants")
      ->capture_default_str()
      ->check(CLI::Range(5, 1000));
  app.add_option("--json", json_path, "write the JSON lines into this file");

  std::sort(suites().begin(), suites().end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  std::map<const CLI::App*, std::unique_ptr<Suite>> choices;
  for (const SuiteEntry& entry : suites()) {
    CLI::App* command = app.add_subcommand(entry.name, entry.description);
    const auto [choice, added] = choices.emplace(command, entry.make());
    choice->second->add_options(*command);
  }
  CLI11_PARSE(app, argc, argv);

  std::ofstream json_file;
  if (!json_path.empty()) {
    json_file.open(json_path);
    if (!json_file) {
      std::cerr << "loam-bench: cannot write " << json_path << "\n";
      return 2;
    }
  }
  Report report({LOAM_REVISION, LOAM_BUILD_FLAGS, describe_host(), seed, quick}, std::cout);
  std::cout << "revision " << report.info().revision << ", built with " << report.info().build << "\non "
            << report.info().host << "\n\n";
  Run run{report, quick, seed, turns};
  for (const CLI::App* const command : app.get_subcommands()) choices.at(command)->run(run);
  report.write_json(json_path.empty() ? std::cout : json_file);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run_program(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "loam-bench: " << error.what() << "\n";
    return 1;
  }
}
