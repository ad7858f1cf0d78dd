// How a transport's thread waits for events: it looks again and again while that pays, then sleeps. Internal.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include <sched.h>
#include <sys/epoll.h>

#include "common/base/env.h"
#include "common/net/tcp_socket.h"
#include "common/net/transport.h"

namespace loam::net {

/// Owned by a transport; everything but wake() is for its thread. The driver registers what it waits for with
/// epoll_fd().
class Waiter {
 public:
  /// kUnavailable if the process is out of file descriptors.
  static Status make_descriptors(Fd& epoll, Fd& bell);

  /// `looks_a_yield`: while it spins, the core is offered to others once in so many looks. That is a system call: 1 for
  /// a look that is one too, more for one that only reads memory.
  Waiter(Fd epoll, Fd bell, unsigned looks_a_yield)
      : epoll_(std::move(epoll)), bell_(std::move(bell)), looks_a_yield_(looks_a_yield) {}

  int epoll_fd() const { return epoll_.get(); }
  /// Readable when a sleep was to be ended: the driver registers it, and calls drain_bell() on its event.
  int bell_fd() const { return bell_.get(); }
  /// Whether it has rung.
  bool drain_bell();

  /// Ends the wait() that is under way, or the next one. Any thread.
  void wake();
  /// Whether wake() was called since the last time. acquire: what the waker did before is seen.
  bool take_wake() { return wake_pending_.exchange(false, std::memory_order_seq_cst); }

  /// Returns what look() returns as soon as that is not 0, or what sleep_for(timeout_ns) does, which waits in
  /// sleep_on_epoll(); 0 after wake() or the time-out.
  template <class Look, class Sleep>
  int wait(uint64_t timeout_ns, uint64_t spin_ns, Look look, Sleep sleep_for) {
    int count = look();
    if (count != 0 || timeout_ns == 0) return count;
    const uint64_t from = RealEnv::now_ns();
    count = spin(std::min(timeout_ns, spin_ns), timeout_ns, look);
    if (count != 0 || wake_pending_.load(std::memory_order_relaxed)) return count;  // relaxed: sleeping looks again
    if (timeout_ns != kForever) {
      const uint64_t spent = RealEnv::now_ns() - from;
      if (spent >= timeout_ns) return 0;
      timeout_ns -= spent;
    }
    asleep_.store(true, std::memory_order_seq_cst);                                     // see asleep_
    count = wake_pending_.load(std::memory_order_seq_cst) ? 0 : sleep_for(timeout_ns);  // see asleep_
    asleep_.store(false, std::memory_order_relaxed);  // relaxed: a waker that sees it late rings once for nothing
    return count;
  }

  /// For sleep_for(): waits in the kernel.
  int sleep_on_epoll(epoll_event* events, int max, uint64_t timeout_ns) const;

 private:
  template <class Look>
  int spin(uint64_t limit_ns, uint64_t timeout_ns, Look look) {
    // Also tried now and then when it has not paid lately.
    const bool worthwhile = limit_ns == timeout_ns || spin_score_ > 0 || ++idle_rounds_ % 64 == 0;
    if (limit_ns == 0 || !worthwhile) return 0;
    // Of kForever there is no end.
    const uint64_t until = limit_ns == kForever ? kForever : RealEnv::now_ns() + limit_ns;
    do {
      if (++looks_ % looks_a_yield_ == 0) sched_yield();  // the peer may wait for this very core
      // relaxed: only ends the spinning; poll() looks again.
      if (wake_pending_.load(std::memory_order_relaxed)) return 0;
      const int count = look();
      if (count != 0) {
        spin_score_ = std::min(spin_score_ + 2, kSpinScoreMost);
        return count;
      }
    } while (RealEnv::now_ns() < until);
    spin_score_ = std::max(spin_score_ - 1, 0);
    return 0;
  }

  const Fd epoll_;
  const Fd bell_;
  const unsigned looks_a_yield_;
  unsigned looks_ = 0;  // while spinning
  // Whether spinning has found events lately: 0 never, kSpinScoreMost always.
  static constexpr int kSpinScoreMost = 16;
  int spin_score_ = kSpinScoreMost / 2;
  unsigned idle_rounds_ = 0;

  // Other threads set wake_pending_, and ring the bell if they see asleep_. The poller sets asleep_ and then looks at
  // wake_pending_. Both are seq_cst: in one order of all four accesses one of the two sees the other's store.
  std::atomic<bool> wake_pending_{false};
  std::atomic<bool> asleep_{false};
};

}  // namespace loam::net
