// Suites of loam-bench. A suite is a file <suite>_suite.cc with a class and LOAM_BENCH_SUITE at its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "benchmarks/harness/measure.h"
#include "benchmarks/harness/report.h"

namespace loam::bench {

/// The parameters of one run of a suite.
struct Run {
  Report& report;      ///< receives the figures
  bool quick = false;  ///< finish within two minutes
  uint64_t seed = 0;   ///< of all data and choices
  size_t turns = 5;    ///< of every alternate()
};

/// Measures the figures of one area. The program creates every suite before it parses the command line, so that a suite
/// can add options, and runs the chosen ones once. A suite checks the answers of the code under test before it reports
/// a time. It scales its data by options and reports them with each figure.
class Suite {
 public:
  virtual ~Suite() = default;
  /// Adds the options of the suite to the command line.
  virtual void add_options(CLI::App& app) { static_cast<void>(app); }
  /// Measures and reports all figures of the suite.
  virtual void run(Run& run) = 0;
};

/// A suite that is linked into the program.
struct SuiteEntry {
  std::string name;
  std::string description;
  std::unique_ptr<Suite> (*make)();
};

/// All suites of the program, in the order in which the linker placed them.
inline std::vector<SuiteEntry>& suites() {
  static std::vector<SuiteEntry> all;
  return all;
}

/// Registers a suite at program start; LOAM_BENCH_SUITE defines one.
struct SuiteRegistration {
  SuiteRegistration(std::string name, std::string description, std::unique_ptr<Suite> (*make)()) {
    suites().push_back({std::move(name), std::move(description), make});
  }
};

/// Registers the class `Type` as the suite `name` of loam-bench.
#define LOAM_BENCH_SUITE(name, Type, description)                  \
  static const ::loam::bench::SuiteRegistration loam_bench_##name( \
      #name, description, []() -> std::unique_ptr<::loam::bench::Suite> { return std::make_unique<Type>(); })

}  // namespace loam::bench
