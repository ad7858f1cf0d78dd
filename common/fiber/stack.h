// Stacks with a guard page.
#pragma once

#include <cstddef>

namespace loam::fiber {

/// Least usable stack: signal handlers and printf fit.
inline constexpr size_t kMinStackBytes = 16 * 1024;

/// Memory for a fiber's stack, below it a page that nobody may touch: an overflow ends the process at once instead of
/// damaging what lies below. Owned by whoever holds the value; give it back with unmap_stack().
struct Stack {
  std::byte* bottom = nullptr;  ///< lowest usable byte; the guard page lies below
  size_t size_bytes = 0;

  std::byte* top() const { return bottom + size_bytes; }
  explicit operator bool() const { return bottom != nullptr; }
};

/// `size_bytes` rounded up to pages, and at least kMinStackBytes. An empty stack if the system refuses (out of memory
/// or of mappings). 10 us: the scheduler keeps stacks for reuse.
Stack map_stack(size_t size_bytes);
void unmap_stack(Stack stack);

}  // namespace loam::fiber
