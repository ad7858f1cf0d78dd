// The wait of a transport's thread for events: it spins while that pays off, and then sleeps. Internal.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include <sched.h>
#include <sys/epoll.h>

#include "common/base/env.h"
#include "common/net/tcp/tcp_socket.h"
#include "common/net/transport/transport.h"

namespace loam::net {

/// Waits for events of an epoll descriptor, or of memory that the caller polls, and for wake-ups by other threads.
///
/// Owner: a transport, which registers its descriptors with epoll_fd(). Threads: the transport's, except for wake().
class EventWaiter {
 public:
  /// Makes the two descriptors of the constructor. kUnavailable: the process has no free file descriptor.
  static Status make_descriptors(Fd& epoll, Fd& wakeup);

  /// While the thread spins, it calls sched_yield() once in `polls_per_yield` calls of poll_events(). That is a system
  /// call, so 1 is right if poll_events() is a system call too, and a larger number if it only reads memory.
  EventWaiter(Fd epoll, Fd wakeup, unsigned polls_per_yield)
      : epoll_(std::move(epoll)), wakeup_(std::move(wakeup)), polls_per_yield_(polls_per_yield) {}

  int epoll_fd() const { return epoll_.get(); }
  /// An eventfd that wake() makes readable to end a sleep. The transport registers it and calls drain_wakeup() on its
  /// event.
  int wakeup_fd() const { return wakeup_.get(); }
  /// Makes wakeup_fd() unreadable, and returns whether it was readable.
  bool drain_wakeup();

  /// Ends the running wait(), or the next one. Any thread.
  void wake();
  /// Returns whether wake() was called since the last call. The caller sees everything that the waker did before.
  bool consume_wake() { return wake_pending_.exchange(false, std::memory_order_seq_cst); }

  /// Waits for events. Returns the first result of poll_events() that is not 0. If spinning finds none, returns the
  /// result of sleep_for(timeout_ns), which sleeps by sleep_on_epoll(). Returns 0 after wake() or the time-out.
  template <class PollEvents, class Sleep>
  int wait(uint64_t timeout_ns, uint64_t spin_ns, PollEvents poll_events, Sleep sleep_for) {
    last_look_ns_ = 0;
    int count = poll_events();
    if (count != 0 || timeout_ns == 0) return count;
    const uint64_t from = RealEnv::now_ns();
    count = spin(std::min(timeout_ns, spin_ns), timeout_ns, poll_events);
    // Relaxed: a wake-up that this load misses is seen by the load before the sleep.
    if (count != 0 || wake_pending_.load(std::memory_order_relaxed)) return count;
    if (timeout_ns != kForever) {
      const uint64_t spent = RealEnv::now_ns() - from;
      if (spent >= timeout_ns) return 0;
      timeout_ns -= spent;
    }
    last_look_ns_ = 0;
    asleep_.store(true, std::memory_order_seq_cst);                                     // see asleep_
    count = wake_pending_.load(std::memory_order_seq_cst) ? 0 : sleep_for(timeout_ns);  // see asleep_
    asleep_.store(false, std::memory_order_relaxed);  // relaxed: a late waker only writes to wakeup_ in vain
    return count;
  }

  /// Transport::last_look_ns().
  const uint64_t& last_look_ns() const { return last_look_ns_; }

  /// Sleeps in the kernel until an event or the time-out. For sleep_for().
  int sleep_on_epoll(epoll_event* events, int max, uint64_t timeout_ns) const;

 private:
  template <class PollEvents>
  int spin(uint64_t limit_ns, uint64_t timeout_ns, PollEvents poll_events) {
    // If spinning has not found events lately, only one round in 64 spins, to learn whether it pays off again.
    const bool worthwhile = limit_ns == timeout_ns || spin_score_ > 0 || ++idle_rounds_ % 64 == 0;
    if (limit_ns == 0 || !worthwhile) return 0;
    // kForever is no time to add to the clock.
    last_look_ns_ = RealEnv::now_ns();
    const uint64_t until = limit_ns == kForever ? kForever : last_look_ns_ + limit_ns;
    do {
      if (++polls_ % polls_per_yield_ == 0) sched_yield();  // the peer may be waiting for this core
      // Relaxed: it only ends the spinning. wait() reads the flag again.
      if (wake_pending_.load(std::memory_order_relaxed)) return 0;
      const int count = poll_events();
      if (count != 0) {
        spin_score_ = std::min(spin_score_ + 2, kSpinScoreMost);
        return count;
      }
      last_look_ns_ = RealEnv::now_ns();
    } while (last_look_ns_ < until);
    spin_score_ = std::max(spin_score_ - 1, 0);
    return 0;
  }

  const Fd epoll_;
  const Fd wakeup_;
  const unsigned polls_per_yield_;
  uint64_t last_look_ns_ = 0;
  unsigned polls_ = 0;  // calls of poll_events() while spinning
  // A score of whether spinning has found events lately: 0 means never, kSpinScoreMost always.
  static constexpr int kSpinScoreMost = 16;
  int spin_score_ = kSpinScoreMost / 2;
  unsigned idle_rounds_ = 0;

  // A waker sets wake_pending_ and then reads asleep_; if it is set, the waker writes to wakeup_. The polling thread
  // sets asleep_ and then reads wake_pending_. All four accesses are seq_cst: in their single order at least one of
  // the two threads sees the store of the other. With weaker orders both could miss it, and the sleep would not end.
  std::atomic<bool> wake_pending_{false};
  std::atomic<bool> asleep_{false};
};

}  // namespace loam::net
