// State of a FiberScheduler. Internal to this folder.
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
  /// What another thread (or this one) wants done.
  struct Letter {
    Task task;
    bool as_fiber = false;
    Letter* next = nullptr;
  };
  struct Timer {
    uint64_t deadline_ns = 0;
    WaitPoint* point = nullptr;
  };
  /// Longer sleeps than a year last until they are ended.
  static constexpr uint64_t kLongestSleepNs = 365ull * 24 * 3600 * 1'000'000'000;

  explicit Impl(SchedulerOptions given) : options(std::move(given)) {}

  // Inbox: any thread puts in, the owner empties.
  void put_in(Task task, bool as_fiber);
  void empty_inbox(FiberScheduler& scheduler);
  /// Ends the owner's sleep, or its next one.
  void ring();

  // Timers: a binary heap of the waits with a deadline, the earliest first. A wait point knows its place.
  void add_timer(WaitPoint& point, uint64_t deadline_ns);
  void remove_timer(WaitPoint& point);
  void fire_timers();
  void place(size_t at, Timer timer);
  void sift_up(size_t at);
  void sift_down(size_t at);
  bool earlier(size_t a, size_t b) const;

  uint64_t clock() const;
  void idle(uint64_t timeout_ns);
  void report_long_hold(uint64_t fiber, uint64_t ticks);

  // Constant after construction.
  const SchedulerOptions options;
  const Switcher::Pointer switcher_pointer = Switcher::obtain();
  Switcher& switcher = *switcher_pointer;
  uint64_t long_hold_ticks = 0;

  // Owner thread only.
  SchedulerCounters counters;
  std::vector<Timer> timers;

  // Any thread pushes, the owner takes all: a stack, reversed when it is emptied. No ABA: nobody pops single letters.
  std::atomic<Letter*> inbox{nullptr};
  std::atomic<bool> stopping{false};

  // The sleep of a scheduler without an idle hook.
  Mutex bell_mutex;
  Condition bell;
  bool bell_rung = false;  // guarded by bell_mutex
};

}  // namespace loam::fiber
