// The stack on which a thread handles signals.
#pragma once

#include <cstddef>

namespace loam {

/// Gives the calling thread a stack of its own for signal handlers, so that the handler of a crash runs although the
/// stack of the thread or fiber has overflowed. The thread has the stack until the destructor.
///
/// Does nothing before enable(), or if no memory can be mapped. Owner: a function of the thread. Threads: one.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

  /// Lets later objects map stacks. A program that handles crashes calls it before it starts threads. Others, such as
  /// applications with the client library, do not pay for the stacks.
  static void enable();

  /// Size of a stack: unwinding takes some KiB, and a signal frame with AVX-512 and AMX registers 11 KiB.
  static constexpr size_t kBytes = size_t{64} << 10;

 private:
  void* mapping_ = nullptr;
};

}  // namespace loam
