// Says that a fiber's stack has overflowed, before that ends the process.
#pragma once

#include <cstddef>
#include <memory>

#include "common/fiber/stack.h"

namespace loam::fiber {

/// While one exists, a fault in the guard of the thread's running fiber writes a line to stderr, and then ends the
/// process by SIGSEGV as it would have without: with a core file that shows the faulting function.
///
/// The first one of a process installs a handler for SIGSEGV if the program has none, and the last one takes it away; a
/// handler of the program's own is left alone, and there is no line then. The handler runs on a signal stack, which the
/// thread gets if it has none.
///
/// Owner: a Switcher, one at a time of a thread. Made and destroyed on that thread.
class OverflowReport {
 public:
  /// `running` tells the running fiber's stack (none: the thread's own runs). Called by the handler: it must only read.
  using Running = Stack (*)(const void* owner);
  OverflowReport(Running running, const void* owner);
  ~OverflowReport();
  OverflowReport(const OverflowReport&) = delete;
  OverflowReport& operator=(const OverflowReport&) = delete;

  /// In the handler: writes the line if `address` lies in the guard.
  void write_if_overflowed(const void* address) const;

 private:
  const Running running_;
  const void* const owner_;
  std::unique_ptr<std::byte[]> signal_stack_;  // none: the thread had one
};

}  // namespace loam::fiber
