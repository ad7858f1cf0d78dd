#include "common/fiber/wait.h"

#include <utility>

#include "common/fiber/cancel_scope.h"
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
  // Other fibers of the thread may throw and catch while this one waits.
  const ExceptionState own;
  switcher.suspend();
}

bool WaitPoint::wait_until(uint64_t deadline_ns) {
  LOAM_CHECK(FiberScheduler::in_fiber(), "only a fiber waits; spawn one");
  CancelScope* const innermost = CancelScope::innermost();
  if (innermost != nullptr) deadline_ns = CancelScope::deadline(deadline_ns);
  timed_out_ = false;
  // After a cancellation every wait of the scope ends at once. The call does not switch to other fibers.
  if (innermost != nullptr && CancelScope::cancelled()) return false;
  // While the fiber waits, each of its scopes knows the wait point, so that cancel() of any of them can end the wait.
  if (deadline_ns != kForever) FiberScheduler::current()->impl_->add_timer(*this, deadline_ns);
  for (CancelScope* scope = innermost; scope != nullptr; scope = scope->outer_) scope->waiting_ = this;
  wait();
  for (CancelScope* scope = innermost; scope != nullptr; scope = scope->outer_) scope->waiting_ = nullptr;
  return !timed_out_;
}

bool WaitPoint::notify() {
  if (waiter_ == nullptr) return false;
  // A notified wait has no timer, so its deadline cannot end it any more: the first of both events decides.
  if (timer_at_ != SIZE_MAX) scheduler_->impl_->remove_timer(*this);
  scheduler_->impl_->switcher.wake(std::exchange(waiter_, nullptr));
  return true;
}

}  // namespace loam::fiber
