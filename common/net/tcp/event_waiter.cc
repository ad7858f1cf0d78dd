// The system calls of EventWaiter. Its loop is a template in event_waiter.h.

#include "common/net/tcp/event_waiter.h"

#include <cerrno>
#include <string>

#include <sys/eventfd.h>

namespace loam::net {

Status EventWaiter::make_descriptors(Fd& epoll, Fd& wakeup) {
  epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  wakeup.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (epoll && wakeup) return ok_status();
  return {StatusCode::kUnavailable,
          "no file descriptors for a transport: " + error_text(errno) + "; raise the limit (ulimit -n)"};
}

bool EventWaiter::drain_wakeup() {
  uint64_t wakeups = 0;
  return ::read(wakeup_.get(), &wakeups, sizeof(wakeups)) > 0;
}

void EventWaiter::wake() {
  // seq_cst, both: see asleep_. The exchange also releases everything that the caller did before to the polling
  // thread's exchange in consume_wake().
  if (wake_pending_.exchange(true, std::memory_order_seq_cst)) return;
  if (!asleep_.load(std::memory_order_seq_cst)) return;
  const uint64_t one = 1;
  // The write fails only if the counter of the eventfd is full, and then the descriptor is readable anyway.
  static_cast<void>(!::write(wakeup_.get(), &one, sizeof(one)));
}

int EventWaiter::sleep_on_epoll(epoll_event* events, int max, uint64_t timeout_ns) const {
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000);
  timeout.tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000);
  return epoll_pwait2(epoll_.get(), events, max, timeout_ns == kForever ? nullptr : &timeout, nullptr);
}

}  // namespace loam::net
