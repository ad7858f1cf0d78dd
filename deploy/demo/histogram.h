// A histogram of latencies that is small enough for the reports of client processes.
#pragma once

#include <array>
#include <cstdint>

#include <nlohmann/json.hpp>

namespace loam::cli {

/// Counts durations in buckets. The width of a bucket is 1/16 of its values; the buckets cover 1 ns to 2^40 ns (18
/// minutes), and a longer duration counts as 2^40 ns. Quantiles are exact to 7 %, the largest value is exact. Value
/// type; threads: one.
class Histogram {
 public:
  void add(uint64_t ns);
  void merge(const Histogram& other);

  uint64_t count() const { return count_; }
  uint64_t max_ns() const { return max_ns_; }
  /// The quantile `q`, from 0 to 1. 0 without samples; quantile_ns(1) is max_ns().
  uint64_t quantile_ns(double q) const;

  /// The histogram as {"max_ns": …, "buckets": [[bucket, count], …]}; empty buckets are left out.
  nlohmann::ordered_json to_json() const;
  /// Parses the output of to_json(). Malformed parts count as empty.
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
