// One text in static memory, because a process that aborts may be unable to allocate.
#include "common/base/crash_reason.h"

#include <algorithm>
#include <array>
#include <atomic>

namespace loam {
namespace {

std::array<char, 512> reason_text;
// State of the process, also under the simulator: plain atomics.
std::atomic<bool> taken{false};  // whether a thread writes the text or has written it
std::atomic<size_t> length{0};   // release and acquire: the text is complete

}  // namespace

void set_crash_reason(std::string_view reason) {
  if (taken.exchange(true, std::memory_order_relaxed)) return;  // relaxed: only one thread writes
  const size_t size = std::min(reason.size(), reason_text.size());
  std::copy_n(reason.begin(), size, reason_text.begin());
  length.store(size, std::memory_order_release);
}

std::string_view crash_reason() { return {reason_text.data(), length.load(std::memory_order_acquire)}; }

}  // namespace loam
