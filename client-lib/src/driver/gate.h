// How many may be at work at once, and how many may wait for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "common/fiber/wait.h"

namespace loam::client {

/// A number of places that fibers take and give back.
///
/// Whoever finds none waits, first come, first served, until its deadline, and is refused at once when too many wait
/// already. So a program that starts more work than the cluster takes sees waiting times that are bounded, and a
/// throughput that stays.
///
/// Owner: whoever bounds something; outlives its waiters. Threads: one, the scheduler's; leave() also outside of a
/// fiber. Invariants: (1) while somebody waits, no place is free: a place that is given back goes to the first that
/// waits; (2) at most `most_waiting` wait.
class Gate {
 public:
  enum class Entry : uint8_t {
    kEntered,
    kTooMany,  ///< as many wait as may
    kTooLate,  ///< the deadline, or the scheduler's end, came first
  };

  explicit Gate(size_t places, size_t most_waiting = SIZE_MAX);

  /// May suspend. After kEntered the caller leaves once.
  [[nodiscard]] Entry enter_by(uint64_t deadline_ns);
  /// Without a deadline, of a gate where any number may wait. May suspend.
  void enter();
  void leave();

  size_t places() const { return places_; }
  size_t inside() const { return places_ - free_; }
  size_t waiting() const { return waiting_.size(); }

 private:
  const size_t places_;
  const size_t most_waiting_;
  size_t free_;
  std::deque<fiber::Event*> waiting_;  // in the frames of the waiting fibers
};

}  // namespace loam::client
