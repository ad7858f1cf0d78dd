#include "deploy/demo/histogram.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::cli {
namespace {

TEST(HistogramTest, EmptyHistogramHasZeroQuantiles) {
  const Histogram empty;
  EXPECT_EQ(empty.count(), 0u);
  EXPECT_EQ(empty.quantile_ns(0.5), 0u);
  EXPECT_EQ(empty.quantile_ns(1), 0u);
}

TEST(HistogramTest, SmallTimesAreExact) {
  Histogram histogram;
  for (uint64_t ns = 0; ns < 16; ++ns) histogram.add(ns);
  EXPECT_EQ(histogram.quantile_ns(0.5), 7u);
  EXPECT_EQ(histogram.quantile_ns(1), 15u);
}

TEST(HistogramTest, QuantilesAreThoseOfTheSamples) {
  const uint64_t seed = 7;
  SCOPED_TRACE(seed);
  testing::Random random(seed);
  Histogram histogram;
  Histogram other;
  std::vector<uint64_t> samples;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t ns = random() >> (24 + random.below(40));
    samples.push_back(ns);
    (i % 2 == 0 ? histogram : other).add(ns);
  }
  histogram.merge(Histogram::from_json(nlohmann::ordered_json::parse(other.to_json().dump())));
  std::sort(samples.begin(), samples.end());
  ASSERT_EQ(histogram.count(), samples.size());
  EXPECT_EQ(histogram.max_ns(), samples.back());
  for (const double q : {0.01, 0.5, 0.9, 0.99, 0.999}) {
    const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(samples.size()))) - 1;
    const auto expected = static_cast<double>(samples[rank]);
    EXPECT_NEAR(static_cast<double>(histogram.quantile_ns(q)), expected, expected * 0.07 + 1) << q;
  }
}

TEST(HistogramTest, CountsLargeTimesInLastBucket) {
  Histogram histogram;
  histogram.add(UINT64_MAX);
  histogram.add(uint64_t{1} << 50);
  EXPECT_EQ(histogram.count(), 2u);
  EXPECT_EQ(histogram.quantile_ns(1), UINT64_MAX);
  EXPECT_GE(histogram.quantile_ns(0.4), uint64_t{1} << 40);
}

TEST(HistogramTest, IgnoresMalformedJson) {
  for (const char* text : {"1", "{}", R"({"buckets":1})", R"({"buckets":[1,[2],[1,"x"],[99999999,3],[-1,2]]})"}) {
    EXPECT_EQ(Histogram::from_json(nlohmann::ordered_json::parse(text)).count(), 0u) << text;
  }
}

}  // namespace
}  // namespace loam::cli
