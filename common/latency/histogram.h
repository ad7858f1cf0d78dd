// A histogram of durations that one thread fills and any thread reads.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "common/base/assert.h"
#include "common/base/statistics.h"

namespace loam::latency {

/// Counts durations in buckets whose bounds double, from 1 us to 16.8 s.
///
/// `Number` is statistics::Counter for the histogram that a thread fills, uint64_t for a copy. Bucket i has the
/// durations of at most bound_ns(i) that no earlier bucket has; the last one has all longer durations. Each number of
/// a copy is exact; the numbers of one copy may stem from different moments.
template <class Number>
class HistogramOf {
 public:
  /// Number of buckets, the one without a bound included.
  static constexpr size_t kBuckets = 26;
  /// Returns the upper bound of a bucket that is not the last one.
  static constexpr uint64_t bound_ns(size_t bucket) { return uint64_t{1'000} << bucket; }
  /// Returns the bucket of a duration.
  static constexpr size_t bucket_of(uint64_t ns) {
    // Rounded up to microseconds; a duration of 2^i us belongs to bucket i.
    const uint64_t us = (ns + 999) / 1'000;
    return us <= 1 ? 0 : std::min<size_t>(static_cast<size_t>(std::bit_width(us - 1)), kBuckets - 1);
  }

  /// Counts a duration `count` times. The thread that fills the histogram.
  void add(uint64_t ns, uint64_t count = 1) {
    if constexpr (std::is_same_v<Number, uint64_t>) {
      buckets_[bucket_of(ns)] += count;
      sum_ns_ += ns * count;
    } else {
      buckets_[bucket_of(ns)].add(count);
      sum_ns_.add(ns * count);
    }
  }

  /// The number of durations of each bucket.
  const std::array<Number, kBuckets>& buckets() const { return buckets_; }
  /// The sum of all durations.
  const Number& sum_ns() const { return sum_ns_; }

  /// Adds the numbers of another histogram to this copy.
  template <class Other>
  void merge(const HistogramOf<Other>& other) {
    const auto read = [](const Other& number) {
      if constexpr (std::is_same_v<Other, uint64_t>) {
        return number;
      } else {
        return number.read();
      }
    };
    for (size_t i = 0; i < kBuckets; ++i) buckets_[i] += read(other.buckets()[i]);
    sum_ns_ += read(other.sum_ns());
  }

  /// Removes the durations of an older copy of the same histograms, so that those remain that were added since.
  void subtract(const HistogramOf& older) {
    for (size_t i = 0; i < kBuckets; ++i) {
      LOAM_DCHECK(older.buckets_[i] <= buckets_[i], "the older copy is of the same histograms");
      buckets_[i] -= older.buckets_[i];
    }
    sum_ns_ -= older.sum_ns_;
  }

  /// Returns the number of durations in a copy.
  uint64_t count() const {
    uint64_t all = 0;
    for (const uint64_t n : buckets_) all += n;
    return all;
  }
  /// Returns an upper bound of the duration that a `share` of all durations of a copy does not exceed: the bound of its
  /// bucket, twice the largest bound for the last bucket, 0 without durations.
  uint64_t quantile_ns(double share) const {
    const uint64_t all = count();
    const auto wanted = static_cast<uint64_t>(std::ceil(share * static_cast<double>(all)));
    uint64_t seen = 0;
    for (size_t i = 0; i < kBuckets; ++i) {
      seen += buckets_[i];
      if (all != 0 && seen >= std::max<uint64_t>(wanted, 1)) return bound_ns(i);
    }
    return 0;
  }

 private:
  std::array<Number, kBuckets> buckets_{};
  Number sum_ns_{};
};

/// A histogram that one thread fills.
using LiveHistogram = HistogramOf<statistics::Counter>;
/// A copy of histograms, or their sum.
using Histogram = HistogramOf<uint64_t>;

}  // namespace loam::latency
