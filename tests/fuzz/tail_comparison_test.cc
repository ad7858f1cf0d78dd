#include "tests/fuzz/tail_comparison.h"

#include <functional>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::fuzz {
namespace {

using testing::Random;

constexpr int kMeasurements = 1'000;
constexpr size_t kRounds = 10;

/// The windows of one measurement. `machine` returns the latency of a window without messages; `harm` multiplies that
/// of the mutated group.
TailWindows measure(const std::function<double()>& machine, double harm) {
  TailWindows windows;
  for (size_t round = 0; round < kRounds; ++round) {
    windows.good.push_back(machine());
    windows.control.push_back(machine());
    windows.mutated.push_back(machine() * harm);
  }
  return windows;
}

/// The number of measurements, out of kMeasurements, that report a degradation.
int count_suffering(const std::function<double()>& machine, double harm) {
  int count = 0;
  for (int i = 0; i < kMeasurements; ++i) count += compare_tail_latency(measure(machine, harm)).degraded ? 1 : 0;
  return count;
}

// A machine whose windows are 100 to 150 us, or, with probability one half, thirty times as long, as under an unfair
// scheduler.
std::function<double()> torn_machine(Random& random) {
  return [&random] { return static_cast<double>(random.between(100, 150)) * (random.one_in(2) ? 30 : 1); };
}

std::function<double()> steady_machine(Random& random) {
  return [&random] { return static_cast<double>(random.between(100, 150)); };
}

TEST(TailComparisonTest, DetectsDegradationOnQuietMachine) {
  Random random(testing::test_seed(1));
  EXPECT_EQ(count_suffering(steady_machine(random), 1), 0);
  EXPECT_EQ(count_suffering(steady_machine(random), 2), 0) << "less than the limit";
  EXPECT_EQ(count_suffering(steady_machine(random), 5), kMeasurements);
}

TEST(TailComparisonTest, NoisyMachineIsNotReportedAsDegradation) {
  Random random(testing::test_seed(2));
  EXPECT_LE(count_suffering(torn_machine(random), 1), kMeasurements / 40);
}

TEST(TailComparisonTest, DetectsDegradationOnNoisyMachine) {
  Random random(testing::test_seed(3));
  EXPECT_GE(count_suffering(torn_machine(random), 100), kMeasurements * 99 / 100);
}

TEST(TailComparisonTest, LoadSpikeAffectsAllGroupsEqually) {
  Random random(testing::test_seed(4));
  for (size_t busy_rounds = 0; busy_rounds <= kRounds; ++busy_rounds) {
    size_t windows = 0;
    const auto machine = [&] {
      return static_cast<double>(random.between(100, 150)) * (windows++ < 3 * busy_rounds ? 50 : 1);
    };
    const TailComparison verdict = compare_tail_latency(measure(machine, 1));
    EXPECT_FALSE(verdict.degraded) << busy_rounds;
    EXPECT_FALSE(verdict.inconclusive) << busy_rounds;
  }
}

TEST(TailComparisonTest, NoisyControlGroupIsInconclusive) {
  const TailComparison verdict = compare_tail_latency({{100, 100, 100}, {200, 200, 200}, {500, 500, 500}});
  EXPECT_DOUBLE_EQ(verdict.noise, 2);
  EXPECT_TRUE(verdict.inconclusive);
  EXPECT_DOUBLE_EQ(verdict.ratio, 5);
  EXPECT_FALSE(verdict.degraded) << "the noise is 2, so a ratio of 5 does not prove one of 3";
  EXPECT_EQ(compare_tail_latency({{200, 200, 200}, {100, 100, 100}, {100, 100, 100}}).noise, 2);
}

}  // namespace
}  // namespace loam::fuzz
