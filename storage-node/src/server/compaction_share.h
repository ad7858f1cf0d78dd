// The background thread's guaranteed share of a core while memory is short (R6, room before the claim).
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/env.h"

namespace loam::storage {

/// Makes network threads sleep so that the background thread gets a share of a core while memory is short.
///
/// Role: scheduling between threads. The background thread runs at a low priority, so that point operations get a core
/// first. If network threads use every core all the time, the background thread gets almost no time, and the pool fills
/// up. Therefore it is owed `share` of a core while the fill of the pool is above the watermark. Network threads pay
/// the debt by sleeping: first one of them, then more of them as the debt grows. Below the watermark the background
/// thread is owed nothing.
///
/// Priorities alone do not suffice: an ordinary process may lower the priority of a thread and cannot raise it again.
///
/// Owner: the storage node. Threads: the background thread reports its work (record_step(), record_idle(),
/// set_collecting()); network threads call delay_ns(). No call takes a lock.
///
///   debt = share · (now − since) − done      while the background thread has work and the fill is above the watermark
///
/// Invariants:
/// (1) Neither a surplus nor a debt accumulates: both start again at 0 when the debt is paid, after kWindowNs, and
///     below the watermark.
/// (2) A debt grows only while the background thread wants to run.
class CompactionShare {
 public:
  struct Options {
    double share = 0.25;     ///< share of one core; 0: network threads never sleep for it
    double watermark = 0.8;  ///< fill of the pool above which the share is owed
  };
  /// A debt below this is not paid, because a sleep costs more. The thread with number n sleeps for a debt of n + 1
  /// times this.
  static constexpr uint64_t kSlackNs = 500'000;
  /// Upper bound on one sleep of a network thread: it delays the requests that arrive meanwhile.
  static constexpr uint64_t kMaxThrottleNs = 2'000'000;
  /// The period over which the share is measured.
  static constexpr uint64_t kWindowNs = 100'000'000;
  /// Lower bound on the time that is counted for a step, because simulated steps take no time.
  static constexpr uint64_t kMinStepNs = 5'000;

  explicit CompactionShare(const Options& options) : options_(options) {}

  // ---- background thread ----------------------------------------------------------------------------------------

  /// Records a step that took `cpu_ns` of processor time. The background thread wants to continue at once.
  void record_step(uint64_t now_ns, uint64_t cpu_ns, double fill) {
    // Relaxed, all: this thread alone writes them. A reader that sees a new `since` with an old `done`, or the reverse,
    // computes a debt that is wrong by one step.
    const uint64_t since = since_ns_.load(std::memory_order_relaxed);
    const uint64_t done = done_ns_.load(std::memory_order_relaxed) + std::max(cpu_ns, kMinStepNs);
    const bool anew = !enforced(fill) || now_ns <= since || now_ns - since > kWindowNs ||
                      static_cast<double>(done) >= options_.share * static_cast<double>(now_ns - since);
    if (anew) since_ns_.store(now_ns, std::memory_order_relaxed);
    done_ns_.store(anew ? 0 : done, std::memory_order_relaxed);
  }
  /// Records that the background thread has nothing to do until `until_ns`.
  void record_idle(uint64_t until_ns) {
    done_ns_.store(0, std::memory_order_relaxed);  // relaxed: as in record_step()
    since_ns_.store(until_ns, std::memory_order_relaxed);
  }
  /// Records whether there is garbage that the background thread collects.
  void set_collecting(bool collecting) {
    if (collecting == this->collecting()) return;
    collecting_.store(collecting, std::memory_order_relaxed);  // relaxed: as in record_step()
  }

  // ---- network threads -------------------------------------------------------------------------------------------

  double watermark() const { return options_.watermark; }
  /// Returns whether there is garbage that the background thread collects.
  bool collecting() const { return collecting_.load(std::memory_order_relaxed); }  // relaxed: as in record_step()
  /// Returns whether the share is owed at this fill of the pool.
  bool enforced(double fill) const { return options_.share > 0 && fill > options_.watermark; }
  /// Returns the time for which network thread `number` sleeps now; 0: it does not. The thread calls it between
  /// batches, after it has sent its replies.
  uint64_t delay_ns(size_t number, double fill, uint64_t now_ns) const {
    if (!enforced(fill)) return 0;
    const uint64_t since = since_ns_.load(std::memory_order_relaxed);  // relaxed: as in record_step()
    const uint64_t done = done_ns_.load(std::memory_order_relaxed);
    if (now_ns <= since) return 0;
    const double debt = options_.share * static_cast<double>(now_ns - since) - static_cast<double>(done);
    if (debt < static_cast<double>(kSlackNs * (number + 1))) return 0;
    return std::min(static_cast<uint64_t>(debt), kMaxThrottleNs);
  }

 private:
  const Options options_;
  // Written by the background thread, read by network threads.
  Env::Atomic<uint64_t> since_ns_{UINT64_MAX};  // the background thread has wanted to run since then
  Env::Atomic<uint64_t> done_ns_{0};            // processor time that it got since then
  Env::Atomic<bool> collecting_{false};
};

}  // namespace loam::storage
