// Bounds the waits of a fiber: by a deadline, and by a cancellation.
#pragma once

#include <cstdint>

#include "common/fiber/scheduler.h"

namespace loam::fiber {

class WaitPoint;

/// Ends every wait_until() and sleep of the fiber that makes it early: at its deadline, or when it is cancelled. Waits
/// without a deadline (WaitPoint::wait()) are not ended: they are short, or must not be left.
///
/// Code that waits sees the end of the limit as the end of the wait's own deadline (wait_until() returns false) and
/// takes deadlines of its requests from deadline(). Loops that sleep between attempts check ended().
///
/// Limits of a fiber nest: the innermost is made last and destroyed first, and an outer limit bounds the inner ones.
/// Owner: the frame of the fiber that it bounds. Threads: the scheduler's.
class Limit {
 public:
  /// In a fiber. kForever: only cancel() ends it.
  explicit Limit(uint64_t deadline_ns = kForever);
  ~Limit();
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;

  /// Ends the present wait of the fiber, and all later ones while the limit lives. From any fiber, or outside of them.
  void cancel();

  /// The earlier one of `deadline_ns` and the deadlines of the running fiber's limits; 0 once one is cancelled.
  static uint64_t deadline(uint64_t deadline_ns);
  /// A limit of the running fiber is cancelled.
  static bool cancelled();
  /// A limit of the running fiber is cancelled, or its deadline has passed.
  static bool ended();
  /// The running fiber has a limit.
  static bool any();

 private:
  friend class WaitPoint;
  static Limit*& slot();
  static Limit* innermost();

  Limit* const outer_;
  const uint64_t deadline_ns_;  // the earliest of this limit and the outer ones
  bool cancelled_ = false;
  WaitPoint* waiting_ = nullptr;  // where the fiber waits in a wait_until()
};

}  // namespace loam::fiber
