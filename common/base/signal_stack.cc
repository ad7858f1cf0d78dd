// Alternate signal stacks (sigaltstack), each above a page without access.
#include "common/base/signal_stack.h"

#include <atomic>
#include <csignal>

#include <sys/mman.h>

namespace loam {
namespace {

constexpr size_t kGuardBytes = 4'096;
// Relaxed: enable() comes before the threads that read it.
std::atomic<bool> enabled{false};

}  // namespace

void SignalStack::enable() { enabled.store(true, std::memory_order_relaxed); }

SignalStack::SignalStack() {
  if (!enabled.load(std::memory_order_relaxed)) return;
  void* const memory = ::mmap(nullptr, kGuardBytes + kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) return;
  char* const begin = static_cast<char*>(memory) + kGuardBytes;
  stack_t stack{};
  stack.ss_sp = begin;
  stack.ss_size = kBytes;
  if (::mprotect(begin, kBytes, PROT_READ | PROT_WRITE) != 0 || ::sigaltstack(&stack, nullptr) != 0) {
    ::munmap(memory, kGuardBytes + kBytes);
    return;
  }
  mapping_ = memory;
}

SignalStack::~SignalStack() {
  if (mapping_ == nullptr) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  ::sigaltstack(&none, nullptr);
  ::munmap(mapping_, kGuardBytes + kBytes);
}

}  // namespace loam
