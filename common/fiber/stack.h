// Stacks of fibers, with a guard below each.
#pragma once

#include <cstddef>

namespace loam::fiber {

/// Smallest usable stack. It is large enough for signal handlers and printf.
inline constexpr size_t kMinStackBytes = 16 * 1024;

/// Size of the guard, the inaccessible address space below each stack. Code that was compiled with
/// -fstack-clash-protection touches every page of a large frame, so one page would suffice for it. The larger guard
/// also stops other code, such as the application's own and the system's libraries, unless one of its frames is
/// larger than the guard. The guard takes no memory.
inline constexpr size_t kGuardBytes = 64 * 1024;

/// The stack of a fiber, with a guard below it. An overflow ends the process at once, instead of damaging the memory
/// below. The holder of the value owns the stack and frees it with unmap_stack().
struct Stack {
  std::byte* bottom = nullptr;  ///< lowest usable byte; the guard lies below it
  size_t size_bytes = 0;        ///< usable size

  /// The end of the stack, where its first frame begins.
  std::byte* top() const { return bottom + size_bytes; }
  explicit operator bool() const { return bottom != nullptr; }
};

/// Maps a stack of `size_bytes`, rounded up to pages, and at least kMinStackBytes. Returns an empty stack if the
/// system is out of memory or of mappings. Takes 10 us, so the scheduler keeps stacks for reuse.
Stack map_stack(size_t size_bytes);
/// Frees a stack.
void unmap_stack(Stack stack);

/// The largest number of bytes of the stack in use since it was mapped, rounded up to 8 bytes: everything above the
/// lowest word that is not zero. Reads only pages that have been touched. For a stack of the calling thread.
size_t used_stack_bytes(const Stack& stack);

}  // namespace loam::fiber
