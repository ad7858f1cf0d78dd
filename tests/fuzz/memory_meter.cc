// The meter of fuzz.h, on the allocation hooks of the sanitizer.
#include <algorithm>

#include <sanitizer/allocator_interface.h>

#include "tests/fuzz/fuzz.h"

namespace loam::fuzz {
namespace {

// The fuzz targets allocate on one thread only. The threads of libFuzzer itself do not matter to the sum.
int64_t live = 0;
int64_t highest = 0;

void on_malloc(const volatile void*, size_t size) {
  live += static_cast<int64_t>(size);
  highest = std::max(highest, live);
}
void on_free(const volatile void* pointer) {
  if (pointer != nullptr) live -= static_cast<int64_t>(__sanitizer_get_allocated_size(pointer));
}

}  // namespace

MemoryMeter::MemoryMeter() {
  static const bool kInstalled = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free) != 0;
  require(kInstalled, "the sanitizer accepts the hooks of the meter");
  live = 0;
  highest = 0;
}
MemoryMeter::~MemoryMeter() = default;

size_t MemoryMeter::peak() const { return static_cast<size_t>(highest); }

void MemoryMeter::require_at_most(size_t factor, size_t input_bytes) const {
  if (peak() <= kFreeBytes + factor * input_bytes) return;
  std::fprintf(stderr, "FAILED CHECK: %zu bytes of input made the decoder allocate %zu bytes\n", input_bytes, peak());
  std::abort();
}

}  // namespace loam::fuzz
