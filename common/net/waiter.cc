#include "common/net/waiter.h"

#include <cerrno>
#include <string>

#include <sys/eventfd.h>

namespace loam::net {

Status Waiter::make_descriptors(Fd& epoll, Fd& bell) {
  epoll.reset(::epoll_create1(EPOLL_CLOEXEC));
  bell.reset(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (epoll && bell) return ok_status();
  return {StatusCode::kUnavailable,
          "no file descriptors for a transport: " + error_text(errno) + "; raise the limit (ulimit -n)"};
}

bool Waiter::drain_bell() {
  uint64_t rings = 0;
  return ::read(bell_.get(), &rings, sizeof(rings)) > 0;
}

void Waiter::wake() {
  // seq_cst twice: see asleep_. The exchange also releases what the caller did before to the poller's exchange.
  if (wake_pending_.exchange(true, std::memory_order_seq_cst)) return;
  if (!asleep_.load(std::memory_order_seq_cst)) return;
  const uint64_t one = 1;
  // Fails only when the counter is at its end, and then the poller is awake anyway.
  static_cast<void>(!::write(bell_.get(), &one, sizeof(one)));
}

int Waiter::sleep_on_epoll(epoll_event* events, int max, uint64_t timeout_ns) const {
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000);
  timeout.tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000);
  return epoll_pwait2(epoll_.get(), events, max, timeout_ns == kForever ? nullptr : &timeout, nullptr);
}

}  // namespace loam::net
