// How long things took, in little room: what a client process tells of its latencies.
#pragma once

#include <array>
#include <cstdint>

#include <nlohmann/json.hpp>

namespace loam::cli {

/// Counts of times in buckets whose widths are 1/16 of their values, from 1 ns to 2^40 ns (18 minutes; what is longer
/// counts as that). Quantiles are exact to 7 %, the largest value is exact. Value type; one thread.
class Histogram {
 public:
  void add(uint64_t ns);
  void merge(const Histogram& other);

  uint64_t count() const { return count_; }
  uint64_t max_ns() const { return max_ns_; }
  /// 0 without samples; quantile(1) is max_ns().
  uint64_t quantile_ns(double q) const;

  /// {"max_ns": …, "buckets": [[bucket, count], …]}, buckets without a count left out.
  nlohmann::ordered_json to_json() const;
  /// What to_json() made; anything that is not understood counts nothing.
  static Histogram from_json(const nlohmann::ordered_json& json);

 private:
  static constexpr unsigned kSubBits = 4;
  static constexpr unsigned kBuckets = (40 - kSubBits + 2) << kSubBits;

  static unsigned bucket_of(uint64_t ns);
  /// The middle of a bucket.
  static uint64_t value_of(unsigned bucket);

  std::array<uint32_t, kBuckets> counts_{};
  uint64_t count_ = 0;
  uint64_t max_ns_ = 0;
};

}  // namespace loam::cli
