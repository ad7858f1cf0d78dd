// Suite sim: the speed of the simulator, and a check that a seed determines a run. It runs the program loam-sim, whose
// variants of the libraries cannot be linked into one program with the real ones.
#include <array>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <string>

#include <sys/wait.h>

#include "benchmarks/harness/suite.h"
#include "benchmarks/sim/sim_output.h"
#include "common/command/number_options.h"

namespace loam::bench {
namespace {

namespace fs = std::filesystem;

/// Exit code of loam-sim if a seed failed.
constexpr int kSeedFailed = 1;

/// The program loam-sim of the same build as this program.
std::string find_program() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& candidate : {folder / "loam-sim", folder / "../tests/sim/loam-sim"}) {
    if (fs::exists(candidate, error)) return fs::weakly_canonical(candidate, error).string();
  }
  return {};
}

SimOutput campaign(const std::string& program, uint64_t first_seed, uint64_t seeds) {
  if (program.find('\'') != std::string::npos) throw std::runtime_error("a path with a quote: " + program);
  const std::string command = "'" + program + "' --json --jobs 1 --first-seed " + std::to_string(first_seed) +
                              " --seeds " + std::to_string(seeds);
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("cannot run " + program);
  std::string text;
  std::array<char, 65'536> buffer;
  for (size_t got = 0; (got = fread(buffer.data(), 1, buffer.size(), pipe)) != 0;) text.append(buffer.data(), got);
  const int status = pclose(pipe);
  if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != kSeedFailed)) {
    throw std::runtime_error(program + " ended with status " + std::to_string(status));
  }
  auto output = parse_sim_output(text);
  if (!output.ok()) throw std::runtime_error(output.status().to_string());
  if (output->seeds != seeds) throw std::runtime_error(program + " ran another number of seeds than it was told");
  return std::move(output).value();
}

class SimSuite final : public Suite {
 public:
  void add_options(CLI::App& app) override {
    app.add_option("--program", program_, "loam-sim; that of the same build if not given");
    command::add_unsigned(app, "--seeds", seeds_, {0, 1'000'000'000}, "of one turn; 0: 100 with --quick, else 500");
  }

  void run(Run& run) override {
    if (program_.empty()) program_ = find_program();
    if (program_.empty())
      return unmeasured(run.report, "loam-sim is not built: cmake --build --preset release --target loam-sim");
    const uint64_t seeds = seeds_ != 0 ? seeds_ : run.quick ? 100 : 500;
    const SimOutput first = campaign(program_, run.seed, seeds);  // does not count
    Samples events, minute, same;
    for (size_t turn = 0; turn < run.turns; ++turn) {
      const SimOutput again = campaign(program_, run.seed, seeds);
      events.values.push_back(static_cast<double>(again.events) / again.cpu_seconds);
      minute.values.push_back(60.0 * static_cast<double>(again.seeds) / again.seconds);
      same.values.push_back(1.0 - static_cast<double>(different_hashes(first, again)) / static_cast<double>(seeds));
    }
    const nlohmann::ordered_json options = {{"first_seed", run.seed},
                                            {"seeds", seeds},
                                            {"jobs", 1},
                                            {"events_per_seed", first.events / seeds},
                                            {"failed_seeds", first.failures}};
    run.report.add("sim.events_per_s", events, "events/s", Better::kHigher, options);
    run.report.add("sim.seeds_per_min", minute, "seeds/min", Better::kHigher, options);
    run.report.add("sim.same_hash", same, "ratio", Better::kHigher, options);
    if (first.failures != 0) run.report.note(std::to_string(first.failures) + " seeds FAILED: loam-sim says which");
  }

 private:
  static void unmeasured(Report& report, const std::string& why) {
    report.add_unmeasured("sim.events_per_s", "events/s", Better::kHigher, why);
    report.add_unmeasured("sim.seeds_per_min", "seeds/min", Better::kHigher, why);
    report.add_unmeasured("sim.same_hash", "ratio", Better::kHigher, why);
  }

  std::string program_;
  uint64_t seeds_ = 0;
};

LOAM_BENCH_SUITE(sim, SimSuite, "The simulator's speed, and that a seed says everything (sim.*)");

}  // namespace
}  // namespace loam::bench
