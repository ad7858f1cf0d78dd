#include "common/fiber/limit.h"

#include <algorithm>

#include "common/base/assert.h"
#include "common/fiber/scheduler_impl.h"
#include "common/fiber/switcher.h"
#include "common/fiber/wait.h"

namespace loam::fiber {

Limit*& Limit::slot() {
  LOAM_CHECK(FiberScheduler::in_fiber(), "only a fiber has limits");
  return FiberScheduler::current()->limit();
}

Limit* Limit::innermost() { return FiberScheduler::in_fiber() ? FiberScheduler::current()->limit() : nullptr; }

Limit::Limit(uint64_t deadline_ns)
    : outer_(slot()), deadline_ns_(outer_ == nullptr ? deadline_ns : std::min(deadline_ns, outer_->deadline_ns_)) {
  slot() = this;
}

Limit::~Limit() {
  LOAM_DCHECK(slot() == this, "a limit ends before an inner one");
  slot() = outer_;
}

void Limit::cancel() {
  cancelled_ = true;
  if (waiting_ != nullptr) waiting_->end_wait();
}

bool Limit::cancelled() {
  for (const Limit* limit = innermost(); limit != nullptr; limit = limit->outer_) {
    if (limit->cancelled_) return true;
  }
  return false;
}

uint64_t Limit::deadline(uint64_t deadline_ns) {
  const Limit* const limit = innermost();
  if (limit == nullptr) return deadline_ns;
  return cancelled() ? 0 : std::min(deadline_ns, limit->deadline_ns_);
}

bool Limit::ended() {
  const uint64_t deadline_ns = deadline(kForever);
  return deadline_ns != kForever && deadline_ns <= FiberScheduler::current()->now_ns();
}

bool Limit::any() { return innermost() != nullptr; }

}  // namespace loam::fiber
