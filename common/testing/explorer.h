// Explorer of interleavings: runs virtual threads in one operating-system thread and decides, from a seed, who runs
// next at every atomic operation of product code that was compiled against the simulator's Env.
//
//   ExploreReport report = explore({.schedules = 10'000}, [](Explorer& ex) {
//     auto counter = std::make_unique<Counter>();            // set-up: atomics are plain memory
//     ex.spawn("a", [&] { counter->add(); });
//     ex.spawn("b", [&] { counter->add(); });
//     ex.run();                                              // the schedule
//     ex.check(counter->value() == 2, "an increment was lost");
//   });
//   EXPECT_TRUE(report.ok()) << report.message;
//
// What it finds: errors of interleaving under sequential consistency. Errors of memory order are ThreadSanitizer's.
//
// Replay: a failure prints the seed of its schedule; LOAM_SEED=<seed> in the environment runs that one alone. A
// schedule of the exhaustive policy is replayed by LOAM_SCHEDULE=<decisions>. Scenarios must be deterministic apart
// from the schedule: no addresses as hash keys, no real time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/env_sim.h"
#include "common/testing/random.h"

namespace loam::testing {

/// How the next thread is chosen.
enum class Policy : uint8_t {
  /// At every point any thread, with equal chance. Finds most bugs of few steps.
  kRandom,
  /// Probabilistic concurrency testing: random priorities, lowered at `change_points` random points. Finds bugs that
  /// need
  /// one thread to sleep through much of another's work, with a guaranteed probability. [Burckhardt et al. 2010]
  kPriorities,
  /// kRandom and kPriorities in turn.
  kMixed,
  /// Every schedule with at most `preemptions` departures from running on. For small cases. Explorer::random() gives
  /// the same numbers in each.
  kExhaustive,
};

struct ExploreOptions {
  /// Schedules to run (kExhaustive: at most so many).
  uint64_t schedules = 1000;
  uint64_t base_seed = 1;
  Policy policy = Policy::kMixed;
  unsigned change_points = 3;
  unsigned preemptions = 2;
  /// More points than this in one run is a livelock.
  uint64_t max_points = 200'000;
  /// Go on after a failure and count (to measure how often a planted bug is found).
  bool stop_at_failure = true;
};

/// Outcome of explore().
struct ExploreReport {
  uint64_t schedules = 0;  ///< run
  uint64_t failures = 0;
  uint64_t points = 0;         ///< scheduling points over all schedules
  uint64_t first_failure = 0;  ///< number of the first failing schedule, from 1
  bool exhausted = false;      ///< kExhaustive: every schedule was run
  std::string message;         ///< of the first failure: what, the seed, the last switches
  bool ok() const { return failures == 0; }
};

/// Thrown out of Explorer::run() when the run cannot go on (livelock). The virtual threads are abandoned: their stacks
/// are never unwound, so what they hold stays as it is.
struct ExplorationAborted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One schedule. Owner: explore(), or a test that runs a single one. Everything happens in the calling thread.
class Explorer final : public SimScheduler {
 public:
  static constexpr size_t kMaxThreads = 16;
  static constexpr size_t kTraceLength = 48;

  explicit Explorer(uint64_t seed, const ExploreOptions& options = {});
  ~Explorer() override;
  Explorer(const Explorer&) = delete;
  Explorer& operator=(const Explorer&) = delete;

  /// Adds a virtual thread; it begins in run(). `name` must outlive the run (a literal).
  void spawn(const char* name, std::function<void()> body);
  /// Runs all spawned threads to their ends. May be called again after further spawn()s: a second phase of the
  /// schedule.
  void run();
  /// Records a failure, from a virtual thread or outside; the run goes on so that stacks unwind.
  void check(bool condition, std::string_view what);

  bool failed() const { return !failure_.empty(); }
  /// What failed, the seed to replay it, and the trace of the last switches.
  std::string message() const;
  uint64_t points() const { return points_; }
  uint64_t seed() const { return seed_; }
  /// Random numbers for the scenario's own choices, from the schedule's seed.
  Random& random() { return scenario_random_; }

  // SimScheduler, called by the simulated Env inside virtual threads.
  void point(const char* what) override;
  void yield() override;
  uint64_t now_ns() override { return now_ns_; }

 private:
  friend ExploreReport explore(const ExploreOptions& options, const std::function<void(Explorer&)>& scenario);
  struct Thread;
  struct Switch {
    uint64_t at = 0;
    const char* from = nullptr;
    const char* what = nullptr;  // what the thread that stopped was about to do
    const char* to = nullptr;
  };
  /// Why a choice is made: at a point, at a yield, or because the present thread ended.
  enum class Why : uint8_t { kPoint, kYield, kEnd };
  static constexpr size_t kNobody = SIZE_MAX;
  static constexpr uint64_t kPointNs = 10;
  static constexpr uint64_t kYieldNs = 1000;

  size_t choose(Why why);
  size_t choose_random();
  size_t choose_by_priority();
  size_t choose_exhaustive(Why why);
  void step(const char* what, Why why);
  void abandon();
  std::string trace() const;
  std::string replay() const;

  const uint64_t seed_;
  const ExploreOptions options_;
  Random random_;
  Random scenario_random_;
  bool by_priority_ = false;
  uint64_t stay_ = 1;  // kRandom: a point lets another run once in so many
  std::vector<uint64_t> change_at_;
  int64_t lowest_priority_ = 0;

  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<size_t> candidates_;  // of the choice being made
  size_t current_ = kNobody;        // who runs; nobody: the caller of run()
  size_t next_ = kNobody;           // whom run() resumes
  size_t unfinished_ = 0;
  bool livelock_ = false;
  uint64_t points_ = 0;
  uint64_t now_ns_ = 0;
  // kExhaustive: the decisions to repeat, then those made, and how many choices each had.
  std::vector<uint8_t> decisions_;
  std::vector<uint8_t> choices_;
  unsigned preemptions_ = 0;
  std::array<Switch, kTraceLength> trace_{};
  uint64_t switches_ = 0;
  std::string failure_;
};

/// Runs `scenario` under `options.schedules` schedules with seeds derived from the base seed, and reports the first
/// failure. LOAM_SEED and LOAM_SCHEDULE override. A scenario that throws fails.
ExploreReport explore(const ExploreOptions& options, const std::function<void(Explorer&)>& scenario);

}  // namespace loam::testing
