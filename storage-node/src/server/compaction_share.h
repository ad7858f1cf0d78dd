// The background thread's guaranteed share of a core while memory is short (R6).
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/base/env.h"

namespace loam::storage {

/// Role: makes network threads give way to the background thread when memory is short. The background thread runs at a
/// low priority, so that point operations get a core first; when they want every core all the time, it would get next
/// to nothing, and the pool would fill up. Above the watermark of the pool it is owed `share` of a core; what it
/// did not get, the network threads give it by sleeping, one of them first, more of them as the debt grows. Below, it
/// is owed nothing.
///
/// Not by priorities alone: an ordinary process may lower its threads' priority, but not raise it again.
///
/// Owner: the node. Threads: the background thread tells what it does (began(), worked(), rests()); network threads ask
/// owed_ns(). Nobody waits for a lock here.
///
///   debt = share · (now − since) − done          while the background thread has work, and the pool is that full
///
/// Invariants: (1) neither surplus nor debt is saved up: both begin anew when the debt is paid, after kWindowNs, and
/// below the watermark; (2) a debt begins when the background thread wants to run, not while it rests.
class CompactionShare {
 public:
  struct Options {
    double share = 0.25;     ///< of one core; 0: network threads never give way
    double watermark = 0.8;  ///< fill of the pool above which the share is owed
  };
  /// A debt up to this is left: sleeping costs more than that. The thread with number n gives way from n + 1 times this
  /// on.
  static constexpr uint64_t kSlackNs = 500'000;
  /// One sleep of a network thread at most: what a request waits for in addition.
  static constexpr uint64_t kMaxGiveWayNs = 2'000'000;
  /// Over which the share is kept.
  static constexpr uint64_t kWindowNs = 100'000'000;
  /// A step counts as so much at least: simulated steps take no time.
  static constexpr uint64_t kLeastStepNs = 5'000;

  explicit CompactionShare(const Options& options) : options_(options) {}

  // ---- background thread ----------------------------------------------------------------------------------------

  /// It has done a step that took `cpu_ns` of its time, and wants to go on at once.
  void worked(uint64_t now_ns, uint64_t cpu_ns, double fill) {
    // Relaxed, all of them: written by this thread alone; a torn pair misdates the debt by one step.
    const uint64_t since = since_ns_.load(std::memory_order_relaxed);
    const uint64_t done = done_ns_.load(std::memory_order_relaxed) + std::max(cpu_ns, kLeastStepNs);
    const bool anew = !owes(fill) || now_ns <= since || now_ns - since > kWindowNs ||
                      static_cast<double>(done) >= options_.share * static_cast<double>(now_ns - since);
    if (anew) since_ns_.store(now_ns, std::memory_order_relaxed);
    done_ns_.store(anew ? 0 : done, std::memory_order_relaxed);
  }
  /// It has nothing to do until then.
  void rests(uint64_t until_ns) {
    done_ns_.store(0, std::memory_order_relaxed);  // relaxed: as in worked()
    since_ns_.store(until_ns, std::memory_order_relaxed);
  }
  /// Whether there is garbage that it works on.
  void collects(bool collecting) {
    if (collecting == this->collecting()) return;
    collecting_.store(collecting, std::memory_order_relaxed);  // relaxed: as in worked()
  }

  // ---- network threads -------------------------------------------------------------------------------------------

  double watermark() const { return options_.watermark; }
  bool collecting() const { return collecting_.load(std::memory_order_relaxed); }  // relaxed: as in worked()
  bool owes(double fill) const { return options_.share > 0 && fill > options_.watermark; }
  /// How long network thread `number` shall sleep now, 0 if not at all. Between batches, answers sent.
  uint64_t owed_ns(size_t number, double fill, uint64_t now_ns) const {
    if (!owes(fill)) return 0;
    const uint64_t since = since_ns_.load(std::memory_order_relaxed);  // relaxed: as in worked()
    const uint64_t done = done_ns_.load(std::memory_order_relaxed);
    if (now_ns <= since) return 0;
    const double debt = options_.share * static_cast<double>(now_ns - since) - static_cast<double>(done);
    if (debt < static_cast<double>(kSlackNs * (number + 1))) return 0;
    return std::min(static_cast<uint64_t>(debt), kMaxGiveWayNs);
  }

 private:
  const Options options_;
  // Written by the background thread, read by network threads.
  Env::Atomic<uint64_t> since_ns_{UINT64_MAX};  // it wants to run since then, and `done_ns_` is what it got
  Env::Atomic<uint64_t> done_ns_{0};
  Env::Atomic<bool> collecting_{false};
};

}  // namespace loam::storage
