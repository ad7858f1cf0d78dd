#include "common/fiber/mutex.h"

#include "common/base/assert.h"

namespace loam::fiber {

void FiberMutex::lock() {
  if (try_lock()) return;
  // The queue entry lies in the stack frame of the waiting fiber. The frame lives until the fiber holds the mutex, and
  // unlock() removes the entry before.
  Waiter self;
  (last_ == nullptr ? first_ : last_->next) = &self;
  last_ = &self;
  self.point.wait();  // unlock() passes the mutex to this fiber, and locked_ stays true
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
  // Passes the mutex to the first waiter: locked_ stays true, so a fiber that calls lock() meanwhile queues behind it.
  Waiter* next = first_;
  first_ = next->next;
  if (first_ == nullptr) last_ = nullptr;
  next->point.notify();
}

}  // namespace loam::fiber
