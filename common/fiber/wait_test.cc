#include "common/fiber/wait.h"

#include <exception>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace loam::fiber {
namespace {

/// A scheduler on a clock that only the test moves.
class WaitTest : public ::testing::Test {
 protected:
  static SchedulerOptions options(uint64_t& clock) {
    SchedulerOptions result;
    result.now_ns = [&clock] { return clock; };
    result.idle = [](uint64_t) {};
    result.wake = [] {};
    return result;
  }

  void spawn(Task body) { ASSERT_TRUE(scheduler_.spawn(std::move(body)).ok()); }
  void finish() {
    scheduler_.stop();
    scheduler_.run();
  }

  uint64_t clock_ns_ = 1'000;
  FiberScheduler scheduler_{options(clock_ns_)};
};

TEST_F(WaitTest, PingPong) {
  WaitPoint ping, pong;
  std::string log;
  spawn([&] {
    for (int i = 0; i < 3; ++i) {
      log += 'a';
      pong.notify();
      ping.wait();
    }
  });
  spawn([&] {
    for (int i = 0; i < 3; ++i) {
      log += 'b';
      ping.notify();
      if (i < 2) pong.wait();
    }
  });
  finish();
  EXPECT_EQ(log, "ababab");
}

TEST_F(WaitTest, FibersWakeInTheOrderOfTheirNotifications) {
  std::vector<WaitPoint> points(20);
  std::vector<size_t> order;
  for (size_t i = 0; i < points.size(); ++i) {
    spawn([&, i] {
      points[i].wait();
      order.push_back(i);
    });
  }
  scheduler_.run_round(0);
  const std::vector<size_t> wanted = {7, 3, 19, 0, 4};
  for (const size_t i : wanted) EXPECT_TRUE(points[i].notify());
  scheduler_.run_round(0);
  EXPECT_EQ(order, wanted);
  for (WaitPoint& point : points) point.notify();
  finish();
  EXPECT_EQ(order.size(), points.size());
}

TEST_F(WaitTest, NotificationWithoutAWaiterIsLost) {
  WaitPoint point;
  EXPECT_FALSE(point.notify());
  bool woken = false;
  spawn([&] {
    point.wait();
    woken = true;
  });
  scheduler_.run_round(0);
  scheduler_.run_round(0);
  EXPECT_FALSE(woken);
  EXPECT_TRUE(point.has_waiter());
  point.notify();
  finish();
  EXPECT_TRUE(woken);
}

TEST_F(WaitTest, EventStaysNotified) {
  Event event;
  event.notify();
  int passed = 0;
  spawn([&] {
    event.wait();
    ++passed;
    EXPECT_TRUE(event.wait_until(0));
    event.reset();
    EXPECT_FALSE(event.wait_until(clock_ns_ + 5));
    ++passed;
  });
  scheduler_.run_round(0);
  EXPECT_EQ(passed, 1);
  clock_ns_ += 5;
  scheduler_.run_round(0);
  EXPECT_EQ(passed, 2);
}

TEST_F(WaitTest, TimedWaitsEndAtTheirDeadlineAndNotBefore) {
  std::vector<int> order;
  const auto sleeper = [&](int name, uint64_t deadline_ns) {
    spawn([&, name, deadline_ns] {
      EXPECT_TRUE(scheduler_.sleep_until(deadline_ns));
      EXPECT_GE(clock_ns_, deadline_ns);
      order.push_back(name);
    });
  };
  sleeper(3, 3'000);
  sleeper(1, 1'001);
  sleeper(2, 2'000);
  scheduler_.run_round(0);
  scheduler_.run_round(0);
  EXPECT_TRUE(order.empty());
  clock_ns_ = 2'000;
  scheduler_.run_round(0);
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  clock_ns_ = 2'999;
  scheduler_.run_round(0);
  EXPECT_EQ(order.size(), 2u);
  clock_ns_ = 3'000;
  scheduler_.run_round(0);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(scheduler_.counters().timeouts, 3u);
}

TEST_F(WaitTest, ANotificationBeforeTheDeadlineWins) {
  WaitPoint point;
  int outcome = -1;
  spawn([&] { outcome = point.wait_until(5'000) ? 1 : 0; });
  scheduler_.run_round(0);
  point.notify();
  clock_ns_ = 9'000;
  scheduler_.run_round(0);
  EXPECT_EQ(outcome, 1);
  EXPECT_EQ(scheduler_.counters().timeouts, 0u);
}

TEST_F(WaitTest, ManyTimersAgreeWithAList) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  struct Sleeper {
    WaitPoint point;
    uint64_t deadline_ns = 0;
    int outcome = -1;  // 1 notified, 0 timed out
  };
  // Many small heaps, because the removal of a timer from the middle must repair the heap in both directions.
  for (int round = 0; round < 200; ++round) {
    std::vector<std::unique_ptr<Sleeper>> sleepers;
    const uint64_t until = clock_ns_ + 101;
    for (int i = 0; i < 60; ++i) {
      sleepers.push_back(std::make_unique<Sleeper>());
      sleepers.back()->deadline_ns = clock_ns_ + 1 + random() % 100;
      spawn([s = sleepers.back().get()] { s->outcome = s->point.wait_until(s->deadline_ns) ? 1 : 0; });
    }
    scheduler_.run_round(0);
    while (clock_ns_ < until) {
      Sleeper& chosen = *sleepers[random() % sleepers.size()];
      const bool waited = chosen.outcome == -1;
      EXPECT_EQ(chosen.point.notify(), waited);
      clock_ns_ += random() % 4;
      scheduler_.run_round(0);
      if (waited) {
        EXPECT_EQ(chosen.outcome, 1);
      }
      for (const auto& s : sleepers) {
        if (s->deadline_ns <= clock_ns_) {
          EXPECT_NE(s->outcome, -1);
        } else {
          EXPECT_NE(s->outcome, 0);
        }
      }
    }
  }
}

TEST_F(WaitTest, StopEndsSleepsAndTimedWaits) {
  WaitPoint point;
  int ended = 0;
  spawn([&] {
    EXPECT_FALSE(scheduler_.sleep_for(kForever));
    ++ended;
  });
  spawn([&] {
    EXPECT_FALSE(point.wait_until(1'000'000));
    EXPECT_FALSE(scheduler_.sleep_until(1'000'000'000));  // begins after stop(), so it does not sleep
    ++ended;
  });
  scheduler_.run_round(0);
  finish();
  EXPECT_EQ(ended, 2);
}

TEST_F(WaitTest, PendingValueReturnsItsValue) {
  PendingValue<std::unique_ptr<int>> pending;
  int got = 0;
  spawn([&] { got = *pending.take(); });
  scheduler_.run_round(0);
  EXPECT_FALSE(pending.ready());
  pending.set(std::make_unique<int>(42));
  EXPECT_EQ(got, 0) << "set() must not switch";
  scheduler_.run_round(0);
  EXPECT_EQ(got, 42);
}

TEST_F(WaitTest, PendingValueMayBeSetAfterTheDeadline) {
  PendingValue<int> pending;
  std::vector<int> log;
  spawn([&] {
    log.push_back(pending.take_until(clock_ns_ + 10).value_or(-1));
    scheduler_.sleep_for(10);
    log.push_back(pending.take_until(clock_ns_ + 10).value_or(-1));
  });
  scheduler_.run_round(0);
  clock_ns_ += 10;
  scheduler_.run_round(0);
  pending.set(5);
  clock_ns_ += 10;
  scheduler_.run_round(0);
  EXPECT_EQ(log, (std::vector<int>{-1, 5}));
}

TEST_F(WaitTest, WaitGroupWaitsForAll) {
  WaitGroup group;
  bool all = false;
  group.add(3);
  spawn([&] {
    group.wait();
    all = true;
  });
  for (int i = 0; i < 3; ++i) {
    spawn([&, i] {
      for (int turn = 0; turn < i; ++turn) scheduler_.yield();
      group.done();
    });
  }
  scheduler_.run_round(0);
  EXPECT_FALSE(all);
  finish();
  EXPECT_TRUE(all);
}

#ifdef LOAM_ASSERTIONS
TEST(WaitPointDeathTest, OnlyFibersWait) {
  EXPECT_DEATH(
      {
        FiberScheduler scheduler;
        WaitPoint point;
        point.wait();
      },
      "only a fiber waits");
}

#endif

// All fibers enter their catch blocks before one of them leaves its own. The block that was entered first is left
// first, which is not the order in which the C++ runtime nests exceptions of one thread.
TEST(WaitPoint, AWaitInsideACatchBlockKeepsItsException) {
  FiberScheduler scheduler;
  std::vector<std::string> seen;
  const auto handle = [&](const std::string& name) {
    try {
      throw std::runtime_error(name);
    } catch (const std::runtime_error&) {
      scheduler.sleep_for(0);
      try {
        throw;
      } catch (const std::runtime_error& again) {
        scheduler.yield();
        seen.emplace_back(again.what());
      }
      EXPECT_EQ(std::uncaught_exceptions(), 0);
    }
    EXPECT_EQ(std::current_exception(), nullptr) << name;
  };
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(scheduler.spawn([&handle, name] { handle(name); }).ok());
  }
  while (scheduler.run_round(0) > 0) {
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(std::current_exception(), nullptr);
}

// Destructors yield while an exception is in flight in their fiber.
TEST(WaitPoint, WaitDuringUnwindingCountsTheExceptionsOfItsFiberOnly) {
  FiberScheduler scheduler;
  struct Waits {
    FiberScheduler& scheduler;
    ~Waits() {
      scheduler.yield();
      EXPECT_EQ(std::uncaught_exceptions(), 1);
    }
  };
  int caught = 0;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(scheduler
                    .spawn([&] {
                      try {
                        const Waits waits{scheduler};
                        throw 1;
                      } catch (int) {
                        ++caught;
                      }
                    })
                    .ok());
  }
  while (scheduler.run_round(0) > 0) {
  }
  EXPECT_EQ(caught, 3);
}

}  // namespace
}  // namespace loam::fiber
