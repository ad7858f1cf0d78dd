// A stack of its own that runs until it pauses: what the explorer's and the simulator's threads are made of. The
// simulated kind only.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace loam::testing {

/// Runs a body on a stack of its own, in turns with the thread that resumes it. Stacks have a guard below them and are
/// kept for the next one: a fresh one would cost 10 µs.
///
/// Owner: a scheduler of virtual threads, on whose operating-system thread everything runs. A body that has begun and
/// not ended must not be destroyed but abandoned: it may stand inside a destructor, so it cannot be unwound.
class VirtualThread {
 public:
  static constexpr size_t kStackBytes = size_t{256} << 10;

  explicit VirtualThread(std::function<void()> body);
  ~VirtualThread();
  VirtualThread(const VirtualThread&) = delete;
  VirtualThread& operator=(const VirtualThread&) = delete;

  /// By the scheduler: lets the body run until it pauses or ends.
  void resume();
  /// In the body, on its own stack or on one that it has switched to: back to the scheduler.
  void pause();
  bool finished() const { return finished_; }

  /// Never runs again. What its stack holds stays where it is, reachable, so that it is no leak to a checker.
  static void abandon(std::unique_ptr<VirtualThread> thread);

 private:
  struct Impl;

  bool finished_ = false;
  std::function<void()> body_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::testing
