// The delay of writes while memory is short.
#include "storage-node/src/server/write_throttle.h"

#include <gtest/gtest.h>

namespace loam::storage {
namespace {

constexpr double kWatermark = 0.8;
constexpr double kHalfway = 0.9;

/// Returns the nanoseconds of sleep for each of many writes in batches of 16.
double cost_ns(double fill, bool behind = true) {
  WriteThrottle pace(kWatermark);
  constexpr uint64_t kBatches = 100'000;
  constexpr uint64_t kBatch = 16;
  uint64_t slept = 0;
  for (uint64_t i = 0; i < kBatches; ++i) slept += pace.delay_ns(kBatch, fill, behind);
  return static_cast<double>(slept) / (kBatches * kBatch);
}

TEST(WriteThrottleTest, WritesCostMoreTheFullerThePool) {
  EXPECT_EQ(cost_ns(0.5), 0);
  EXPECT_EQ(cost_ns(kWatermark), 0);
  EXPECT_NEAR(cost_ns(0.85), WriteThrottle::kWriteNs / 3.0, 20);
  EXPECT_NEAR(cost_ns(kHalfway), WriteThrottle::kWriteNs, 20);
  EXPECT_NEAR(cost_ns(0.95), 3 * WriteThrottle::kWriteNs, 50);
}

TEST(WriteThrottleTest, DelayIsBoundedAtAFullPool) {
  EXPECT_NEAR(cost_ns(0.9999), WriteThrottle::kMaxWriteDelayNs, 200);
  EXPECT_NEAR(cost_ns(1), WriteThrottle::kMaxWriteDelayNs, 200);
  EXPECT_NEAR(cost_ns(1.2), WriteThrottle::kMaxWriteDelayNs, 200) << "the compactor's own pages count as fill";
}

// Without garbage to collect a sleep frees no memory, so a node that is full of live records does not delay writes.
TEST(WriteThrottleTest, NothingIsOwedWhileThereIsNothingToCollect) { EXPECT_EQ(cost_ns(kHalfway, false), 0); }

TEST(WriteThrottleTest, SleepsHaveALowerAndAnUpperBound) {
  WriteThrottle pace(kWatermark);
  const uint64_t least = WriteThrottle::kMinSleepNs / WriteThrottle::kWriteNs;
  EXPECT_EQ(pace.delay_ns(least / 2, kHalfway, true), 0u);
  EXPECT_NEAR(static_cast<double>(pace.delay_ns(least, kHalfway, true)), 1.5 * WriteThrottle::kMinSleepNs, 10'000);
  EXPECT_EQ(pace.delay_ns(0, kHalfway, true), 0u) << "it is paid";
  EXPECT_EQ(pace.delay_ns(1'000'000, 1, true), WriteThrottle::kMaxSleepNs);
  EXPECT_EQ(pace.delay_ns(0, 1, true), 0u) << "the debt beyond one sleep is dropped";
}

TEST(WriteThrottleTest, DebtEndsWithTheShortage) {
  WriteThrottle pace(kWatermark);
  const uint64_t most = WriteThrottle::kMinSleepNs / WriteThrottle::kWriteNs - 10;
  EXPECT_EQ(pace.delay_ns(most, kHalfway, true), 0u);
  EXPECT_EQ(pace.delay_ns(0, kHalfway, false), 0u);
  EXPECT_EQ(pace.delay_ns(most, kHalfway, true), 0u);
}

}  // namespace
}  // namespace loam::storage
