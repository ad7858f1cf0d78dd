// The interface to Boost.Fiber: our scheduling algorithm, and the only code that switches stacks. Internal to this
// folder.
//
// Boost.Fiber provides contexts, the switch between them, and their end with the thread. Our algorithm decides which
// context runs next:
//
//   ready queue   intrusive, first in, first out. It holds the ready fibers and, while a round runs, the main context.
//   main context  the thread's own stack, which runs the loop of FiberScheduler. run_ready_round() puts it at the end
//                 of the queue, and so returns when each fiber that was ready has run once.
//   dispatcher    Boost.Fiber's own context of each thread. It destroys ended fibers, and runs only for that.
//   parked        fibers whose task has ended and that wait for another task. A fiber keeps its stack until the pool
//                 is full or the scheduler ends, so that a spawn costs no more than a wake-up.
//
// We do not use the timers, the remote queue and the condition variables of Boost.Fiber. Deadlines follow the clock
// of FiberScheduler, which the simulator replaces, and other threads reach the scheduler through its inbox.
//
// switcher.cc is compiled without sanitizers, because its functions begin on one stack and continue on another. It
// notifies the sanitizers of each switch (docs/decisions/0004-fibers-under-sanitizers.md).
//
// The simulator has another implementation, switcher_sim.cc, directly on top of contexts. Boost.Fiber supports one
// set of fibers in each thread of the operating system. In the simulator many virtual threads share one such thread,
// each with fibers of its own, and a run may abandon any of them in the middle of a fiber.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/fiber/stack.h"
#include "common/fiber/task.h"

namespace loam::fiber {

class CancelScope;

/// The contexts of the fibers of one thread.
///
/// In production each thread has one object, made at first use; it lies in the scheduling algorithm, which
/// Boost.Fiber destroys with the thread. In the simulator each FiberScheduler owns one, for the fibers of one virtual
/// thread. Threads: the owner's.
class Switcher {
 public:
  struct Release {
    void operator()(Switcher* switcher) const;
  };
  /// Releases the switcher for the next FiberScheduler of the thread; in the simulator, destroys it.
  using Pointer = std::unique_ptr<Switcher, Release>;

  /// A suspended or ready fiber, as an opaque type.
  using Fiber = void;

  struct Options {
    size_t stack_bytes = 0;
    size_t max_parked = 0;
    uint64_t stall_threshold_ticks = 0;  ///< in ticks of the time-stamp counter; 0: stalls are not detected
  };
  struct Counts {
    uint64_t switches = 0;
    uint64_t stacks_mapped = 0;
    uint64_t escaped_exceptions = 0;
  };
  /// Called when a fiber has run for `ticks`, at least the threshold, without a wait. It runs on the stack of the
  /// fiber, just before the switch, and must not switch itself.
  using StallHook = void (*)(void* owner, uint64_t fiber, uint64_t ticks);

  /// The switcher of the calling thread, for one FiberScheduler at a time.
  static Pointer acquire();
  Switcher(const Switcher&) = delete;
  Switcher& operator=(const Switcher&) = delete;

  /// Begins the use by one FiberScheduler. `owner` is passed to `hook`.
  void open(const Options& limits, void* owner, StallHook hook);
  /// Ends the use, after all tasks have ended, and destroys all fibers.
  void close();

  /// Puts a fiber that runs `task` at the end of the ready queue. False: there is no stack for it, and the task is
  /// unchanged.
  bool spawn(Task& task);
  /// Runs every fiber that is ready now once. Only in the main context.
  void run_ready_round();
  /// Suspends the running fiber until wake(). Only in a fiber.
  void suspend();
  /// Runs all other ready fibers before the running one continues. Only in a fiber.
  void yield();
  /// Puts a suspended fiber at the end of the ready queue.
  void wake(Fiber* fiber);

  /// The running context.
  Fiber* current() const;
  bool has_ready() const;
  /// Number of fibers with a task.
  size_t living() const { return living_; }
  /// The innermost cancel scope of the running task; null at the begin of a task. Only in a fiber.
  CancelScope*& current_cancel_scope();
  /// Number of the running task; 0 in the main context.
  uint64_t current_number() const;
  const Counts& counts() const { return counts_; }
  /// The deepest use of a parked fiber's stack.
  size_t stack_high_watermark_bytes() const;

 private:
  class Algorithm;
  class Worker;

  explicit Switcher(Algorithm& algorithm) : algorithm_(algorithm) {}

  void run_tasks(Worker& worker);

  Algorithm& algorithm_;  // contains this object
  Options limits_;
  void* owner_ = nullptr;
  StallHook hook_ = nullptr;
  Counts counts_;
  uint64_t numbers_ = 0;  // numbers of tasks given out so far
  size_t living_ = 0;     // fibers with a task
  size_t workers_ = 0;    // all fibers
  size_t parked_count_ = 0;
  Worker* parked_ = nullptr;  // last in, first out: the last stack is still in the cache
  bool closing_ = false;
};

}  // namespace loam::fiber
