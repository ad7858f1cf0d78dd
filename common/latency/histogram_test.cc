// Tests of the histogram: bounds of buckets, sums, differences, quantiles.
#include "common/latency/histogram.h"

#include <gtest/gtest.h>

namespace loam::latency {
namespace {

TEST(HistogramTest, ABucketHoldsDurationsUpToItsBound) {
  EXPECT_EQ(Histogram::bucket_of(0), 0u);
  for (size_t bucket = 0; bucket + 1 < Histogram::kBuckets; ++bucket) {
    EXPECT_EQ(Histogram::bucket_of(Histogram::bound_ns(bucket)), bucket);
    EXPECT_EQ(Histogram::bucket_of(Histogram::bound_ns(bucket) + 1), bucket + 1);
  }
  EXPECT_EQ(Histogram::bucket_of(UINT64_MAX / 2), Histogram::kBuckets - 1);
}

TEST(HistogramTest, ACopyHasTheCountsAndTheSumOfAllHistograms) {
  LiveHistogram one, other;
  one.add(1'500);
  one.add(3'000'000, 4);
  other.add(1'600, 2);
  Histogram sum;
  sum.merge(one);
  sum.merge(other);
  EXPECT_EQ(sum.count(), 7u);
  EXPECT_EQ(sum.sum_ns(), 1'500u + 4 * 3'000'000u + 2 * 1'600u);
  EXPECT_EQ(sum.buckets()[1], 3u);
  EXPECT_EQ(sum.buckets()[12], 4u);  // 2.048 to 4.096 ms
}

TEST(HistogramTest, ADifferenceHasTheDurationsSinceTheOlderCopy) {
  LiveHistogram live;
  live.add(900'000, 90);
  Histogram before;
  before.merge(live);
  live.add(10'000, 3);
  live.add(900'000);
  Histogram recent;
  recent.merge(live);
  recent.subtract(before);
  EXPECT_EQ(recent.count(), 4u);
  EXPECT_EQ(recent.sum_ns(), 3 * 10'000u + 900'000u);
  EXPECT_EQ(recent.quantile_ns(0.5), 16'000u) << "of the recent durations alone";
  recent.subtract(recent);
  EXPECT_EQ(recent.count(), 0u);
}

TEST(HistogramTest, AQuantileIsTheBoundOfItsBucket) {
  Histogram histogram;
  EXPECT_EQ(histogram.quantile_ns(0.5), 0u);
  histogram.add(10'000, 90);
  histogram.add(900'000, 10);
  EXPECT_EQ(histogram.quantile_ns(0.5), 16'000u);
  EXPECT_EQ(histogram.quantile_ns(0.9), 16'000u);
  EXPECT_EQ(histogram.quantile_ns(0.91), 1'024'000u);
  EXPECT_EQ(histogram.quantile_ns(1), 1'024'000u);
}

TEST(HistogramTest, AQuantileOfFewDurationsIsTheLongestOne) {
  Histogram histogram;
  histogram.add(10'000, 2);
  histogram.add(900'000);
  EXPECT_EQ(histogram.quantile_ns(0.5), 16'000u);
  EXPECT_EQ(histogram.quantile_ns(0.99), 1'024'000u) << "two of three are fewer than 99 %";
}

}  // namespace
}  // namespace loam::latency
