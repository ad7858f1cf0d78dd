// loam-sim runs a whole cluster in one thread, from a seed. See tests/sim/README.md.

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "common/base/log.h"
#include "tests/sim/campaign.h"
#include "tests/sim/probe_names.h"
#include "tests/sim/simulator.h"
#if __has_include("common/base/mutants.h")
#include "common/base/mutants.h"
#endif

namespace {

using namespace loam::sim;  // this file is the program
using nlohmann::json;

void print_failure(const RunReport& report) {
  std::cout << "seed " << report.seed << " FAILED: " << report.invariant << "\n  " << report.message
            << "\n  replay: make sim SEED=" << report.seed << "\n";
}

/// Runs one seed with its trace. If it fails, finds the faults that it needs.
int replay(uint64_t seed, bool trace, bool shrinks) {
  const Plan plan = make_plan(seed);
  std::cout << "seed " << seed << ": " << plan.nodes << " nodes, " << plan.clients << " clients, " << plan.faults.size()
            << " faults until " << plan.faults_end_ns / 1'000'000 << " ms, " << plan.memory_bytes / 1'024
            << " KiB in pages of " << plan.page_bytes / 1'024 << ", commit log " << to_string(plan.log_mode)
            << (plan.power_cuts ? " with power cuts" : "") << "\n";
  for (const Fault& fault : plan.faults) std::cout << "  " << describe(fault, plan.nodes) << "\n";
  std::cout.flush();
  RunOptions options;
  if (trace) options.trace = [](const std::string& line) { std::puts(line.c_str()); };
  // With a trace the run takes place in this process, so that its lines reach stdout. Otherwise it takes place in a
  // child process, so that an assertion becomes a report.
  const RunReport report = trace ? run(plan, options) : run_in_child_process(plan, {});
  std::cout << (report.failed ? "FAILED" : "passed") << ": " << report.events << " events, "
            << report.simulated_ns / 1'000'000 << " ms, " << report.transactions << " transactions, hash " << std::hex
            << report.hash << std::dec << "\n";
  if (!report.failed) return 0;
  print_failure(report);
  if (!shrinks) return 1;
  std::cout << "the faults that the failure needs:\n";
  for (const size_t i : shrink(plan, report.invariant))
    std::cout << "  " << describe(plan.faults[i], plan.nodes) << "\n";
  return 1;
}

void print_summary(const CampaignReport& total) {
  std::cout << total.seeds << " seeds, " << total.failures << " failed; " << total.faults << " faults, "
            << total.transactions << " transactions, " << total.commits << " commits; " << total.events << " events, "
            << static_cast<uint64_t>(static_cast<double>(total.events) / total.cpu_seconds) << " a second of CPU time, "
            << static_cast<uint64_t>(60.0 * static_cast<double>(total.seeds) / total.seconds) << " seeds a minute\n";
  std::string never;
  for (const char* name : kProbeNames) {
    if (!total.probes.contains(name)) never += std::string("\n  ") + name;
  }
  std::cout << (never.empty() ? "every probe was hit" : "probes never hit:" + never) << "\n";
}

int campaign(const CampaignOptions& options, bool as_json, bool shrinks) {
  const CampaignReport total = run_campaign(options, [&](const RunReport& run) {
    if (as_json) {
      std::cout << json{{"seed", run.seed},
                        {"failed", run.failed},
                        {"invariant", run.invariant},
                        {"message", run.message},
                        {"events", run.events},
                        {"hash", run.hash},
                        {"transactions", run.transactions}}
                       .dump(-1, ' ', false, json::error_handler_t::replace)
                << "\n";
      return;
    }
    if (run.failed) print_failure(run);
    if (run.failed && shrinks) {
      const Plan plan = make_plan(run.seed);
      std::cout << "  the faults that the failure needs:\n";
      for (const size_t i : shrink(plan, run.invariant)) {
        std::cout << "    " << describe(plan.faults[i], plan.nodes) << "\n";
      }
    }
  });
  if (as_json) {
    std::cout << json{{"seeds", total.seeds},     {"failures", total.failures},         {"events", total.events},
                      {"faults", total.faults},   {"transactions", total.transactions}, {"commits", total.commits},
                      {"seconds", total.seconds}, {"cpu_seconds", total.cpu_seconds},   {"probes", total.probes}}
              << "\n";
  } else {
    print_summary(total);
  }
  return total.failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "Runs a whole Loam cluster in one thread, from a seed: processes crash, stall and lose their network, and the\n"
      "results that clients saw are checked. Exit code 1: a seed failed."};
  CampaignOptions options;
  bool as_json = false;
  bool trace = false;
  bool shrinks = false;
  uint64_t seed = 0;
  app.add_option("--seeds", options.seeds, "number of seeds")->capture_default_str();
  app.add_option("--first-seed", options.first_seed, "first seed")->capture_default_str();
  app.add_option("--jobs", options.jobs, "number of child processes")->capture_default_str()->check(CLI::Range(1, 256));
  CLI::Option* one = app.add_option("--seed", seed, "run only this seed");
  app.add_flag("--trace", trace, "with --seed: print every named step");
  app.add_flag("--shrink", shrinks, "find the faults that a failing seed needs");
  app.add_flag("--stop-at-failure", options.stop_at_failure, "end with the first seed that fails");
  app.add_flag("--json", as_json, "print one JSON object a line: one for each seed, then the totals");
#if __has_include("common/base/mutants.h")
  std::string mutant;
  app.add_option("--mutant", mutant, "the mutant that is built in");
#endif
  CLI11_PARSE(app, argc, argv);
#if __has_include("common/base/mutants.h")
  if (!mutant.empty() && !loam::mutants::select(mutant)) {
    std::cerr << "loam-sim: there is no mutant " << mutant << "\n";
    return 2;
  }
#endif
  loam::set_log_sink([](const loam::LogLine& line) {
    if (auto* simulator = dynamic_cast<Simulator*>(loam::sim_scheduler); simulator != nullptr)
      simulator->trace("log: " + std::string(line.message));
  });
  if (one->count() > 0) return replay(seed, trace, shrinks);
  return campaign(options, as_json, shrinks);
}
