// What writes cost as memory runs short.
#include "storage-node/src/server/write_pace.h"

#include <gtest/gtest.h>

namespace loam::storage {
namespace {

constexpr double kWatermark = 0.8;
constexpr double kHalfway = 0.9;

/// Nanoseconds of sleep for each of many writes in batches of 16.
double cost_ns(double fill, bool behind = true) {
  WritePace pace(kWatermark);
  constexpr uint64_t kBatches = 100'000;
  constexpr uint64_t kBatch = 16;
  uint64_t slept = 0;
  for (uint64_t i = 0; i < kBatches; ++i) slept += pace.add(kBatch, fill, behind);
  return static_cast<double>(slept) / (kBatches * kBatch);
}

TEST(WritePaceTest, WritesCostMoreTheFullerThePool) {
  EXPECT_EQ(cost_ns(0.5), 0);
  EXPECT_EQ(cost_ns(kWatermark), 0);
  EXPECT_NEAR(cost_ns(0.85), WritePace::kWriteNs / 3.0, 20);
  EXPECT_NEAR(cost_ns(kHalfway), WritePace::kWriteNs, 20);
  EXPECT_NEAR(cost_ns(0.95), 3 * WritePace::kWriteNs, 50);
}

TEST(WritePaceTest, EvenAFullPoolLetsWritesTry) {
  EXPECT_NEAR(cost_ns(0.9999), WritePace::kMostWriteNs, 200);
  EXPECT_NEAR(cost_ns(1), WritePace::kMostWriteNs, 200);
  EXPECT_NEAR(cost_ns(1.2), WritePace::kMostWriteNs, 200) << "the compactor's own pages count as fill";
}

// A node that is full of what lives is not made slower by what it cannot help.
TEST(WritePaceTest, NothingIsOwedWhileThereIsNothingToCollect) { EXPECT_EQ(cost_ns(kHalfway, false), 0); }

TEST(WritePaceTest, SleepsAreWorthItAndShort) {
  WritePace pace(kWatermark);
  const uint64_t least = WritePace::kLeastSleepNs / WritePace::kWriteNs;
  EXPECT_EQ(pace.add(least / 2, kHalfway, true), 0u);
  EXPECT_NEAR(static_cast<double>(pace.add(least, kHalfway, true)), 1.5 * WritePace::kLeastSleepNs, 10'000);
  EXPECT_EQ(pace.add(0, kHalfway, true), 0u) << "it is paid";
  EXPECT_EQ(pace.add(1'000'000, 1, true), WritePace::kMostSleepNs);
  EXPECT_EQ(pace.add(0, 1, true), 0u) << "and what was owed beyond one sleep is forgotten";
}

TEST(WritePaceTest, ADebtEndsWithTheShortage) {
  WritePace pace(kWatermark);
  const uint64_t most = WritePace::kLeastSleepNs / WritePace::kWriteNs - 10;
  EXPECT_EQ(pace.add(most, kHalfway, true), 0u);
  EXPECT_EQ(pace.add(0, kHalfway, false), 0u);
  EXPECT_EQ(pace.add(most, kHalfway, true), 0u);
}

}  // namespace
}  // namespace loam::storage
