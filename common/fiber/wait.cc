#include "common/fiber/wait.h"

#include <utility>

#include "common/fiber/exception_state.h"
#include "common/fiber/mutex.h"
#include "common/fiber/scheduler_impl.h"
#include "common/fiber/switcher.h"

namespace loam::fiber {

void WaitPoint::wait() {
  FiberScheduler* scheduler = FiberScheduler::current();
  LOAM_CHECK(FiberScheduler::in_fiber(), "only a fiber waits; spawn one");
  LOAM_CHECK(waiter_ == nullptr, "two fibers wait on one wait point");
  LOAM_DCHECK(!NoYieldGuard::active(), "a wait in the scope of a NoYieldGuard");
  scheduler_ = scheduler;
  Switcher& switcher = scheduler->impl_->switcher;
  waiter_ = switcher.current();
  const ExceptionState own;
  switcher.suspend();
}

bool WaitPoint::wait_until(uint64_t deadline_ns) {
  if (deadline_ns == kForever) {
    wait();
    return true;
  }
  FiberScheduler* scheduler = FiberScheduler::current();
  LOAM_CHECK(FiberScheduler::in_fiber(), "only a fiber waits; spawn one");
  timed_out_ = false;
  scheduler->impl_->add_timer(*this, deadline_ns);
  wait();
  return !timed_out_;
}

bool WaitPoint::notify() {
  if (waiter_ == nullptr) return false;
  if (timer_at_ != SIZE_MAX) scheduler_->impl_->remove_timer(*this);
  scheduler_->impl_->switcher.wake(std::exchange(waiter_, nullptr));
  return true;
}

}  // namespace loam::fiber
