// The explorer of interleavings: it runs the virtual threads of a test in one thread of the operating system. At every
// atomic operation of product code that was compiled for the simulator, it decides from a seed which thread runs next.
//
//   ExploreReport report = explore({.schedules = 10'000}, [](Explorer& ex) {
//     auto counter = std::make_unique<Counter>();            // set-up; atomics are plain memory here
//     ex.spawn("a", [&] { counter->add(); });
//     ex.spawn("b", [&] { counter->add(); });
//     ex.run();                                              // runs one schedule
//     ex.check(counter->value() == 2, "an increment was lost");
//   });
//   EXPECT_TRUE(report.ok()) << report.message;
//
// The explorer finds errors of interleaving under sequential consistency. ThreadSanitizer finds errors of memory order.
//
// A failure prints the seed of its schedule. With LOAM_SEED=<seed> in the environment, explore() runs this schedule
// alone. LOAM_SCHEDULE=<decisions> does so for a schedule of the exhaustive policy. Therefore a scenario must depend on
// the schedule alone: it uses no addresses as hash keys and no real time.
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

/// The policy by which the explorer chooses the next thread.
enum class Policy : uint8_t {
  /// At a scheduling point the explorer keeps the running thread or, with a probability that it draws for each
  /// schedule, chooses any thread with equal chance. Finds most bugs that need few steps.
  kRandom,
  /// Probabilistic concurrency testing [Burckhardt et al. 2010]: the thread with the highest of random priorities runs.
  /// At `change_points` random points the priority of the running thread falls below all others. Finds, with a
  /// guaranteed probability, bugs for which one thread must sleep through much of the work of another.
  kPriorities,
  /// Each schedule uses kRandom or kPriorities, with equal chance.
  kMixed,
  /// Every schedule with at most `preemptions` departures from the default choice. By default the running thread
  /// continues, and after a yield the thread runs that has not run for the longest time. For small cases.
  /// Explorer::random() gives the same numbers in each schedule.
  kExhaustive,
};

/// Options of explore().
struct ExploreOptions {
  /// Number of schedules to run; for kExhaustive, the maximum number.
  uint64_t schedules = 1000;
  /// The seed from which the seeds of the schedules are derived.
  uint64_t base_seed = 1;
  Policy policy = Policy::kMixed;
  /// kPriorities: number of points at which a priority changes.
  unsigned change_points = 3;
  /// kExhaustive: maximum number of preemptions in a schedule.
  unsigned preemptions = 2;
  /// Number of scheduling points in one run beyond which the explorer reports a livelock.
  uint64_t max_points = 200'000;
  /// Whether the first failure ends the exploration. If not, the failures are counted, which measures how often a
  /// planted bug is found.
  bool stop_at_failure = true;
};

/// The outcome of explore().
struct ExploreReport {
  uint64_t schedules = 0;      ///< schedules that were run
  uint64_t failures = 0;       ///< schedules that failed
  uint64_t points = 0;         ///< scheduling points of all schedules
  uint64_t first_failure = 0;  ///< number of the first failing schedule, counted from 1; 0: none failed
  bool exhausted = false;      ///< kExhaustive: every schedule was run
  std::string message;         ///< the first failure: the error, the seed, the last switches
  bool ok() const { return failures == 0; }
};

/// The exception that Explorer::run() throws at a livelock, because the run cannot continue. The virtual threads are
/// abandoned: their stacks are never unwound, so the objects on them are never destroyed.
struct ExplorationAborted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs one schedule of a scenario. Owner: explore(), or a test that runs a single schedule. Threads: one; the virtual
/// threads run in it too.
class Explorer final : public SimScheduler {
 public:
  /// Maximum number of virtual threads.
  static constexpr size_t kMaxThreads = 16;
  /// Number of the last switches that a failure prints.
  static constexpr size_t kTraceLength = 48;

