// Receives the signals in a thread of its own and passes them to the thread in wait().
#include "common/program/stop_signals.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "common/base/assert.h"

namespace loam::program {

StopSignals::StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // Blocked signals stay pending until the watcher reads them, so no signal handler runs.
  signals_ = signalfd(-1, &set, SFD_CLOEXEC);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  LOAM_CHECK(signals_ >= 0 && stop_fd_ >= 0, "a program needs two descriptors for its signals");
  watcher_ = std::thread([this] { watch(); });
  pthread_setname_np(watcher_.native_handle(), "loam-signals");
}

StopSignals::~StopSignals() {
  const uint64_t one = 1;
  LOAM_CHECK(write(stop_fd_, &one, sizeof(one)) == sizeof(one), "an eventfd accepts a 1");
  watcher_.join();
  close(signals_);
  close(stop_fd_);
}

// The thread of the object: reads signals until the destructor writes to stop_fd_.
void StopSignals::watch() {
  for (;;) {
    std::array<pollfd, 2> wanted = {{{signals_, POLLIN, 0}, {stop_fd_, POLLIN, 0}}};
    if (poll(wanted.data(), wanted.size(), -1) < 0) continue;  // interrupted
    if (wanted[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signals_, &info, sizeof(info)) != sizeof(info)) continue;
    const std::lock_guard lock(mutex_);
    if (!serving_ || reason_) {
      // The process may end at any place: a server writes durable state to its disk before it reports it to a client.
      // A program that has not started ends with code 0, because a signal stopped it.
      dprintf(STDERR_FILENO, "%s\n", serving_ ? "second signal: ending at once" : "stopped before the start");
      std::_Exit(serving_ ? 128 + static_cast<int>(info.ssi_signo) : 0);
    }
    reason_ = ok_status();
    changed_.notify_all();
  }
}

void StopSignals::set_serving() {
  const std::lock_guard lock(mutex_);
  serving_ = true;
}

void StopSignals::fail(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (!reason_) reason_ = why;
  changed_.notify_all();
}

Status StopSignals::wait(std::chrono::milliseconds period, const std::function<void()>& meanwhile) {
  std::unique_lock lock(mutex_);
  // `meanwhile` runs without the lock, because it may be slow and the watcher needs the lock.
  while (!changed_.wait_for(lock, period, [this] { return reason_.has_value(); })) {
    lock.unlock();
    meanwhile();
    lock.lock();
  }
  return *reason_;
}

}  // namespace loam::program
