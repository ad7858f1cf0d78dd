// A report of a fiber's stack overflow on stderr, before the overflow ends the process.
#pragma once

#include <cstddef>
#include <memory>

#include "common/fiber/stack.h"

namespace loam::fiber {

/// Reports stack overflows of a thread's fibers. A fault in the guard of the running fiber writes a line to stderr;
/// then SIGSEGV ends the process as usual, with a core file that shows the faulting function.
///
/// The first reporter of a process installs a handler of SIGSEGV if the program has none, and the last one removes
/// it. If the program has a handler of its own, the reporter leaves it alone and writes no line. The handler runs on
/// a signal stack, which the reporter allocates if the thread has none.
///
/// Owner: a Switcher; a thread has at most one reporter at a time. Threads: constructed and destroyed on that thread.
class StackOverflowReporter {
 public:
  /// `running` returns the stack of the running fiber, or an empty one while the thread runs on its own stack. The
  /// signal handler calls it with `owner`, so it must only read.
  using Running = Stack (*)(const void* owner);
  StackOverflowReporter(Running running, const void* owner);
  ~StackOverflowReporter();
  StackOverflowReporter(const StackOverflowReporter&) = delete;
  StackOverflowReporter& operator=(const StackOverflowReporter&) = delete;

  /// Called by the signal handler: writes the line if `address` lies in the guard of the running fiber.
  void write_if_overflowed(const void* address) const;

 private:
  const Running running_;
  const void* const owner_;
  std::unique_ptr<std::byte[]> signal_stack_;  // null: the thread had one before
};

}  // namespace loam::fiber
