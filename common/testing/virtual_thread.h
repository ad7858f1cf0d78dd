// Virtual threads: stacks that run in turns within one thread of the operating system. The explorer and the simulator
// build their threads on them. Only in simulated builds.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace loam::testing {

/// Runs a function, its body, on a stack of its own, in turns with the scheduler that resumes it.
///
/// A guard lies below each stack. Stacks are kept for later virtual threads, because mapping one costs 10 µs.
///
/// Owner: a scheduler of virtual threads. Threads: the scheduler's, in which the body runs too. An object whose body
/// has begun and not ended must not be destroyed: the body may be inside a destructor, so its stack cannot be
/// unwound. The owner calls abandon() instead.
class VirtualThread {
 public:
  /// Usable size of the stack.
  static constexpr size_t kStackBytes = size_t{256} << 10;

  /// Prepares the stack. The body begins at the first resume().
  explicit VirtualThread(std::function<void()> body);
  ~VirtualThread();
  VirtualThread(const VirtualThread&) = delete;
  VirtualThread& operator=(const VirtualThread&) = delete;

  /// Runs the body until it pauses or ends. Called by the scheduler.
  void resume();
  /// Switches back to the scheduler, and returns at the next resume(). Called by the body, on its own stack or on a
  /// stack to which it has switched, such as that of a fiber.
  void pause();
  /// Whether the body has ended.
  bool finished() const { return finished_; }

  /// Keeps the object for ever without running it again. The objects on its stack stay reachable, so that LeakSanitizer
  /// reports no leak.
  static void abandon(std::unique_ptr<VirtualThread> thread);

 private:
  struct Impl;

  bool finished_ = false;
  std::function<void()> body_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::testing
