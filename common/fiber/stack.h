// Stacks with a guard below them.
#pragma once

#include <cstddef>

namespace loam::fiber {

/// Least usable stack: signal handlers and printf fit.
inline constexpr size_t kMinStackBytes = 16 * 1024;

/// Address space below each stack that no code may touch. Code that was compiled with -fstack-clash-protection touches
/// every page of a large frame, so that one page would do; this much also stops the frames of code without it (an
/// application's own, the system's libraries) unless a single one is larger. It takes no memory.
inline constexpr size_t kGuardBytes = 64 * 1024;

/// Memory for a fiber's stack, with a guard below it: an overflow ends the process at once instead of damaging what
/// lies below. The holder of the value owns it and gives it back with unmap_stack().
struct Stack {
  std::byte* bottom = nullptr;  ///< lowest usable byte; the guard lies below
  size_t size_bytes = 0;

  std::byte* top() const { return bottom + size_bytes; }
  explicit operator bool() const { return bottom != nullptr; }
};

/// `size_bytes` rounded up to pages, and at least kMinStackBytes. An empty stack if the system refuses (out of memory
/// or of mappings). 10 us: the scheduler keeps stacks for reuse.
Stack map_stack(size_t size_bytes);
void unmap_stack(Stack stack);

/// How much of the stack has been used since it was mapped, at most, rounded up to 8 bytes: everything above the lowest
/// word that is not zero. Looks only at pages that have been touched. For a stack of the calling thread.
size_t deepest_use_bytes(const Stack& stack);

}  // namespace loam::fiber
