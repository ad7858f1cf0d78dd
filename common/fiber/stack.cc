#include "common/fiber/stack.h"

#include <algorithm>
#include <cerrno>

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
  const size_t page = page_bytes();
  const size_t usable = round_up(std::max(size_bytes, kMinStackBytes), page);
  void* memory = mmap(nullptr, usable + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return {};
  if (mprotect(memory, page, PROT_NONE) != 0) {  // splits the mapping: fails at the system's limit of mappings
    munmap(memory, usable + page);
    return {};
  }
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(memory, usable + page);  // an earlier mapping may have left its marks
#endif
  return {static_cast<std::byte*>(memory) + page, usable};
}

void unmap_stack(Stack stack) {
  const size_t page = page_bytes();
  const int result = munmap(stack.bottom - page, stack.size_bytes + page);
  // ENOMEM: the system has no memory to note that the mapping is gone. It stays until the process ends.
  LOAM_CHECK(result == 0 || errno == ENOMEM, "a stack is given back that was not mapped");
}

}  // namespace loam::fiber
