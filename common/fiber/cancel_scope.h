// A scope that ends the waits of a fiber at a deadline or by a cancellation.
#pragma once

#include <cstdint>

#include "common/fiber/scheduler.h"

namespace loam::fiber {

class WaitPoint;

/// Limits the waits of the fiber that constructs it: at the deadline of the scope, or when the scope is cancelled,
/// every wait_until() and every sleep of the fiber ends. Waits without a deadline (WaitPoint::wait()) do not end,
/// because they are short or must not be left early.
///
/// Code that waits cannot distinguish the end of a scope from the deadline of its wait: wait_until() returns false.
/// Code that sends requests takes their deadlines from deadline(). A loop that sleeps between attempts checks ended().
///
/// Scopes of a fiber nest: the innermost is constructed last and destroyed first, and an outer scope also limits the
/// waits inside the inner ones. Owner: a stack frame of the fiber. Threads: the scheduler's.
class CancelScope {
 public:
  /// Only in a fiber. kForever: the scope has no deadline, and only cancel() ends it.
  explicit CancelScope(uint64_t deadline_ns = kForever);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  /// Ends the present wait of the fiber, and all its later waits while the scope lives. Any fiber of the thread may
  /// call it, and so may code outside of fibers.
  void cancel();

  /// The earliest of `deadline_ns` and the deadlines of the running fiber's scopes; 0 if one of them is cancelled.
  static uint64_t deadline(uint64_t deadline_ns);
  /// Whether a scope of the running fiber is cancelled.
  static bool cancelled();
  /// Whether a scope of the running fiber is cancelled, or its deadline has passed.
  static bool ended();
  /// Whether the running fiber has a scope.
  static bool any();

 private:
  friend class WaitPoint;
  static CancelScope*& slot();
  static CancelScope* innermost();

  CancelScope* const outer_;
  const uint64_t deadline_ns_;  // the earliest deadline of this scope and the outer ones
  bool cancelled_ = false;
  WaitPoint* waiting_ = nullptr;  // set while the fiber is in a wait_until()
};

}  // namespace loam::fiber
