#include "common/fiber/stack.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "common/base/assert.h"
#include "common/base/bytes.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace loam::fiber {
namespace {

size_t page_bytes() {
  static const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

Stack map_stack(size_t size_bytes) {
  const size_t usable = round_up(std::max(size_bytes, kMinStackBytes), page_bytes());
  const size_t mapped = kGuardBytes + usable;
  void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return {};
  if (mprotect(memory, kGuardBytes, PROT_NONE) != 0) {  // splits the mapping, and so fails at the limit of mappings
    munmap(memory, mapped);
    return {};
  }
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(memory, mapped);  // an earlier mapping at this address may have left poison
#endif
  return {static_cast<std::byte*>(memory) + kGuardBytes, usable};
}

void unmap_stack(Stack stack) {
  const int result = munmap(stack.bottom - kGuardBytes, kGuardBytes + stack.size_bytes);
  // ENOMEM: to split the mapping the system needs memory that it does not have. The stack stays mapped until the
  // process ends.
  LOAM_CHECK(result == 0 || errno == ENOMEM, "a stack is unmapped that was not mapped");
}

#ifdef __SANITIZE_ADDRESS__
__attribute__((no_sanitize("address")))  // reads frames that have ended
#endif
size_t
used_stack_bytes(const Stack& stack) {
  const size_t page = page_bytes();
  // A page that was never touched is not resident. The function skips it, because a read would take memory for it.
  std::vector<unsigned char> touched(stack.size_bytes / page);
  if (mincore(stack.bottom, stack.size_bytes, touched.data()) != 0) return 0;
  for (size_t at = 0; at < stack.size_bytes; at += sizeof(uint64_t)) {
    if ((touched[at / page] & 1) == 0) {
      at += page - sizeof(uint64_t);
      continue;
    }
    uint64_t word = 0;
    std::memcpy(&word, stack.bottom + at, sizeof word);
    if (word != 0) return stack.size_bytes - at;
  }
  return 0;
}

}  // namespace loam::fiber
