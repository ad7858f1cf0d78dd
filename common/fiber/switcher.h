// The seam to Boost.Fiber: our scheduling algorithm, and the only code that switches stacks. Internal to this folder.
//
// Boost.Fiber gives contexts, their switching and the end of threads; this algorithm decides who runs:
//
//   ready queue   intrusive, first in, first out; holds fibers and, while it waits for its round to end, the main
//   context main          the thread's own stack, which runs FiberScheduler's loop. run_ready_round() puts it at the
//   end of the
//                 queue and so returns when each fiber that was ready has run once
//   dispatcher    Boost.Fiber's own context of each thread. It only buries ended fibers and is picked only for that
//   parked        fibers whose task has ended and that wait for another one. A fiber and its stack live on until the
//   pool
//                 is full or the scheduler ends, so that a spawn costs no more than a wake
//
// Boost.Fiber's own timers, remote queue and condition variables are not used: deadlines follow the clock of
// FiberScheduler (the simulator has its own), and other threads reach it through its inbox.
//
// switcher.cc is compiled without sanitizers, because its functions begin on one stack and go on on another, and tells
// them about each switch (docs/decisions/0004-fibers-under-sanitizers.md).
//
// The simulator has another implementation, switcher_sim.cc, directly upon contexts: Boost.Fiber knows one set of
// fibers in an operating-system thread, but there many virtual threads have theirs in one, and any of them may be left
// standing in the middle of a fiber for ever.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "common/fiber/stack.h"
#include "common/fiber/task.h"

namespace loam::fiber {

class Limit;

/// The fibers of one thread. One object per thread, made at first use; it lies in the algorithm, which Boost.Fiber
/// destroys with the thread. Owner thread only. In the simulator: the fibers of one virtual thread, and an object for
/// each FiberScheduler, which owns it.
class Switcher {
 public:
  struct Release {
    void operator()(Switcher* switcher) const;
  };
  using Pointer = std::unique_ptr<Switcher, Release>;

  /// A suspended or ready fiber; opaque.
  using Fiber = void;

  struct Limits {
    size_t stack_bytes = 0;
    size_t max_parked = 0;
    uint64_t long_hold_ticks = 0;  ///< of the time stamp counter; 0: no watch
  };
  struct Counts {
    uint64_t switches = 0;
    uint64_t stacks_mapped = 0;
    uint64_t escaped_exceptions = 0;
  };
  /// Who is told that a fiber held the thread for `ticks`. Called on the way out of the fiber; must not switch.
  using LongHoldHook = void (*)(void* owner, uint64_t fiber, uint64_t ticks);

  /// For one FiberScheduler at a time of the calling thread.
  static Pointer obtain();
  Switcher(const Switcher&) = delete;
  Switcher& operator=(const Switcher&) = delete;

  /// Begins and ends the use by one FiberScheduler. At the end all tasks have ended; every fiber is destroyed.
  void open(const Limits& limits, void* owner, LongHoldHook hook);
  void close();

  /// A fiber for `task`, at the end of the ready queue. False if there is no stack for it; the task is then untouched.
  bool spawn(Task& task);
  /// Main only: runs every fiber that is ready now once.
  void run_ready_round();
  /// In a fiber: runs others until wake() of this fiber and its turn.
  void suspend();
  /// In a fiber: runs all others that are ready first.
  void yield();
  /// Puts a suspended fiber at the end of the ready queue.
  void wake(Fiber* fiber);

  Fiber* current() const;
  bool has_ready() const;
  size_t living() const { return living_; }
  /// In a fiber: the innermost limit of its task; null when the task begins.
  Limit*& current_limit();
  /// Number of the task that runs, 0 in main.
  uint64_t current_number() const;
  const Counts& counts() const { return counts_; }
  /// The deepest use of any parked fiber's stack.
  size_t deepest_stack_bytes() const;

 private:
  class Algorithm;
  class Worker;

  explicit Switcher(Algorithm& algorithm) : algorithm_(algorithm) {}

  void serve(Worker& worker);

  Algorithm& algorithm_;  // contains this object
  Limits limits_;
  void* owner_ = nullptr;
  LongHoldHook hook_ = nullptr;
  Counts counts_;
  uint64_t numbers_ = 0;
  size_t living_ = 0;   // fibers with a task
  size_t workers_ = 0;  // fibers
  size_t parked_count_ = 0;
  Worker* parked_ = nullptr;  // last in, first out: the warmest stack first
  bool closing_ = false;
};

}  // namespace loam::fiber
