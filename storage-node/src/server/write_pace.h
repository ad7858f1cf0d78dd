// How network threads slow writes down while compaction is behind and memory runs short (R6).
#pragma once

#include <algorithm>
#include <cstdint>

namespace loam::storage {

/// Role: makes one thread's writes take longer the fuller the pool is, so that they come down to what compaction frees
/// before the pool is full and they are refused. A core of its own does not help a compactor that several threads
/// outrun; and refusals alone would let memory fill up first, where collecting is dearest: the less room there is, the
/// less garbage a page has when it must be rewritten.
///
///   a write costs   kWriteNs · x / (1 − x)   with x the fill's way from the watermark to a full pool
///
/// Owner and threads: a network thread. It sleeps between batches, answers sent, what add() tells it to.
class WritePace {
 public:
  /// Fill of the pool from which on writes are slowed. At the half of what is left a write takes kWriteNs longer.
  explicit WritePace(double watermark) : watermark_(watermark) {}

  /// About what a write takes a network thread by itself: its decoding, execution and answer.
  static constexpr uint64_t kWriteNs = 1'000;
  /// The most a write costs, so that a full pool refuses writes instead of letting them wait.
  static constexpr uint64_t kMostWriteNs = 20'000;
  /// Less is not worth a sleep.
  static constexpr uint64_t kLeastSleepNs = 1'000'000;
  /// One sleep, whatever is owed: all requests to the thread wait for it, reads and what frees memory too.
  static constexpr uint64_t kMostSleepNs = 2'000'000;

  /// `writes` that took memory have been done, at this `fill`; `behind`: there is garbage that compaction works on.
  /// How long the thread shall sleep now, 0: not at all.
  uint64_t add(uint64_t writes, double fill, bool behind) {
    if (!behind || fill <= watermark_) {
      owed_ns_ = 0;
      return 0;
    }
    owed_ns_ += writes * cost_ns(fill);
    if (owed_ns_ < kLeastSleepNs) return 0;
    const uint64_t sleep = std::min(owed_ns_, kMostSleepNs);
    owed_ns_ = 0;
    return sleep;
  }

 private:
  uint64_t cost_ns(double fill) const {
    const double x = (fill - watermark_) / (1 - watermark_);
    if (x >= 1) return kMostWriteNs;
    return std::min(static_cast<uint64_t>(static_cast<double>(kWriteNs) * x / (1 - x)), kMostWriteNs);
  }

  const double watermark_;
  uint64_t owed_ns_ = 0;
};

}  // namespace loam::storage
