// Mutual exclusion between fibers of one thread, and the guard that makes it unnecessary.
#pragma once

#include "common/fiber/wait.h"

namespace loam::fiber {

/// Held across waits by one fiber of a thread at a time; first come, first served (the unlocker hands it over, so no
/// fiber starves). Never allocates. Not recursive. For std::lock_guard and std::unique_lock.
class FiberMutex {
 public:
  FiberMutex() = default;
  ~FiberMutex() { LOAM_DCHECK(!locked_, "a fiber mutex dies locked"); }
  FiberMutex(const FiberMutex&) = delete;
  FiberMutex& operator=(const FiberMutex&) = delete;

  void lock();
  bool try_lock();
  void unlock();
  bool is_locked() const { return locked_; }

 private:
  struct Waiter {
    WaitPoint point;
    Waiter* next = nullptr;
  };

  bool locked_ = false;
  Waiter* first_ = nullptr;  // in the frames of the waiting fibers
  Waiter* last_ = nullptr;
};

/// Says that the code of its scope does not switch to another fiber, so that what it reads and writes needs no mutex.
/// A wait or yield in the scope aborts (development tier). Nests. One thread.
class NoYieldGuard {
 public:
  NoYieldGuard() { ++depth_; }
  ~NoYieldGuard() { --depth_; }
  NoYieldGuard(const NoYieldGuard&) = delete;
  NoYieldGuard& operator=(const NoYieldGuard&) = delete;

  static bool active() { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

}  // namespace loam::fiber
