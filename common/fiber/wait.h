// Objects on which fibers wait. The waiting fiber and the code that wakes it run on the same scheduler, in one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "common/base/assert.h"
#include "common/fiber/scheduler.h"

namespace loam::fiber {

/// A wait of one fiber for one notification. It is the cheapest wait, and the base of all others.
///
/// A notification without a waiter is lost. So the fiber must not switch between the check of its condition and the
/// wait. Code switches only where it waits or yields. Never allocates. The object outlives the wait.
class WaitPoint {
 public:
  WaitPoint() = default;
  ~WaitPoint() { LOAM_DCHECK(waiter_ == nullptr, "a wait point is destroyed while a fiber waits on it"); }
  WaitPoint(const WaitPoint&) = delete;
  WaitPoint& operator=(const WaitPoint&) = delete;

  /// Suspends the fiber until notify(). Only in a fiber, and for one fiber at a time.
  void wait();
  /// Suspends the fiber until notify(), and returns true. Returns false if before that the clock reads `deadline_ns`,
  /// a cancel scope of the fiber ends (cancel_scope.h), or the scheduler stops. kForever: there is no deadline, and
  /// the stop of the scheduler does not end the wait.
  bool wait_until(uint64_t deadline_ns);
  /// Makes the waiting fiber ready, behind all ready fibers; the call itself does not switch. False: no fiber waits.
  bool notify();
  /// Whether a fiber waits.
  bool has_waiter() const { return waiter_ != nullptr; }

 private:
  friend class FiberScheduler;
  friend struct FiberScheduler::Impl;
  friend class CancelScope;
  /// Makes the present wait_until() return false.
  void end_wait() {
    if (waiter_ == nullptr) return;  // a notification came first
    timed_out_ = true;
    notify();
  }

  void* waiter_ = nullptr;               // the context of the suspended fiber
  FiberScheduler* scheduler_ = nullptr;  // the scheduler of this fiber
  size_t timer_at_ = SIZE_MAX;           // position in the scheduler's heap of timers; SIZE_MAX: no timer
  bool timed_out_ = false;
};

/// An event that happens once and is kept: a wait after notify() returns at once. One fiber waits at a time.
class Event {
 public:
  /// Suspends the fiber until notify().
  void wait() {
    if (!notified_) point_.wait();
  }
  /// Waits as WaitPoint::wait_until() does. Returns true if notify() has been called, also if the deadline has passed.
  bool wait_until(uint64_t deadline_ns) { return notified_ || point_.wait_until(deadline_ns) || notified_; }
  /// Ends the present wait and all later ones.
  void notify() {
    notified_ = true;
    point_.notify();
  }
  /// Whether notify() has been called.
  bool notified() const { return notified_; }
  /// Makes the event usable again. No fiber may wait.
  void reset() {
    LOAM_DCHECK(!point_.has_waiter(), "reset of an event that a fiber waits for");
    notified_ = false;
  }

 private:
  WaitPoint point_;
  bool notified_ = false;
};

/// A value that arrives later, such as the reply to an open request. Code of the same thread sets it once, and one
/// fiber waits for it and takes it. The owner decides where the object lies, for example on the stack of the fiber or
/// in a table of requests. The object itself allocates nothing.
template <class T>
class PendingValue {
 public:
  /// Sets the value and wakes the waiting fiber. At most once.
  void set(T value) {
    LOAM_DCHECK(!value_.has_value(), "a pending value is set twice");
    value_.emplace(std::move(value));
    event_.notify();
  }
  /// Whether the value is set.
  bool ready() const { return value_.has_value(); }
  /// Waits for the value and moves it out. Only in a fiber, unless ready().
  T take() {
    event_.wait();
    return std::move(*value_);
  }
  /// Waits for the value and moves it out. Empty: the wait ended before the value was set, for one of the reasons of
  /// WaitPoint::wait_until(). The value may still be set afterwards.
  std::optional<T> take_until(uint64_t deadline_ns) {
    if (!event_.wait_until(deadline_ns)) return std::nullopt;
    return std::move(value_);
  }
  /// Drops the value, so that the object can be used again. No fiber may wait.
  void reset() {
    event_.reset();
    value_.reset();
  }

 private:
  Event event_;
  std::optional<T> value_;
};

/// A counter of open tasks, on which a fiber waits until it is 0. One fiber waits at a time.
class WaitGroup {
 public:
  /// Adds `n` tasks.
  void add(size_t n = 1) { open_ += n; }
  /// Ends one task.
  void done() {
    LOAM_DCHECK(open_ > 0, "done() without add()");
    if (--open_ == 0) point_.notify();
  }
  /// Suspends the fiber until no task is open.
  void wait() {
    while (open_ > 0) point_.wait();
  }
  /// Number of open tasks.
  size_t open() const { return open_; }

 private:
  WaitPoint point_;
  size_t open_ = 0;
};

}  // namespace loam::fiber
