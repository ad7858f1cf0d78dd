// AdmissionLimiter: bounds concurrent work and the queue for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "common/fiber/wait.h"

namespace loam::client {

/// A semaphore for fibers with a first-in, first-out queue of bounded length.
///
/// A fiber that finds no free slot waits in the queue until its deadline. It is refused at once if the queue is full.
/// So a program that starts more work than the cluster can serve has bounded waits and no loss of throughput.
///
/// Owner: the object whose work it bounds; outlives its waiters. Threads: the scheduler's thread; release() also
/// outside of a fiber. Invariants: (1) no slot is free while a fiber waits, because a released slot goes to the head
/// of the queue; (2) at most `max_waiters` fibers wait.
class AdmissionLimiter {
 public:
  /// Result of acquire_until().
  enum class Admission : uint8_t {
    kAdmitted,   ///< the fiber has a slot
    kQueueFull,  ///< `max_waiters` fibers wait already
    kTimedOut,   ///< the deadline passed or the scheduler ended before a slot was free
  };

  explicit AdmissionLimiter(size_t capacity, size_t max_waiters = SIZE_MAX);

  /// Acquires a slot; waits until `deadline_ns`. After kAdmitted the caller calls release() once. May suspend.
  [[nodiscard]] Admission acquire_until(uint64_t deadline_ns);
  /// Acquires a slot without a deadline, of a limiter with an unlimited queue. May suspend.
  void acquire();
  /// Releases a slot to the head of the queue, if there is one. Never waits.
  void release();

  size_t capacity() const { return capacity_; }
  size_t in_use() const { return capacity_ - free_; }
  size_t waiting() const { return waiting_.size(); }

 private:
  const size_t capacity_;
  const size_t max_waiters_;
  size_t free_;
  std::deque<fiber::Event*> waiting_;  // in the frames of the waiting fibers
};

}  // namespace loam::client
