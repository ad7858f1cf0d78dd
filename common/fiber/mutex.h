// A mutex for fibers of one thread, and a guard for code that needs no mutex because it does not switch fibers.
#pragma once

#include "common/fiber/wait.h"

namespace loam::fiber {

/// A mutex that a fiber may hold while it waits. Fibers acquire it in the order of their calls: unlock() passes it to
/// the first waiting fiber, so no fiber starves. Never allocates. Not recursive. Works with std::lock_guard and
/// std::unique_lock. Threads: one; all its fibers run on the same scheduler.
class FiberMutex {
 public:
  FiberMutex() = default;
  ~FiberMutex() { LOAM_DCHECK(!locked_, "a fiber mutex is destroyed while it is locked"); }
  FiberMutex(const FiberMutex&) = delete;
  FiberMutex& operator=(const FiberMutex&) = delete;

  /// Suspends the calling fiber until it holds the mutex.
  void lock();
  /// Acquires the mutex if it is free, and returns whether it did.
  bool try_lock();
  /// Releases the mutex, or passes it to the first waiting fiber.
  void unlock();
  bool is_locked() const { return locked_; }

 private:
  struct Waiter {
    WaitPoint point;
    Waiter* next = nullptr;
  };

  bool locked_ = false;
  Waiter* first_ = nullptr;  // queue of waiters, which lie in the stack frames of the waiting fibers
  Waiter* last_ = nullptr;
};

/// Asserts that the code of its scope does not switch to another fiber, so the data that this code uses needs no
/// mutex. In development builds a wait or yield inside the scope aborts the process. Guards nest. Threads: each
/// thread has a count of its own.
class NoYieldGuard {
 public:
  NoYieldGuard() { ++depth_; }
  ~NoYieldGuard() { --depth_; }
  NoYieldGuard(const NoYieldGuard&) = delete;
  NoYieldGuard& operator=(const NoYieldGuard&) = delete;

  /// Whether the thread is inside such a scope.
  static bool active() { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

}  // namespace loam::fiber