  explicit Explorer(uint64_t seed, const ExploreOptions& options = {});
  ~Explorer() override;
  Explorer(const Explorer&) = delete;
  Explorer& operator=(const Explorer&) = delete;

  /// Adds a virtual thread, which begins in run(). `name` must outlive the explorer, as a literal does.
  void spawn(const char* name, std::function<void()> body);
  /// Runs all spawned threads to their ends. After further calls of spawn() it may be called again, for a second phase
  /// of the schedule. Throws ExplorationAborted at a livelock.
  void run();
  /// Records a failure if `condition` is false, from a virtual thread or outside. The run continues, so that the stacks
  /// unwind. The first failure of a schedule is kept.
  void check(bool condition, std::string_view what);

  /// Whether a check has failed.
  bool failed() const { return !failure_.empty(); }
  /// The first failure: the error, the seed that repeats the schedule, and the last switches. Empty if there is none.
  std::string message() const;
  /// Number of scheduling points so far.
  uint64_t points() const { return points_; }
  uint64_t seed() const { return seed_; }
  /// Random numbers for the scenario's own choices, derived from the seed of the schedule.
  Random& random() { return scenario_random_; }

  // SimScheduler. The simulated Env calls these inside virtual threads.
  void point(const char* what) override;
  void yield() override;
  uint64_t now_ns() override { return now_ns_; }

 private:
  friend ExploreReport explore(const ExploreOptions& options, const std::function<void(Explorer&)>& scenario);
  struct Thread;
  /// A switch between two threads, for the trace.
  struct Switch {
    uint64_t at = 0;             // number of the scheduling point
    const char* from = nullptr;  // name of the thread that stopped
    const char* what = nullptr;  // the operation before which it stopped
    const char* to = nullptr;    // name of the thread that ran next
  };
  /// The reason for the choice of a thread: the running thread is at a point, yields, or has ended.
  enum class Reason : uint8_t { kPoint, kYield, kEnd };
  static constexpr size_t kNoThread = SIZE_MAX;
  static constexpr uint64_t kPointNs = 10;
  static constexpr uint64_t kYieldNs = 1000;

  size_t choose(Reason why);
  size_t choose_random();
  size_t choose_by_priority();
  size_t choose_exhaustive(Reason why);
  void step(const char* what, Reason why);
  void abandon();
  std::string trace() const;
  std::string replay() const;

  const uint64_t seed_;
  const ExploreOptions options_;
  Random random_;
  Random scenario_random_;
  bool by_priority_ = false;
  uint64_t switch_one_in_ =
      1;  // kRandom: the explorer chooses a thread anew at one of `switch_one_in_` points on average
  std::vector<uint64_t> change_at_;
  int64_t lowest_priority_ = 0;

  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<size_t> candidates_;  // threads among which choose() chooses
  size_t current_ = kNoThread;      // the running thread; kNoThread: the caller of run()
  size_t next_ = kNoThread;         // the thread that run() resumes next
  size_t unfinished_ = 0;
  bool livelock_ = false;
  uint64_t points_ = 0;
  uint64_t now_ns_ = 0;
  // kExhaustive: the decisions of the schedule, first those to repeat and then new ones, and the number of choices that
  // each decision had.
  std::vector<uint8_t> decisions_;
  std::vector<uint8_t> choices_;
  unsigned preemptions_ = 0;
  std::array<Switch, kTraceLength> trace_{};
  uint64_t switches_ = 0;
  std::string failure_;
};

/// Runs `scenario` under `options.schedules` schedules, whose seeds are derived from the base seed, and reports the
/// first failure. A scenario that throws has failed. The environment variables LOAM_SEED and LOAM_SCHEDULE select one
/// schedule instead; LOAM_EXPLORE_FACTOR multiplies the number of schedules.
ExploreReport explore(const ExploreOptions& options, const std::function<void(Explorer&)>& scenario);

}  // namespace loam::testing
