#include "common/fiber/mutex.h"

#include "common/base/assert.h"

namespace loam::fiber {

void FiberMutex::lock() {
  if (try_lock()) return;
  Waiter self;
  (last_ == nullptr ? first_ : last_->next) = &self;
  last_ = &self;
  self.point.wait();  // unlock() has handed the mutex over
}

bool FiberMutex::try_lock() {
  if (locked_) return false;
  locked_ = true;
  return true;
}

void FiberMutex::unlock() {
  LOAM_CHECK(locked_, "unlock of a fiber mutex that is not locked");
  if (first_ == nullptr) {
    locked_ = false;
    return;
  }
  Waiter* next = first_;
  first_ = next->next;
  if (first_ == nullptr) last_ = nullptr;
  next->point.notify();
}

}  // namespace loam::fiber
