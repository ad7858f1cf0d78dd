// A suite of loam-bench: a file <suite>_suite.cc with a class and LOAM_BENCH_SUITE at its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "benchmarks/measure.h"
#include "benchmarks/report.h"

namespace loam::bench {

/// What a suite is given.
struct Run {
  Report& report;
  bool quick = false;  ///< within two minutes
  uint64_t seed = 0;   ///< of all data and choices
  size_t turns = 5;    ///< of every alternation
};

/// Measures the figures of one area. Made before the command line is read, so that it can add options of its own; then
/// run once. Checks its answers before it reports a time; scales its data by options, and reports them with each
/// figure.
class Suite {
 public:
  virtual ~Suite() = default;
  virtual void add_options(CLI::App& app) { static_cast<void>(app); }
  virtual void run(Run& run) = 0;
};

struct SuiteEntry {
  std::string name;
  std::string description;
  std::unique_ptr<Suite> (*make)();
};

/// All suites of the program, in the order of the linker.
inline std::vector<SuiteEntry>& suites() {
  static std::vector<SuiteEntry> all;
  return all;
}

struct SuiteRegistration {
  SuiteRegistration(std::string name, std::string description, std::unique_ptr<Suite> (*make)()) {
    suites().push_back({std::move(name), std::move(description), make});
  }
};

/// Makes `Type` the suite `name` of loam-bench.
#define LOAM_BENCH_SUITE(name, Type, description)                  \
  static const ::loam::bench::SuiteRegistration loam_bench_##name( \
      #name, description, []() -> std::unique_ptr<::loam::bench::Suite> { return std::make_unique<Type>(); })

}  // namespace loam::bench
