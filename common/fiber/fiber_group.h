// A group of fibers for whose end another fiber waits, however they end.
#pragma once

#include <exception>
#include <utility>

#include "common/fiber/scheduler.h"
#include "common/fiber/wait.h"

namespace loam::fiber {

/// Counts one task of a WaitGroup: the constructor calls add(), the destructor done(). The body of a fiber captures a
/// token, so that the wait ends if the body returns, if it throws, and if it never runs. The group outlives the
/// token. Threads: the scheduler's.
class WaitGroupToken {
 public:
  explicit WaitGroupToken(WaitGroup& group) : group_(&group) { group.add(); }
  WaitGroupToken(WaitGroupToken&& other) noexcept : group_(std::exchange(other.group_, nullptr)) {}
  WaitGroupToken& operator=(WaitGroupToken&&) = delete;
  ~WaitGroupToken() {
    if (group_ != nullptr) group_->done();
  }

 private:
  WaitGroup* group_;
};

/// The fibers that do parts of another fiber's work.
///
/// Owner: that fiber, in the stack frame that starts them. The bodies may refer to objects that are declared above
/// the group in this frame, because the destructor waits for all fibers, also while an exception leaves the frame.
/// Threads: the scheduler's.
class FiberGroup {
 public:
  explicit FiberGroup(FiberScheduler& scheduler) : scheduler_(scheduler) {}
  ~FiberGroup() { living_.wait(); }
  FiberGroup(const FiberGroup&) = delete;
  FiberGroup& operator=(const FiberGroup&) = delete;

  /// Runs `body` in a new fiber of the group. False: there is no free fiber or no memory for it, and `body` was
  /// destroyed without a call. wait() throws the exception of a body.
  template <class Body>
  [[nodiscard]] bool spawn(Body body) noexcept {
    try {
      auto run = [this, part = WaitGroupToken(living_), body = std::move(body)]() mutable {
        try {
          body();
        } catch (...) {
          if (!thrown_) thrown_ = std::current_exception();
        }
      };
      return scheduler_.spawn(std::move(run)).ok();
    } catch (...) {  // no memory for the task
      return false;
    }
  }

  /// Waits until all fibers of the group have ended, and then throws the first exception of a body, if any.
  void wait() {
    living_.wait();
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  }

 private:
  FiberScheduler& scheduler_;
  WaitGroup living_;
  std::exception_ptr thrown_;
};

}  // namespace loam::fiber
