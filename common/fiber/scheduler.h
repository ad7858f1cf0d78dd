// Fibers of one thread: Boost.Fiber under a scheduling algorithm of our own.
//
// A transaction runs in a fiber; waiting for an answer runs another fiber, never the operating system's scheduler. The
// thread's loop (run()) alternates between two things: every fiber that is ready runs once, in the order in which they
// became ready; then the owner's idle hook runs, which polls the network with the time-out that the fibers allow (none
// while one is ready, else up to the next deadline). So what the fibers of a round send leaves in one batch.
//
// Wake-ups do not go through promises and futures (250 ns each) but suspend a fiber and put it back into the ready
// queue (wait.h; suite net of benchmarks/README.md measures both).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "common/base/status.h"
#include "common/fiber/task.h"

namespace loam::fiber {

/// A fiber that has held its thread for longer than SchedulerOptions::long_hold_ns without waiting.
struct LongHold {
  uint64_t fiber = 0;    ///< its number; 0 for tasks given to post()
  uint64_t held_ns = 0;  ///< how long, until it gave the thread back
};

inline constexpr size_t kStackBytes = 64 * 1024;
/// Each takes two of the system's 65,530 mappings, for its stack and the guard below it.
inline constexpr size_t kMaxFibers = 16 * 1024;
inline constexpr size_t kMaxPooledStacks = 4096;
inline constexpr uint64_t kLongHoldNs = 10'000'000;
/// No deadline.
inline constexpr uint64_t kForever = UINT64_MAX;

class Limit;

struct SchedulerOptions {
  /// Usable stack of a fiber; a guard of kGuardBytes lies below it. kMinStackBytes at least, rounded up to pages.
  size_t stack_bytes = kStackBytes;
  /// Ended fibers kept with their stacks for reuse; beyond it they go back to the system.
  size_t max_pooled_stacks = kMaxPooledStacks;
  /// Living fibers; spawn() beyond it is kOverloaded.
  size_t max_fibers = kMaxFibers;
  /// 0: nobody watches (the simulator).
  uint64_t long_hold_ns = kLongHoldNs;

  /// Called on the scheduler's thread, outside of fibers, once a round. Waits for events, at most `timeout_ns` (0: does
  /// not wait, kForever: until `wake`), and handles them; usually Transport::poll(). Must not wait on fibers' objects.
  /// Empty: the scheduler sleeps by itself.
  std::function<void(uint64_t timeout_ns)> idle;
  /// Makes `idle` return early; called from any thread. Needed with `idle`.
  std::function<void()> wake;
  /// Told of long holds, on the scheduler's thread, after the fact. Empty: they are only counted.
  std::function<void(const LongHold&)> on_long_hold;
  /// The clock of all deadlines, nanoseconds. Null: the monotonic clock. The simulator passes its own.
  std::function<uint64_t()> now_ns;
};

/// Counted by the scheduler's thread; read on it.
struct SchedulerCounters {
  uint64_t spawned = 0, ended = 0;
  uint64_t switches = 0;  ///< fibers resumed
  uint64_t rounds = 0;    ///< turns of the loop
  uint64_t long_holds = 0;
  uint64_t timeouts = 0;            ///< waits that ended by their deadline
  uint64_t stacks_mapped = 0;       ///< stacks taken from the system; the rest came from the pool
  uint64_t remote_tasks = 0;        ///< tasks posted by other threads
  uint64_t escaped_exceptions = 0;  ///< exceptions that ended a fiber; see spawn()
};

/// The fibers of one thread.
///
/// Owner and life: whoever runs the thread makes one on it, runs it and destroys it there, after all fibers have ended;
/// at most one exists on a thread at a time. Threads: all for the owner thread but post(), spawn_remote() and stop().
///
/// Invariants: (1) fibers run in the order in which they became ready; (2) a fiber runs until it waits, nothing takes
/// the thread from it; (3) a fiber that is not waiting, ready or running has ended; (4) waking a fiber allocates
/// nothing and takes no lock.
class FiberScheduler {
 public:
  explicit FiberScheduler(SchedulerOptions options = {});
  ~FiberScheduler();
  FiberScheduler(const FiberScheduler&) = delete;
  FiberScheduler& operator=(const FiberScheduler&) = delete;

  /// The calling thread's scheduler, or null.
  static FiberScheduler* current();
  /// Whether the caller runs in a fiber (and may wait).
  static bool in_fiber();

  /// A new fiber that runs `body` after all that are ready now. kOverloaded at the limit of fibers or out of memory for
  /// its stack. An exception that leaves `body` ends the fiber and is counted and reported on stderr, nothing else.
  /// 0.4 us when its stack comes from the pool.
  Status spawn(Task body);
  /// spawn() from any thread. If the fiber cannot be made, `body` is destroyed uncalled.
  void spawn_remote(Task body);
  /// Runs `task` on the scheduler's thread in a later round, outside of fibers: it must not wait. Any thread. For
  /// instance to notify a WaitPoint from another thread.
  void post(Task task);

  /// The thread's loop: returns when stop() has been called, what was posted before it is done, and the last fiber has
  /// ended. Whoever holds waiting fibers (a client with requests under way) must end their waits; sleeps and timed
  /// waits end by themselves at stop().
  void run();
  /// One round, for drivers with a loop of their own (the simulator, tests): due timers, posted tasks, every ready
  /// fiber once, then idle with at most `timeout_ns`. Returns the number of living fibers.
  size_t run_round(uint64_t timeout_ns);
  /// Any thread.
  void stop();
  bool stopping() const;

  /// Lets every other ready fiber, and the idle hook, run first. In a fiber only.
  void yield();
  /// Waits until the clock reads `deadline_ns`. False if stop() ended it before. In a fiber only.
  bool sleep_until(uint64_t deadline_ns);
  bool sleep_for(uint64_t duration_ns);

  uint64_t now_ns() const;
  /// Number of the running fiber, from 1; 0 outside of fibers.
  uint64_t current_fiber() const;
  size_t living_fibers() const;
  bool has_ready_fibers() const;
  SchedulerCounters counters() const;
  /// The deepest use of a stack by any task of the fibers that have ended and are kept for reuse. Reads their stacks:
  /// for tests and for choosing SchedulerOptions::stack_bytes, not for every round.
  size_t deepest_stack_bytes() const;

  struct Impl;

 private:
  friend class Limit;
  friend class WaitPoint;
  /// The innermost limit of the running fiber, or null. In a fiber only.
  Limit*& limit();

  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::fiber
