// Two ways to notice SIGINT and SIGTERM: a handler that sets a flag (catch_interrupts()), and blocked signals that one
// thread waits for (block_interrupts()).
#include "deploy/cli/src/host/interrupt.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/env.h"

namespace loam::cli {
namespace {

// Lock-free, because a signal handler writes it. Relaxed, because it guards no other data.
std::atomic<bool> caught{false};

// The eventfd that the handler writes. Set before the handlers and never closed, because a handler may run at any time.
int wake = -1;

void note(int signal) {
  // The handler uses only functions that are safe in a signal handler, and restores errno for the interrupted code.
  const int error = errno;
  caught.store(true, std::memory_order_relaxed);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake, &one, sizeof one);
  // From now on this signal has its default action, so a second one ends the program.
  std::signal(signal, SIG_DFL);
  errno = error;
}

sigset_t both() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

void catch_interrupts() {
  // Non-blocking, because the handler must never wait.
  if (wake < 0) wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::signal(SIGINT, note);
  std::signal(SIGTERM, note);
}

bool interrupted() { return caught.load(std::memory_order_relaxed); }

bool sleep_until(uint64_t at_ns) {
  constexpr auto kPollInterval = std::chrono::milliseconds(20);
  while (!interrupted() && Env::now_ns() < at_ns) std::this_thread::sleep_for(kPollInterval);
  return !interrupted();
}

int interrupt_descriptor() { return wake; }

void block_interrupts() {
  const sigset_t set = both();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void wait_for_interrupt() {
  const sigset_t set = both();
  int signal = 0;
  sigwait(&set, &signal);
}

}  // namespace loam::cli
