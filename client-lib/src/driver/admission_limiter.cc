#include "client-lib/src/driver/admission_limiter.h"

#include <algorithm>

#include "common/base/assert.h"

namespace loam::client {

AdmissionLimiter::AdmissionLimiter(size_t capacity, size_t max_waiters)
    : capacity_(capacity), max_waiters_(max_waiters), free_(capacity) {}

AdmissionLimiter::Admission AdmissionLimiter::acquire_until(uint64_t deadline_ns) {
  // A free slot means that no fiber waits (invariant 1), so this fiber overtakes none.
  if (free_ > 0) {
    --free_;
    return Admission::kAdmitted;
  }
  if (waiting_.size() >= max_waiters_) return Admission::kQueueFull;
  fiber::Event admitted;
  waiting_.push_back(&admitted);
  if (admitted.wait_until(deadline_ns)) return Admission::kAdmitted;
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &admitted));
  return Admission::kTimedOut;
}

void AdmissionLimiter::acquire() {
  LOAM_CHECK(max_waiters_ == SIZE_MAX, "acquire() needs a limiter with an unlimited queue; use acquire_until()");
  if (free_ > 0) {
    --free_;
    return;
  }
  fiber::Event admitted;
  waiting_.push_back(&admitted);
  admitted.wait();  // not bounded by limits of the fiber
}

void AdmissionLimiter::release() {
  if (waiting_.empty()) {
    LOAM_DCHECK(free_ < capacity_, "a slot is released that was not acquired");
    ++free_;
    return;
  }
  waiting_.front()->notify();  // wins against a deadline that passes in the same round
  waiting_.pop_front();
}

}  // namespace loam::client
