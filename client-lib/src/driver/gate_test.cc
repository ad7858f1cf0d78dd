#include "client-lib/src/driver/gate.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/fiber/scheduler.h"

namespace loam::client {
namespace {

using Entry = Gate::Entry;

/// Fibers on a clock that only the test moves.
class GateTest : public ::testing::Test {
 protected:
  static fiber::SchedulerOptions options(uint64_t& clock) {
    fiber::SchedulerOptions result;
    result.now_ns = [&clock] { return clock; };
    result.idle = [](uint64_t) {};
    result.wake = [] {};
    return result;
  }
  ~GateTest() override {
    scheduler_.stop();
    scheduler_.run();
  }

  /// A fiber that enters by the deadline; what became of it is told under its number.
  void enter(Gate& gate, int number, uint64_t deadline_ns) {
    const Status spawned = scheduler_.spawn([&gate, this, number, deadline_ns] {
      const Entry entry = gate.enter_by(deadline_ns);
      told_.emplace_back(number, entry);
    });
    ASSERT_TRUE(spawned.ok());
    round();
  }
  void round() { scheduler_.run_round(0); }

  uint64_t clock_ns_ = 1'000;
  fiber::FiberScheduler scheduler_{options(clock_ns_)};
  std::vector<std::pair<int, Entry>> told_;
};

using Told = std::vector<std::pair<int, Entry>>;

TEST_F(GateTest, APlaceGoesToTheFirstThatWaits) {
  Gate gate(1);
  for (int i = 0; i < 4; ++i) enter(gate, i, fiber::kForever);
  EXPECT_EQ(gate.inside(), 1u);
  EXPECT_EQ(gate.waiting(), 3u);
  for (int i = 0; i < 3; ++i) {
    gate.leave();
    EXPECT_EQ(gate.inside(), 1u) << "the place is never free while somebody waits";
    round();
  }
  gate.leave();
  EXPECT_EQ(told_, (Told{{0, Entry::kEntered}, {1, Entry::kEntered}, {2, Entry::kEntered}, {3, Entry::kEntered}}));
  EXPECT_EQ(gate.inside(), 0u);
}

TEST_F(GateTest, ANewcomerDoesNotOvertake) {
  Gate gate(1);
  enter(gate, 0, fiber::kForever);
  enter(gate, 1, fiber::kForever);
  gate.leave();
  enter(gate, 2, fiber::kForever);
  EXPECT_EQ(told_, (Told{{0, Entry::kEntered}, {1, Entry::kEntered}}));
  gate.leave();
  round();
  gate.leave();
  EXPECT_EQ(told_.back(), (std::pair{2, Entry::kEntered}));
}

TEST_F(GateTest, WhoeverWaitsTooLongLeavesTheQueue) {
  Gate gate(1);
  enter(gate, 0, fiber::kForever);
  enter(gate, 1, 2'000);
  enter(gate, 2, fiber::kForever);
  clock_ns_ = 2'000;
  round();
  EXPECT_EQ(told_, (Told{{0, Entry::kEntered}, {1, Entry::kTooLate}}));
  EXPECT_EQ(gate.waiting(), 1u);
  gate.leave();
  round();
  EXPECT_EQ(told_.back(), (std::pair{2, Entry::kEntered}));
  gate.leave();
  EXPECT_EQ(gate.inside(), 0u);
}

TEST_F(GateTest, APlaceGivenInTheRoundOfTheDeadlineIsNotLost) {
  Gate gate(1);
  enter(gate, 0, fiber::kForever);
  // Due before the waiter's deadline is looked at, in the same round: the place is handed to a fiber that is awake
  // already because its time is up.
  ASSERT_TRUE(scheduler_
                  .spawn([&] {
                    scheduler_.sleep_until(2'000);
                    gate.leave();
                  })
                  .ok());
  round();
  enter(gate, 1, 2'000);
  clock_ns_ = 2'000;
  round();
  EXPECT_EQ(told_.back(), (std::pair{1, Entry::kEntered}));
  EXPECT_EQ(gate.inside(), 1u);
  gate.leave();
  EXPECT_EQ(gate.inside(), 0u);
}

TEST_F(GateTest, TooManyWhoWaitAreRefusedAtOnce) {
  Gate gate(2, 1);
  for (int i = 0; i < 4; ++i) enter(gate, i, fiber::kForever);
  EXPECT_EQ(told_, (Told{{0, Entry::kEntered}, {1, Entry::kEntered}, {3, Entry::kTooMany}}));
  gate.leave();
  round();
  enter(gate, 4, 3'000);  // waits: there is room in the queue again
  EXPECT_EQ(told_.back(), (std::pair{2, Entry::kEntered}));
  EXPECT_EQ(gate.waiting(), 1u);
  for (int i = 0; i < 3; ++i) gate.leave();
  round();
  EXPECT_EQ(told_.back(), (std::pair{4, Entry::kEntered}));
}

}  // namespace
}  // namespace loam::client
