// Fibers that another one waits for, in every case that ends them.
#pragma once

#include <exception>
#include <utility>

#include "common/fiber/scheduler.h"
#include "common/fiber/wait.h"

namespace loam::fiber {

/// One of the things that a WaitGroup waits for: add() in its constructor, done() in its destructor. The body of a
/// fiber holds it in a capture, so that the wait ends if the body returns, if it throws, and if it never runs. The
/// group outlives it. Owner thread only.
class WaitPart {
 public:
  explicit WaitPart(WaitGroup& group) : group_(&group) { group.add(); }
  WaitPart(WaitPart&& other) noexcept : group_(std::exchange(other.group_, nullptr)) {}
  WaitPart& operator=(WaitPart&&) = delete;
  ~WaitPart() {
    if (group_ != nullptr) group_->done();
  }

 private:
  WaitGroup* group_;
};

/// Role: the fibers that do parts of another fiber's work. Owner: that fiber, in the frame that starts them. Their
/// bodies may refer to what stands above the group in this frame: the destructor waits for all fibers, also while an
/// exception leaves the frame. Threads: the scheduler's.
class FiberGroup {
 public:
  explicit FiberGroup(FiberScheduler& scheduler) : scheduler_(scheduler) {}
  ~FiberGroup() { living_.wait(); }
  FiberGroup(const FiberGroup&) = delete;
  FiberGroup& operator=(const FiberGroup&) = delete;

  /// Runs `body` in a new fiber of the group. False: there is no fiber or no memory for it, and `body` was destroyed
  /// uncalled. What `body` throws arrives at wait().
  template <class Body>
  [[nodiscard]] bool spawn(Body body) noexcept {
    try {
      auto run = [this, part = WaitPart(living_), body = std::move(body)]() mutable {
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

  /// Waits until all fibers of the group have ended; throws the first exception of a body.
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
