#include "deploy/cli/src/host/interrupt.h"

#include <atomic>
#include <csignal>

namespace loam::cli {
namespace {

// Lock-free, so that a signal handler may write it; relaxed: it guards no other data.
std::atomic<bool> caught{false};

void note(int signal) {
  caught.store(true, std::memory_order_relaxed);
  std::signal(signal, SIG_DFL);
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
  std::signal(SIGINT, note);
  std::signal(SIGTERM, note);
}

bool interrupted() { return caught.load(std::memory_order_relaxed); }

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
