// The handler of SIGSEGV and its installation. The handler runs on the faulting thread, while the fiber that overflowed
// cannot continue, so it allocates nothing, takes no lock, and only reads the state of the fibers.

#include "common/fiber/stack_overflow_reporter.h"

#include <csignal>
#include <cstring>
#include <mutex>
#include <string_view>

#include <unistd.h>

#include "common/base/assert.h"

namespace loam::fiber {
namespace {

/// Size of a signal stack. The kernel's frame for a handler takes 3.6 KiB of it with AVX-512 state.
constexpr size_t kSignalStackBytes = 32 * 1024;

std::mutex installing;
size_t reporters = 0;  // reporters in the process; guarded by installing

thread_local const StackOverflowReporter* this_threads_reporter = nullptr;

struct sigaction default_action() {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  return action;
}

/// The handler of SIGSEGV. It calls only functions that are safe in a signal handler.
void on_fault(int, siginfo_t* info, void*) {
  if (this_threads_reporter != nullptr) this_threads_reporter->write_if_overflowed(info->si_addr);
  const struct sigaction action = default_action();
  sigaction(SIGSEGV, &action, nullptr);
  // With the default action restored, the faulting instruction runs again and ends the process. A signal that was
  // sent by a process has no such instruction, so the handler sends it again.
  if (info->si_code <= 0) static_cast<void>(raise(SIGSEGV));
}

struct sigaction present_action() {
  struct sigaction action{};
  sigaction(SIGSEGV, nullptr, &action);
  return action;
}

/// Builds a line of text in the signal handler, which must not allocate memory.
class Line {
 public:
  Line& operator<<(std::string_view text) {
    const size_t bytes = text.size() < sizeof(text_) - size_ ? text.size() : sizeof(text_) - size_;
    std::memcpy(text_ + size_, text.data(), bytes);
    size_ += bytes;
    return *this;
  }
  Line& operator<<(size_t number) {
    char digits[20];
    size_t at = sizeof(digits);
    do {
      digits[--at] = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number > 0);
    return *this << std::string_view(digits + at, sizeof(digits) - at);
  }
  void write() const { static_cast<void>(!::write(STDERR_FILENO, text_, size_)); }

 private:
  char text_[256];
  size_t size_ = 0;
};

}  // namespace

StackOverflowReporter::StackOverflowReporter(Running running, const void* owner) : running_(running), owner_(owner) {
  LOAM_CHECK(this_threads_reporter == nullptr, "a thread has one reporter of stack overflows at a time");
  // The handler needs a stack of its own, because the stack of the fiber is full.
  stack_t present{};
  if (sigaltstack(nullptr, &present) == 0 && (present.ss_flags & SS_DISABLE) != 0) {
    signal_stack_ = std::make_unique_for_overwrite<std::byte[]>(kSignalStackBytes);
    stack_t own{};
    own.ss_sp = signal_stack_.get();
    own.ss_size = kSignalStackBytes;
    if (sigaltstack(&own, nullptr) != 0) signal_stack_.reset();
  }
  this_threads_reporter = this;
  // The handler is process-wide, so the first reporter installs it for all threads. A handler of the program has
  // precedence.
  const std::lock_guard lock(installing);
  if (reporters++ > 0) return;
  const struct sigaction present_handler = present_action();
  if ((present_handler.sa_flags & SA_SIGINFO) != 0 || present_handler.sa_handler != SIG_DFL) return;
  struct sigaction action{};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);
}

StackOverflowReporter::~StackOverflowReporter() {
  {
    const std::lock_guard lock(installing);
    const struct sigaction present_handler = present_action();
    // The program may have replaced the handler since then; its handler stays.
    const bool ours = (present_handler.sa_flags & SA_SIGINFO) != 0 && present_handler.sa_sigaction == on_fault;
    if (--reporters == 0 && ours) {
      const struct sigaction action = default_action();
      sigaction(SIGSEGV, &action, nullptr);
    }
  }
  this_threads_reporter = nullptr;
  if (signal_stack_ == nullptr) return;
  stack_t none{};
  none.ss_flags = SS_DISABLE;
  sigaltstack(&none, nullptr);
}

void StackOverflowReporter::write_if_overflowed(const void* address) const {
  const Stack stack = running_(owner_);
  const auto* const at = static_cast<const std::byte*>(address);
  if (!stack || at >= stack.bottom || at < stack.bottom - kGuardBytes) return;
  Line line;
  line << "loam: a fiber's stack of " << stack.size_bytes
       << " bytes has overflowed; use less stack in fibers, or give them more (the option fiber_stack_bytes)\n";
  line.write();
}

}  // namespace loam::fiber
