#include "tests/fuzz/tail_judge.h"

#include <functional>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::fuzz {
namespace {

using testing::Random;

constexpr int kMeasurements = 1'000;
constexpr size_t kRounds = 10;

/// The windows of one measurement; `machine` gives what each would be without messages, `harm` multiplies the mutated.
TailWindows measure(const std::function<double()>& machine, double harm) {
  TailWindows windows;
  for (size_t round = 0; round < kRounds; ++round) {
    windows.good.push_back(machine());
    windows.control.push_back(machine());
    windows.mutated.push_back(machine() * harm);
  }
  return windows;
}

/// Of kMeasurements, how many say that somebody suffers.
int count_suffering(const std::function<double()>& machine, double harm) {
  int count = 0;
  for (int i = 0; i < kMeasurements; ++i) count += judge_tail(measure(machine, harm)).suffers ? 1 : 0;
  return count;
}

// A window is 100 to 150 us, or, with a chance of one in two, thirty times as long: the kernel's turns.
std::function<double()> torn_machine(Random& random) {
  return [&random] { return static_cast<double>(random.between(100, 150)) * (random.one_in(2) ? 30 : 1); };
}

std::function<double()> steady_machine(Random& random) {
  return [&random] { return static_cast<double>(random.between(100, 150)); };
}

TEST(TailJudge, SeesHarmOnASteadyMachine) {
  Random random(testing::test_seed(1));
  EXPECT_EQ(count_suffering(steady_machine(random), 1), 0);
  EXPECT_EQ(count_suffering(steady_machine(random), 2), 0) << "less than the limit";
  EXPECT_EQ(count_suffering(steady_machine(random), 5), kMeasurements);
}

TEST(TailJudge, ATornMachineIsNotMistakenForHarm) {
  Random random(testing::test_seed(2));
  EXPECT_LE(count_suffering(torn_machine(random), 1), kMeasurements / 40);
}

TEST(TailJudge, HarmIsSeenOnATornMachineToo) {
  Random random(testing::test_seed(3));
  EXPECT_GE(count_suffering(torn_machine(random), 100), kMeasurements * 99 / 100);
}

TEST(TailJudge, ABusyWhileFallsOnAllGroupsAlike) {
  Random random(testing::test_seed(4));
  for (size_t busy_rounds = 0; busy_rounds <= kRounds; ++busy_rounds) {
    size_t windows = 0;
    const auto machine = [&] {
      return static_cast<double>(random.between(100, 150)) * (windows++ < 3 * busy_rounds ? 50 : 1);
    };
    const TailVerdict verdict = judge_tail(measure(machine, 1));
    EXPECT_FALSE(verdict.suffers) << busy_rounds;
    EXPECT_FALSE(verdict.wants_more) << busy_rounds;
  }
}

TEST(TailJudge, EqualsThatDifferWantMoreWindows) {
  const TailVerdict verdict = judge_tail({{100, 100, 100}, {200, 200, 200}, {500, 500, 500}});
  EXPECT_DOUBLE_EQ(verdict.noise, 2);
  EXPECT_TRUE(verdict.wants_more);
  EXPECT_DOUBLE_EQ(verdict.ratio, 5);
  EXPECT_FALSE(verdict.suffers) << "by chance equals differ by 2, so 5 is no proof of 3";
  EXPECT_EQ(judge_tail({{200, 200, 200}, {100, 100, 100}, {100, 100, 100}}).noise, 2);
}

}  // namespace
}  // namespace loam::fuzz
