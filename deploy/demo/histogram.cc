// Buckets whose width grows with their values: constant relative error, and a constant number of buckets.
#include "deploy/demo/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace loam::cli {

// Below 2^kSubBits each nanosecond has a bucket of its own. Above, the highest kSubBits + 1 bits select the bucket.
unsigned Histogram::bucket_of(uint64_t ns) {
  constexpr uint64_t kLinear = uint64_t{1} << kSubBits;
  if (ns < kLinear) return static_cast<unsigned>(ns);
  const unsigned shift = static_cast<unsigned>(std::bit_width(ns)) - kSubBits - 1;
  const auto sub = static_cast<unsigned>((ns >> shift) - kLinear);
  return std::min(((shift + 1) << kSubBits) + sub, kBuckets - 1);
}

uint64_t Histogram::value_of(unsigned bucket) {
  if (bucket < (1u << kSubBits)) return bucket;
  const unsigned shift = (bucket >> kSubBits) - 1;
  const uint64_t low = ((uint64_t{1} << kSubBits) + (bucket & ((1u << kSubBits) - 1))) << shift;
  // The middle of the bucket halves the largest error.
  return low + ((uint64_t{1} << shift) >> 1);
}

void Histogram::add(uint64_t ns) {
  ++counts_[bucket_of(ns)];
  ++count_;
  max_ns_ = std::max(max_ns_, ns);
}

void Histogram::merge(const Histogram& other) {
  for (unsigned i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  max_ns_ = std::max(max_ns_, other.max_ns_);
}

uint64_t Histogram::quantile_ns(double q) const {
  if (count_ == 0) return 0;
  const auto rank = static_cast<uint64_t>(std::ceil(q * static_cast<double>(count_)));
  // The largest value is exact, so the quantile 1 is.
  if (rank >= count_) return max_ns_;
  uint64_t seen = 0;
  for (unsigned i = 0; i < kBuckets; ++i) {
    seen += counts_[i];
    if (seen >= std::max<uint64_t>(rank, 1)) return std::min(value_of(i), max_ns_);
  }
  return max_ns_;
}

nlohmann::ordered_json Histogram::to_json() const {
  nlohmann::ordered_json buckets = nlohmann::ordered_json::array();
  for (unsigned i = 0; i < kBuckets; ++i) {
    if (counts_[i] > 0) buckets.push_back({i, counts_[i]});
  }
  return {{"max_ns", max_ns_}, {"buckets", std::move(buckets)}};
}

Histogram Histogram::from_json(const nlohmann::ordered_json& json) {
  Histogram result;
  if (!json.is_object() || !json.contains("buckets") || !json["buckets"].is_array()) return result;
  for (const auto& pair : json["buckets"]) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() || !pair[1].is_number_unsigned())
      continue;
    const auto bucket = pair[0].get<uint64_t>();
    const auto count = pair[1].get<uint32_t>();
    if (bucket >= kBuckets) continue;
    result.counts_[bucket] += count;
    result.count_ += count;
  }
  result.max_ns_ = json.value("max_ns", uint64_t{0});
  return result;
}

}  // namespace loam::cli
