// The delay that network threads add to writes while compaction is behind and memory is short (R6, room before the
// claim).
#pragma once

#include <algorithm>
#include <cstdint>

namespace loam::storage {

/// Slows the writes of one network thread down, the more the fuller the pool is.
///
/// Role: brings the rate of writes down to the rate at which compaction frees memory, before the pool is full and
/// writes are refused. A core of its own does not suffice for a compactor if several threads write faster than it
/// frees. Refusals alone would let memory fill up first. Compaction is most expensive then: the less room there is, the
/// less garbage a page has when it must be rewritten.
///
///   delay of a write = kWriteNs · x / (1 − x)      x rises from 0 at the watermark to 1 at a full pool
///
/// Owner and threads: a network thread. It sleeps for delay_ns() between batches, after it has sent its replies.
class WriteThrottle {
 public:
  /// `watermark`: the fill of the pool above which writes are delayed. Halfway to a full pool the delay is kWriteNs.
  explicit WriteThrottle(double watermark) : watermark_(watermark) {}

  /// The approximate time that a network thread needs for a write: decoding, execution and reply.
  static constexpr uint64_t kWriteNs = 1'000;
  /// Upper bound on the delay of a write, so that a full pool refuses writes and does not make them wait.
  static constexpr uint64_t kMaxWriteDelayNs = 20'000;
  /// Lower bound on a sleep; shorter delays accumulate.
  static constexpr uint64_t kMinSleepNs = 1'000'000;
  /// Upper bound on a sleep, also if more delay has accumulated. All requests to the thread wait for the sleep,
  /// including reads and requests that free memory.
  static constexpr uint64_t kMaxSleepNs = 2'000'000;

  /// Counts `writes` that took memory at this `fill` of the pool. `behind` says that there is garbage to collect.
  /// Returns the time for which the thread sleeps now; 0: it does not.
  uint64_t delay_ns(uint64_t writes, double fill, bool behind) {
    if (!behind || fill <= watermark_) {
      debt_ns_ = 0;
      return 0;
    }
    debt_ns_ += writes * delay_per_write_ns(fill);
    if (debt_ns_ < kMinSleepNs) return 0;
    const uint64_t sleep = std::min(debt_ns_, kMaxSleepNs);
    debt_ns_ = 0;
    return sleep;
  }

 private:
  uint64_t delay_per_write_ns(double fill) const {
    const double x = (fill - watermark_) / (1 - watermark_);
    if (x >= 1) return kMaxWriteDelayNs;
    return std::min(static_cast<uint64_t>(static_cast<double>(kWriteNs) * x / (1 - x)), kMaxWriteDelayNs);
  }

  const double watermark_;
  uint64_t debt_ns_ = 0;
};

}  // namespace loam::storage
