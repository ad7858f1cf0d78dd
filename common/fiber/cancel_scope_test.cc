#include "common/fiber/cancel_scope.h"

#include <optional>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "common/fiber/wait.h"

namespace loam::fiber {
namespace {

/// A scheduler on a clock that only the test moves.
class CancelScopeTest : public ::testing::Test {
 protected:
  static SchedulerOptions options(uint64_t& clock) {
    SchedulerOptions result;
    result.now_ns = [&clock] { return clock; };
    result.idle = [](uint64_t) {};
    result.wake = [] {};
    return result;
  }
  void spawn(Task body) { ASSERT_TRUE(scheduler_.spawn(std::move(body)).ok()); }
  void round_at(uint64_t clock_ns) {
    clock_ns_ = clock_ns;
    scheduler_.run_round(0);
    scheduler_.run_round(0);
  }
  void finish() {
    scheduler_.stop();
    scheduler_.run();
  }

  uint64_t clock_ns_ = 1'000;
  FiberScheduler scheduler_{options(clock_ns_)};
};

TEST_F(CancelScopeTest, DeadlineEndsWaitsWithALaterDeadlineOrNone) {
  WaitPoint point;
  std::string log;
  spawn([&] {
    const CancelScope scope(2'000);
    log += point.wait_until(1'500) ? "notified " : "own ";
    log += point.wait_until(9'000) ? "notified " : "limit ";
    log += point.wait_until(kForever) ? "notified " : "limit ";
    EXPECT_TRUE(CancelScope::ended());
    EXPECT_FALSE(CancelScope::cancelled());
  });
  round_at(1'000);
  EXPECT_EQ(log, "");
  round_at(1'500);
  EXPECT_EQ(log, "own ");
  round_at(1'999);
  EXPECT_EQ(log, "own ");
  round_at(2'000);
  round_at(2'000);
  EXPECT_EQ(log, "own limit limit ");
  finish();
}

TEST_F(CancelScopeTest, CancelEndsThePresentWaitAndAllLaterWaits) {
  WaitPoint point;
  CancelScope* scope = nullptr;
  std::string log;
  spawn([&] {
    {
      CancelScope own;
      scope = &own;
      log += point.wait_until(kForever) ? "notified " : "cancelled ";
      EXPECT_TRUE(CancelScope::cancelled() && CancelScope::ended());
      EXPECT_EQ(CancelScope::deadline(5'000), 0u);
      log += point.wait_until(9'000) ? "notified " : "cancelled ";
      scheduler_.sleep_for(1'000'000);
      log += "slept ";
    }
    EXPECT_FALSE(CancelScope::any());
    log += point.wait_until(3'000) ? "notified" : "own";
  });
  round_at(1'000);
  scope->cancel();
  round_at(1'000);
  EXPECT_EQ(log, "cancelled cancelled slept ");
  point.notify();
  round_at(1'000);
  EXPECT_EQ(log, "cancelled cancelled slept notified");
  finish();
}

TEST_F(CancelScopeTest, SleepOfACancelledFiberLetsOthersRun) {
  bool stop = false;
  int turns = 0;
  spawn([&] {
    CancelScope scope;
    scope.cancel();
    while (!stop && turns < 1'000) {
      ++turns;
      scheduler_.sleep_for(1'000'000);
    }
  });
  spawn([&] { stop = true; });
  round_at(1'000);
  round_at(1'000);
  EXPECT_TRUE(stop);
  EXPECT_LT(turns, 10);
  finish();
}

TEST_F(CancelScopeTest, NotificationBeforeTheCancellationWins) {
  WaitPoint point;
  CancelScope* scope = nullptr;
  std::optional<bool> notified;
  spawn([&] {
    CancelScope own;
    scope = &own;
    notified = point.wait_until(kForever);
  });
  round_at(1'000);
  EXPECT_TRUE(point.notify());
  scope->cancel();  // the fiber is ready and has not run yet
  round_at(1'000);
  EXPECT_EQ(notified, true);
  finish();
}

TEST_F(CancelScopeTest, OuterScopeLimitsInnerScopes) {
  WaitPoint point;
  CancelScope* outer_limit = nullptr;
  std::string log;
  spawn([&] {
    CancelScope outer(5'000);
    outer_limit = &outer;
    {
      const CancelScope inner(9'000);
      EXPECT_EQ(CancelScope::deadline(kForever), 5'000u);
      log += point.wait_until(kForever) ? "notified " : "outer ";
    }
    log += CancelScope::cancelled() ? "cancelled" : "not cancelled";
  });
  round_at(1'000);
  outer_limit->cancel();
  round_at(1'000);
  EXPECT_EQ(log, "outer cancelled");
  finish();
}

TEST_F(CancelScopeTest, CancelOfAnInnerScopeKeepsTheOuterScope) {
  WaitPoint point;
  CancelScope* inner_limit = nullptr;
  std::string log;
  spawn([&] {
    const CancelScope outer;
    {
      CancelScope inner;
      inner_limit = &inner;
      log += point.wait_until(kForever) ? "notified " : "inner ";
    }
    log += point.wait_until(kForever) ? "notified" : "outer";
  });
  round_at(1'000);
  inner_limit->cancel();
  round_at(1'000);
  EXPECT_EQ(log, "inner ");
  point.notify();
  round_at(1'000);
  EXPECT_EQ(log, "inner notified");
  finish();
}

TEST_F(CancelScopeTest, LimitsItsOwnFiberOnly) {
  WaitPoint first, second;
  CancelScope* scope = nullptr;
  std::string log;
  spawn([&] {
    CancelScope own;
    scope = &own;
    log += first.wait_until(kForever) ? "notified " : "cancelled ";
  });
  spawn([&] {
    EXPECT_FALSE(CancelScope::any());
    log += second.wait_until(kForever) ? "notified " : "cancelled ";
  });
  round_at(1'000);
  scope->cancel();
  round_at(1'000);
  EXPECT_EQ(log, "cancelled ");
  spawn([&] { EXPECT_FALSE(CancelScope::any()) << "a new fiber on the stack of a cancelled one has no scope"; });
  second.notify();
  round_at(1'000);
  EXPECT_EQ(log, "cancelled notified ");
  finish();
}

TEST_F(CancelScopeTest, DoesNotEndWaitsWithoutADeadline) {
  WaitPoint point;
  CancelScope* scope = nullptr;
  bool woken = false;
  spawn([&] {
    CancelScope own(1'500);
    scope = &own;
    point.wait();
    woken = true;
  });
  round_at(1'000);
  scope->cancel();
  round_at(9'000);
  EXPECT_FALSE(woken);
  point.notify();
  round_at(9'000);
  EXPECT_TRUE(woken);
  finish();
}

}  // namespace
}  // namespace loam::fiber
