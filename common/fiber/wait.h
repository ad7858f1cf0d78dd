// What a fiber waits on. One thread: the fiber that waits and whoever wakes it run on the same scheduler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "common/base/assert.h"
#include "common/fiber/scheduler.h"

namespace loam::fiber {

/// Where one fiber waits for one notification: the cheapest wait there is, and the base of all others.
///
/// A notification without a waiter is not kept: check the condition, then wait, without a switch in between (there is
/// none unless you call one). Never allocates. Outlives its waiter's wait.
class WaitPoint {
 public:
  WaitPoint() = default;
  ~WaitPoint() { LOAM_DCHECK(waiter_ == nullptr, "a wait point dies while a fiber waits on it"); }
  WaitPoint(const WaitPoint&) = delete;
  WaitPoint& operator=(const WaitPoint&) = delete;

  /// Until notify(). In a fiber only; at most one fiber at a time.
  void wait();
  /// Until notify() (true), or until the clock reads `deadline_ns`, a limit of the fiber (limit.h) ends or the
  /// scheduler stops (false). kForever: no deadline; the scheduler's stop does not end the wait then.
  bool wait_until(uint64_t deadline_ns);
  /// Makes the waiter ready, behind all that are ready; it runs later, this call does not switch. False if none waits.
  bool notify();
  bool has_waiter() const { return waiter_ != nullptr; }

 private:
  friend class FiberScheduler;
  friend struct FiberScheduler::Impl;
  friend class Limit;
  /// The present wait_until() returns false.
  void end_wait() {
    if (waiter_ == nullptr) return;  // it was notified
    timed_out_ = true;
    notify();
  }

  void* waiter_ = nullptr;               // the suspended Boost.Fiber context
  FiberScheduler* scheduler_ = nullptr;  // of the waiter
  size_t timer_at_ = SIZE_MAX;           // place in the scheduler's timer heap, or SIZE_MAX
  bool timed_out_ = false;
};

/// Happens once, is kept: a wait after notify() returns at once. Single waiter.
class Event {
 public:
  void wait() {
    if (!happened_) point_.wait();
  }
  /// False if the deadline (or stop()) came first.
  bool wait_until(uint64_t deadline_ns) { return happened_ || point_.wait_until(deadline_ns) || happened_; }
  void notify() {
    happened_ = true;
    point_.notify();
  }
  bool happened() const { return happened_; }
  /// Makes it usable again; nobody waits.
  void reset() {
    LOAM_DCHECK(!point_.has_waiter(), "reset of an event that a fiber waits for");
    happened_ = false;
  }

 private:
  WaitPoint point_;
  bool happened_ = false;
};

/// A value that comes later: the slot of a request under way. Set once, by the same thread; taken by the one fiber that
/// waits. Lies wherever the owner puts it (the fiber's stack, a request table) and allocates nothing of its own.
template <class T>
class Pending {
 public:
  /// Gives the value and wakes the waiter. At most once.
  void set(T value) {
    LOAM_DCHECK(!value_.has_value(), "a pending value is set twice");
    value_.emplace(std::move(value));
    event_.notify();
  }
  bool ready() const { return value_.has_value(); }
  /// Waits for the value and takes it out. In a fiber, or when ready().
  T take() {
    event_.wait();
    return std::move(*value_);
  }
  /// Nothing if the deadline (or stop()) comes first; the value may still be set afterwards.
  std::optional<T> take_until(uint64_t deadline_ns) {
    if (!event_.wait_until(deadline_ns)) return std::nullopt;
    return std::move(value_);
  }
  /// Empties it for the next request; nobody waits.
  void reset() {
    event_.reset();
    value_.reset();
  }

 private:
  Event event_;
  std::optional<T> value_;
};

/// Waits until a number of things that were started have ended. Single waiter.
class WaitGroup {
 public:
  void add(size_t n = 1) { open_ += n; }
  void done() {
    LOAM_DCHECK(open_ > 0, "done() without add()");
    if (--open_ == 0) point_.notify();
  }
  void wait() {
    while (open_ > 0) point_.wait();
  }
  size_t open() const { return open_; }

 private:
  WaitPoint point_;
  size_t open_ = 0;
};

}  // namespace loam::fiber
