// The scheduler of the fibers of one thread: Boost.Fiber with a scheduling algorithm of our own.
//
// A transaction runs in a fiber. While it waits for a reply, the thread runs another fiber, without a switch of the
// operating system. The loop of the thread, run(), repeats rounds of two phases:
//  1. Every fiber that is ready runs once, in the order in which the fibers became ready.
//  2. The idle hook of the owner polls the network. It waits up to the next deadline of a fiber, or not at all while
//     a fiber is ready.
// So all messages that fibers send during one round leave in one batch.
//
// Waits suspend a fiber and put it back into the ready queue (wait.h). Promises and futures would cost 250 ns for
// each wake-up; suite net of benchmarks/README.md measures both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/status.h"
#include "common/fiber/task.h"

namespace loam::fiber {

/// Describes a fiber that ran for longer than SchedulerOptions::stall_threshold_ns without a wait.
struct FiberStall {
  uint64_t fiber = 0;       ///< number of the fiber; 0: a task given to post()
  uint64_t stalled_ns = 0;  ///< time for which it ran
};

/// Default stack of a fiber.
inline constexpr size_t kStackBytes = 64 * 1024;
/// Default limit of living fibers. Each takes two of the system's 65,530 mappings, for its stack and the guard below
/// it.
inline constexpr size_t kMaxFibers = 16 * 1024;
/// Default limit of stacks kept for reuse.
inline constexpr size_t kMaxPooledStacks = 4096;
/// Default time after which a running fiber counts as stalling the others.
inline constexpr uint64_t kStallThresholdNs = 10'000'000;
/// A deadline that never comes.
inline constexpr uint64_t kForever = UINT64_MAX;

class CancelScope;

/// Options of a FiberScheduler.
struct SchedulerOptions {
  /// Usable stack of a fiber, at least kMinStackBytes, rounded up to pages. A guard of kGuardBytes lies below it.
  size_t stack_bytes = kStackBytes;
  /// Number of ended fibers whose stacks are kept for reuse. Stacks beyond it go back to the system.
  size_t max_pooled_stacks = kMaxPooledStacks;
  /// Number of living fibers beyond which spawn() returns kOverloaded.
  size_t max_fibers = kMaxFibers;
  /// Time after which a running fiber is reported as a stall. 0: stalls are not detected, as in the simulator.
  uint64_t stall_threshold_ns = kStallThresholdNs;

  /// The idle hook, which waits for events and handles them, usually Transport::poll(). The scheduler calls it once
  /// in each round, on its thread, outside of fibers. It waits at most `timeout_ns` (0: not at all; kForever: until
  /// `wake`), and must not wait for objects of fibers. Empty: the scheduler itself sleeps.
  std::function<void(uint64_t timeout_ns)> idle;
  /// Makes `idle` return early. Any thread calls it. Required with `idle`.
  std::function<void()> wake;
  /// Called on the scheduler's thread after a stall has ended. Empty: stalls are only counted.
  std::function<void(const FiberStall&)> on_stall;
  /// The clock of all deadlines, in nanoseconds. Empty: the monotonic clock. The simulator passes its own.
  std::function<uint64_t()> now_ns;
};

/// Counters of a FiberScheduler since its start. Only its thread reads and writes them.
struct SchedulerCounters {
  uint64_t spawned = 0, ended = 0;
  uint64_t switches = 0;            ///< times that a fiber was resumed
  uint64_t rounds = 0;              ///< rounds of the loop
  uint64_t stalls = 0;              ///< stalls, see FiberStall
  uint64_t timeouts = 0;            ///< waits that ended by their deadline
  uint64_t stacks_mapped = 0;       ///< stacks mapped from the system; the others came from the pool
  uint64_t remote_tasks = 0;        ///< tasks posted by other threads
  uint64_t escaped_exceptions = 0;  ///< exceptions that ended a fiber, see spawn()
};

/// Schedules the fibers of one thread.
///
/// Owner: the code that runs the thread. It makes, runs and destroys the scheduler on this thread, and destroys it
/// after all fibers have ended. A thread has at most one scheduler at a time. Threads: the owner's, except for
/// post(), spawn_remote() and stop().
///
/// Invariants: (1) fibers run in the order in which they became ready; (2) a fiber runs until it waits, and nothing
/// preempts it; (3) a fiber that is not waiting, ready or running has ended; (4) a wake-up of a fiber allocates
/// nothing and takes no lock.
class FiberScheduler {
 public:
  explicit FiberScheduler(SchedulerOptions options = {});
  ~FiberScheduler();
  FiberScheduler(const FiberScheduler&) = delete;
  FiberScheduler& operator=(const FiberScheduler&) = delete;

  /// The scheduler of the calling thread, or null.
  static FiberScheduler* current();
  /// Whether the caller runs in a fiber, and so may wait.
  static bool in_fiber();

  /// Makes a fiber that runs `body` after all fibers that are ready now. kOverloaded: the limit of fibers is reached,
  /// or there is no memory for its stack. An exception that leaves `body` ends the fiber, and the scheduler counts it
  /// and reports it on stderr. Costs 0.4 us if the stack comes from the pool.
  Status spawn(Task body);
  /// Makes a fiber from any thread. If the fiber cannot be made, `body` is destroyed without a call.
  void spawn_remote(Task body);
  /// Runs `task` on the scheduler's thread in a later round, outside of fibers, so it must not wait. Any thread may
  /// call it, for instance to notify a WaitPoint.
  void post(Task task);

  /// Runs the loop of the thread. Returns when stop() has been called, all tasks posted before it have run, and the
  /// last fiber has ended. The owner must end the waits of its fibers, such as those for replies; sleeps and waits
  /// with a deadline end at stop().
  void run();
  /// Runs one round, for callers with a loop of their own, such as tests: due timers, posted tasks, every ready fiber
  /// once, then the idle hook with at most `timeout_ns`. Returns the number of living fibers.
  size_t run_round(uint64_t timeout_ns);
  /// Asks run() to end. Any thread.
  void stop();
  /// Whether stop() has been called.
  bool stopping() const;

  /// Lets all other ready fibers and the idle hook run before the calling fiber continues. Only in a fiber.
  void yield();
  /// Suspends the fiber until the clock reads `deadline_ns`, stop() is called, or a cancel scope of the fiber ends
  /// (cancel_scope.h). Other fibers run in any case. Returns false if stop() has been called by then, also if the
  /// deadline has passed. After the end of a cancel scope it returns true; CancelScope::ended() tells. Only in a
  /// fiber.
  bool sleep_until(uint64_t deadline_ns);
  /// Suspends the fiber for `duration_ns`, as sleep_until().
  bool sleep_for(uint64_t duration_ns);

  /// The clock of all deadlines.
  uint64_t now_ns() const;
  /// Number of the running fiber, counted from 1; 0 outside of fibers.
  uint64_t current_fiber() const;
  /// Number of fibers that have not ended.
  size_t living_fibers() const;
  bool has_ready_fibers() const;
  SchedulerCounters counters() const;
  /// The deepest use of a stack among the ended fibers that are kept for reuse. Reads these stacks, so it is for
  /// tests and for the choice of SchedulerOptions::stack_bytes, not for every round.
  size_t stack_high_watermark_bytes() const;

  struct Impl;

 private:
  friend class CancelScope;
  friend class WaitPoint;
  /// The innermost cancel scope of the running fiber, or null. Only in a fiber.
  CancelScope*& cancel_scope();

  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::fiber
