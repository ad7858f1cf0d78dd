// The state of a FiberScheduler. Internal to this folder.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "common/base/thread.h"
#include "common/fiber/scheduler.h"
#include "common/fiber/switcher.h"
#include "common/fiber/wait.h"

namespace loam::fiber {

struct FiberScheduler::Impl {
  /// A task of post() or spawn_remote(), in the inbox.
  struct RemoteTask {
    Task task;
    bool as_fiber = false;
    RemoteTask* next = nullptr;
  };
  /// A wait with a deadline.
  struct Timer {
    uint64_t deadline_ns = 0;
    WaitPoint* point = nullptr;
  };
  /// A sleep without an idle hook that is longer than a year lasts until wake().
  static constexpr uint64_t kLongestSleepNs = 365ull * 24 * 3600 * 1'000'000'000;

  explicit Impl(SchedulerOptions scheduler_options) : options(std::move(scheduler_options)) {}

  // Inbox: any thread appends, the owner empties it.
  void push_inbox(Task task, bool as_fiber);
  void drain_inbox(FiberScheduler& scheduler);
  /// Ends the owner's sleep, or its next one.
  void wake();

  // Timers: a binary heap of the waits with a deadline, the earliest first. A wait point knows its position in the
  // heap, so that its timer can be removed.
  void add_timer(WaitPoint& point, uint64_t deadline_ns);
  void remove_timer(WaitPoint& point);
  void fire_timers();
  void place(size_t at, Timer timer);
  void sift_up(size_t at);
  void sift_down(size_t at);
  bool earlier(size_t a, size_t b) const;

  uint64_t clock() const;
  void idle(uint64_t timeout_ns);
  void report_stall(uint64_t fiber, uint64_t ticks);

  // Constant after construction.
  const SchedulerOptions options;
  const Switcher::Pointer switcher_pointer = Switcher::acquire();
  Switcher& switcher = *switcher_pointer;
  uint64_t stall_threshold_ticks = 0;

  // Owner thread only.
  SchedulerCounters counters;
  std::vector<Timer> timers;

  // A stack: any thread pushes a task, and the owner takes all tasks at once and reverses their order. There is no
  // ABA problem, because no thread pops single tasks.
  std::atomic<RemoteTask*> inbox{nullptr};
  std::atomic<bool> stopping{false};

  // The sleep of a scheduler without an idle hook.
  Mutex wake_mutex;
  Condition wake_condition;
  bool wake_pending = false;  // guarded by wake_mutex
};

}  // namespace loam::fiber
