#include "common/testing/explorer.h"

#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/assert.h"
#include "common/base/env.h"

namespace loam::testing {
namespace {

using Counter = Env::Atomic<uint64_t>;

void load_and_store(Counter& counter) {
  const uint64_t seen = counter.load(std::memory_order_relaxed);
  counter.store(seen + 1, std::memory_order_relaxed);
}

template <class Increment>
auto two_increments(Increment increment) {
  return [increment](Explorer& ex) {
    Counter counter{0};
    ex.spawn("a", [&] { increment(counter); });
    ex.spawn("b", [&] { increment(counter); });
    ex.run();
    ex.check(counter.load(std::memory_order_relaxed) == 2, "an increment was lost");
  };
}

class EveryPolicy : public ::testing::TestWithParam<Policy> {};

TEST_P(EveryPolicy, FindsALostUpdateQuickly) {
  const ExploreReport report = explore({.schedules = 100, .policy = GetParam()}, two_increments(load_and_store));
  EXPECT_FALSE(report.ok());
  EXPECT_LE(report.first_failure, 50u);
  EXPECT_NE(report.message.find("an increment was lost"), std::string::npos) << report.message;
  EXPECT_NE(report.message.find("LOAM_S"), std::string::npos) << report.message;
  EXPECT_NE(report.message.find("before store"), std::string::npos) << report.message;
}

TEST_P(EveryPolicy, NeverReportsCorrectCode) {
  const auto add = [](Counter& c) { c.fetch_add(1, std::memory_order_relaxed); };
  const ExploreReport report = explore({.schedules = 5000, .policy = GetParam()}, two_increments(add));
  EXPECT_TRUE(report.ok()) << report.message;
  EXPECT_EQ(report.exhausted, GetParam() == Policy::kExhaustive);
}

// The planted bug needs two switches at the right places: b runs between the first and the second store of a, and a
// then runs between the store of b and its last loads.
TEST_P(EveryPolicy, FindsABugOfDepthThree) {
  const ExploreReport report = explore({.schedules = 20'000, .policy = GetParam(), .preemptions = 3}, [](Explorer& ex) {
    Counter x{0};
    Counter y{0};
    bool met = false;
    ex.spawn("a", [&] {
      for (uint64_t i = 1; i <= 3; ++i) x.store(i, std::memory_order_relaxed);
      if (y.load(std::memory_order_relaxed) == 1) x.store(9, std::memory_order_relaxed);
    });
    ex.spawn("b", [&] {
      if (x.load(std::memory_order_relaxed) != 1) return;
      y.store(1, std::memory_order_relaxed);
      met = x.load(std::memory_order_relaxed) == 9 && y.load(std::memory_order_relaxed) == 1;
    });
    ex.run();
    ex.check(!met, "met");
  });
  EXPECT_FALSE(report.ok());
}

TEST_P(EveryPolicy, FindsNoErrorInALock) {
  const ExploreReport report = explore({.schedules = 2000, .policy = GetParam()}, [](Explorer& ex) {
    Env::Atomic<bool> locked{false};
    Counter counter{0};
    for (const char* name : {"a", "b", "c"}) {
      ex.spawn(name, [&] {
        bool free = false;
        while (!locked.compare_exchange_strong(free, true, std::memory_order_acquire)) {
          free = false;
          Env::spin_pause();
        }
        load_and_store(counter);
        locked.store(false, std::memory_order_release);
      });
    }
    ex.run();
    ex.check(counter.load(std::memory_order_relaxed) == 3, "an increment was lost");
  });
  EXPECT_TRUE(report.ok()) << report.message;
}

TEST_P(EveryPolicy, ReportsALivelock) {
  const ExploreReport report = explore({.schedules = 3, .policy = GetParam(), .max_points = 1000}, [](Explorer& ex) {
    auto stop = std::make_shared<Env::Atomic<bool>>(false);
    for (const char* name : {"a", "b"}) {
      ex.spawn(name, [stop] {
        while (!stop->load(std::memory_order_relaxed)) Env::spin_pause();
      });
    }
    ex.run();
  });
  EXPECT_EQ(report.first_failure, 1u);
  EXPECT_NE(report.message.find("livelock"), std::string::npos) << report.message;
}

INSTANTIATE_TEST_SUITE_P(Explorer, EveryPolicy,
                         ::testing::Values(Policy::kRandom, Policy::kPriorities, Policy::kMixed, Policy::kExhaustive));

// The order in which three threads took their steps, three each, under the schedule of this seed.
std::vector<int> order_of(uint64_t seed) {
  std::vector<int> order;
  Explorer ex(seed);
  for (int id = 0; id < 3; ++id) {
    ex.spawn("t", [&order, id] {
      for (int step = 0; step < 3; ++step) {
        Env::pause_point("step");
        order.push_back(id);
      }
    });
  }
  ex.run();
  return order;
}

TEST(Explorer, SameSeedRepeatsTheSchedule) {
  std::set<std::vector<int>> different;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    EXPECT_EQ(order_of(seed), order_of(seed)) << seed;
    different.insert(order_of(seed));
  }
  EXPECT_GT(different.size(), 15u);  // schedules by priority give fewer orders than random ones
}

TEST(Explorer, ExhaustiveCountsEverySchedule) {
  // Two threads with one point each. Either thread may begin. At each point the running thread continues or is
  // preempted.
  std::set<std::vector<int>> orders;
  const ExploreReport report = explore({.schedules = 1000, .policy = Policy::kExhaustive}, [&](Explorer& ex) {
    std::vector<int> order;
    for (int id = 0; id < 2; ++id) {
      ex.spawn("t", [&order, id] {
        order.push_back(id);
        Env::pause_point("middle");
        order.push_back(id + 10);
      });
    }
    ex.run();
    orders.insert(order);
  });
  EXPECT_TRUE(report.exhausted);
  EXPECT_EQ(orders.size(), 6u);  // all interleavings of two pairs
}

TEST(Explorer, AnExceptionInAVirtualThreadIsAFailure) {
  const ExploreReport report = explore({.schedules = 1}, [](Explorer& ex) {
    ex.spawn("thrower", [] { throw std::runtime_error("thrown by the test"); });
    ex.run();
  });
  EXPECT_NE(report.message.find("thrown by the test"), std::string::npos) << report.message;
}

TEST(Explorer, PhasesRunOneAfterTheOther) {
  Explorer ex(1);
  Counter counter{0};
  ex.spawn("first", [&] { load_and_store(counter); });
  ex.run();
  ex.spawn("second", [&] { load_and_store(counter); });
  ex.run();
  EXPECT_EQ(counter.load(std::memory_order_relaxed), 2u);
}

TEST(ExplorerDeathTest, AFailedAssertionPrintsTheSeed) {
  EXPECT_DEATH(
      {
        Explorer ex(77);
        ex.spawn("a", [] { LOAM_CHECK(false, "broken"); });
        ex.run();
      },
      "LOAM_SEED=77 repeats");
}

TEST(Random, IsRepeatableAndCoversItsRange) {
  Random a(5);
  Random b(5);
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t x = a.below(10);
    EXPECT_EQ(x, b.below(10));
    EXPECT_LT(x, 10u);
    seen.insert(x);
  }
  EXPECT_EQ(seen.size(), 10u);
}

}  // namespace
}  // namespace loam::testing
