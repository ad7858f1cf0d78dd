#include "common/fiber/cancel_scope.h"

#include <algorithm>

#include "common/base/assert.h"
#include "common/fiber/scheduler_impl.h"
#include "common/fiber/switcher.h"
#include "common/fiber/wait.h"

namespace loam::fiber {

// The scopes of a fiber form a linked list from the innermost to the outermost. The scheduler keeps the head of the
// list for each fiber, because a thread-local variable would be shared by all fibers of the thread.
CancelScope*& CancelScope::slot() {
  LOAM_CHECK(FiberScheduler::in_fiber(), "only a fiber has cancel scopes");
  return FiberScheduler::current()->cancel_scope();
}

CancelScope* CancelScope::innermost() {
  return FiberScheduler::in_fiber() ? FiberScheduler::current()->cancel_scope() : nullptr;
}

CancelScope::CancelScope(uint64_t deadline_ns)
    : outer_(slot()), deadline_ns_(outer_ == nullptr ? deadline_ns : std::min(deadline_ns, outer_->deadline_ns_)) {
  slot() = this;
}

CancelScope::~CancelScope() {
  LOAM_DCHECK(slot() == this, "a cancel scope ends before an inner one");
  slot() = outer_;
}

void CancelScope::cancel() {
  // The flag ends later waits, and end_wait() the present one. A wait of an inner scope counts, because wait_until()
  // registers it with every scope of the fiber.
  cancelled_ = true;
  if (waiting_ != nullptr) waiting_->end_wait();
}

bool CancelScope::cancelled() {
  for (const CancelScope* scope = innermost(); scope != nullptr; scope = scope->outer_) {
    if (scope->cancelled_) return true;
  }
  return false;
}

uint64_t CancelScope::deadline(uint64_t deadline_ns) {
  const CancelScope* const scope = innermost();
  if (scope == nullptr) return deadline_ns;
  return cancelled() ? 0 : std::min(deadline_ns, scope->deadline_ns_);
}

bool CancelScope::ended() {
  // deadline() returns 0 for a cancelled scope, which is before every time of the clock.
  const uint64_t deadline_ns = deadline(kForever);
  return deadline_ns != kForever && deadline_ns <= FiberScheduler::current()->now_ns();
}

bool CancelScope::any() { return innermost() != nullptr; }

}  // namespace loam::fiber
