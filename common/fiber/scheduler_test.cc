#include "common/fiber/scheduler.h"

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/env.h"
#include "common/fiber/wait.h"

namespace loam::fiber {
namespace {

void finish(FiberScheduler& scheduler) {
  scheduler.stop();
  scheduler.run();
}

TEST(FiberScheduler, RunsFibersInTheOrderOfTheirSpawn) {
  FiberScheduler scheduler;
  std::string log;
  for (char c = 'a'; c <= 'e'; ++c) {
    ASSERT_TRUE(scheduler.spawn([&log, c] { log += c; }).ok());
  }
  EXPECT_EQ(log, "");
  EXPECT_EQ(scheduler.living_fibers(), 5u);
  EXPECT_EQ(scheduler.run_round(0), 0u);
  EXPECT_EQ(log, "abcde");
}

TEST(FiberScheduler, ARoundRunsEachReadyFiberOnce) {
  FiberScheduler scheduler;
  std::string log;
  for (char c = 'a'; c <= 'c'; ++c) {
    ASSERT_TRUE(scheduler
                    .spawn([&scheduler, &log, c] {
                      for (int i = 0; i < 3; ++i) {
                        log += c;
                        scheduler.yield();
                      }
                    })
                    .ok());
  }
  scheduler.run_round(0);
  EXPECT_EQ(log, "abc");
  scheduler.run_round(0);
  EXPECT_EQ(log, "abcabc");
  finish(scheduler);
  EXPECT_EQ(log, "abcabcabc");
}

TEST(FiberScheduler, WakesThousandsOfFibersInAChain) {
  FiberScheduler scheduler;
  constexpr size_t kFibers = 2'000;
  WaitPoint gate;
  std::vector<WaitPoint> points(kFibers);
  size_t sum = 0;
  for (size_t i = 0; i < kFibers; ++i) {
    ASSERT_TRUE(scheduler
                    .spawn([&, i] {
                      points[i].wait();
                      sum += i;
                      if (i + 1 < kFibers) points[i + 1].notify();
                    })
                    .ok());
  }
  EXPECT_EQ(scheduler.run_round(0), kFibers);
  points[0].notify();
  finish(scheduler);
  EXPECT_EQ(sum, kFibers * (kFibers - 1) / 2);
  EXPECT_EQ(scheduler.counters().ended, kFibers);
}

TEST(FiberScheduler, ReusesTheStacksOfEndedFibers) {
  FiberScheduler scheduler;
  for (int i = 0; i < 1'000; ++i) {
    ASSERT_TRUE(scheduler.spawn([&] { scheduler.yield(); }).ok());
    ASSERT_TRUE(scheduler.spawn([] {}).ok());
    while (scheduler.run_round(0) > 0) {
    }
  }
  EXPECT_EQ(scheduler.counters().spawned, 2'000u);
  EXPECT_EQ(scheduler.counters().stacks_mapped, 2u);
}

TEST(FiberScheduler, UnmapsStacksBeyondThePool) {
  SchedulerOptions options;
  options.max_pooled_stacks = 3;
  FiberScheduler scheduler(options);
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(scheduler.spawn([] {}).ok());
    scheduler.run_round(0);
  }
  EXPECT_EQ(scheduler.counters().stacks_mapped, 10u + 7u);
}

TEST(FiberScheduler, RefusesFibersBeyondTheLimit) {
  SchedulerOptions options;
  options.max_fibers = 2;
  FiberScheduler scheduler(options);
  bool destroyed_uncalled = true;
  ASSERT_TRUE(scheduler.spawn([] {}).ok());
  ASSERT_TRUE(scheduler.spawn([] {}).ok());
  const Status refused = scheduler.spawn([&] { destroyed_uncalled = false; });
  EXPECT_EQ(refused.code(), StatusCode::kOverloaded);
  EXPECT_NE(refused.message().find("2 fibers"), std::string::npos);
  scheduler.run_round(0);
  EXPECT_TRUE(destroyed_uncalled);
  EXPECT_TRUE(scheduler.spawn([] {}).ok());
  scheduler.run_round(0);
}

TEST(FiberScheduler, AnExceptionEndsItsFiberOnly) {
  FiberScheduler scheduler;
  int ran = 0;
  ASSERT_TRUE(scheduler.spawn([] { throw std::runtime_error("thrown by the test"); }).ok());
  ASSERT_TRUE(scheduler.spawn([&] { ++ran; }).ok());
  scheduler.run_round(0);
  ASSERT_TRUE(scheduler.spawn([&] { ++ran; }).ok());  // on the stack of the fiber that threw
  scheduler.run_round(0);
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(scheduler.counters().escaped_exceptions, 1u);
}

TEST(FiberScheduler, FibersThrowAndCatchInTurns) {
  FiberScheduler scheduler;
  int caught = 0;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(scheduler
                    .spawn([&, i] {
                      for (int turn = 0; turn < 10; ++turn) {
                        try {
                          scheduler.yield();
                          throw i;
                        } catch (int value) {
                          EXPECT_EQ(value, i);
                          ++caught;
                        }
                        scheduler.yield();
                      }
                    })
                    .ok());
  }
  finish(scheduler);
  EXPECT_EQ(caught, 40);
}

TEST(FiberScheduler, NumbersFibersFromOne) {
  FiberScheduler scheduler;
  std::vector<uint64_t> numbers;
  EXPECT_EQ(scheduler.current_fiber(), 0u);
  EXPECT_FALSE(FiberScheduler::in_fiber());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(scheduler
                    .spawn([&] {
                      EXPECT_TRUE(FiberScheduler::in_fiber());
                      scheduler.yield();
                      numbers.push_back(scheduler.current_fiber());
                    })
                    .ok());
  }
  finish(scheduler);
  EXPECT_EQ(numbers, (std::vector<uint64_t>{1, 2, 3}));
}

TEST(FiberScheduler, ReportsAFiberThatStalls) {
  std::vector<FiberStall> stalls;
  SchedulerOptions options;
  options.stall_threshold_ns = 2'000'000;
  options.on_stall = [&](const FiberStall& stall) { stalls.push_back(stall); };
  FiberScheduler scheduler(options);
  const auto burn = [] {
    const uint64_t until = RealEnv::now_ns() + 4'000'000;
    while (RealEnv::now_ns() < until) RealEnv::spin_pause();
  };
  ASSERT_TRUE(scheduler.spawn([&] { scheduler.yield(); }).ok());
  ASSERT_TRUE(scheduler.spawn(burn).ok());
  scheduler.run_round(0);
  ASSERT_GE(stalls.size(), 1u);  // on a busy machine other fibers may stall, too
  bool reported = false;
  for (const FiberStall& stall : stalls) reported = reported || (stall.fiber == 2 && stall.stalled_ns >= 3'500'000);
  EXPECT_TRUE(reported);
  EXPECT_EQ(scheduler.counters().stalls, stalls.size());
  stalls.clear();
  scheduler.post(burn);
  finish(scheduler);
  ASSERT_GE(stalls.size(), 1u);
  EXPECT_EQ(stalls.front().fiber, 0u);
}

// A fiber whose stack does not fit into the pool is deleted at its end, so the report must not read it afterwards.
TEST(FiberScheduler, ReportsTheStallOfAnEndingFiberOnce) {
  std::vector<uint64_t> fibers;
  SchedulerOptions options;
  options.max_pooled_stacks = 0;
  options.stall_threshold_ns = 1;  // every fiber runs for longer
  options.on_stall = [&](const FiberStall& stall) { fibers.push_back(stall.fiber); };
  FiberScheduler scheduler(options);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(scheduler.spawn([] {}).ok());
  finish(scheduler);
  EXPECT_EQ(fibers, (std::vector<uint64_t>{1, 2, 3}));
}

TEST(FiberScheduler, ReportsNoStallsWhileItEnds) {
  bool ending = false;
  uint64_t stalls_at_the_end = 0;
  SchedulerOptions options;
  options.stall_threshold_ns = 1;  // every fiber runs for longer
  options.on_stall = [&](const FiberStall&) { stalls_at_the_end += ending ? 1 : 0; };
  auto scheduler = std::make_unique<FiberScheduler>(options);
  ASSERT_TRUE(scheduler->spawn([] {}).ok());
  finish(*scheduler);  // the fiber is parked now, and runs once more when the scheduler ends
  ending = true;
  scheduler.reset();
  EXPECT_EQ(stalls_at_the_end, 0u);
}

TEST(FiberScheduler, IdleHookGetsTheTimeUntilTheNextDeadline) {
  uint64_t clock = 100;
  std::vector<uint64_t> timeouts;
  SchedulerOptions options;
  options.now_ns = [&] { return clock; };
  options.idle = [&](uint64_t timeout_ns) { timeouts.push_back(timeout_ns); };
  options.wake = [] {};
  FiberScheduler scheduler(options);
  scheduler.run_round(77);
  ASSERT_TRUE(scheduler.spawn([&] { scheduler.sleep_until(150); }).ok());
  scheduler.run_round(kForever);
  clock = 120;
  scheduler.run_round(kForever);
  scheduler.run_round(10);
  clock = 160;
  EXPECT_EQ(scheduler.run_round(kForever), 0u);
  EXPECT_EQ(timeouts, (std::vector<uint64_t>{77, 50, 30, 10, kForever}));
  ASSERT_TRUE(scheduler.spawn([&] { scheduler.yield(); }).ok());
  scheduler.run_round(kForever);
  EXPECT_EQ(timeouts.back(), 0u) << "a fiber is ready";
  scheduler.run_round(0);
}

TEST(FiberScheduler, SchedulersFollowEachOtherOnAThread) {
  for (int i = 0; i < 3; ++i) {
    FiberScheduler scheduler;
    int ran = 0;
    ASSERT_TRUE(scheduler.spawn([&] { ++ran; }).ok());
    scheduler.run_round(0);
    EXPECT_EQ(ran, 1);
    EXPECT_EQ(FiberScheduler::current(), &scheduler);
  }
  EXPECT_EQ(FiberScheduler::current(), nullptr);
}

TEST(FiberScheduler, EachThreadHasItsOwnScheduler) {
  std::vector<std::thread> threads;
  std::atomic<int> ran{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      FiberScheduler scheduler;
      for (int f = 0; f < 50; ++f) {
        EXPECT_TRUE(scheduler
                        .spawn([&] {
                          scheduler.yield();
                          ran.fetch_add(1, std::memory_order_relaxed);
                        })
                        .ok());
      }
      finish(scheduler);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ran.load(std::memory_order_relaxed), 200);
}

TEST(FiberScheduler, OtherThreadsSpawnAndPost) {
  FiberScheduler scheduler;
  constexpr int kThreads = 3;
  constexpr int kEach = 300;
  int ran = 0;  // used by the scheduler's thread only
  int posted = 0;
  std::vector<int> last(kThreads, -1);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        scheduler.spawn_remote([&, t, i] {
          EXPECT_EQ(last[static_cast<size_t>(t)], i - 1) << "tasks of one thread keep their order";
          last[static_cast<size_t>(t)] = i;
          scheduler.yield();
          ++ran;
        });
        scheduler.post([&] { ++posted; });
      }
    });
  }
  std::thread stopper([&] {
    for (std::thread& thread : threads) thread.join();
    scheduler.stop();
  });
  scheduler.run();
  stopper.join();
  EXPECT_EQ(ran, kThreads * kEach);
  EXPECT_EQ(posted, kThreads * kEach);
  EXPECT_EQ(scheduler.counters().remote_tasks, 2u * kThreads * kEach);
}

TEST(FiberScheduler, APostWakesASleepingScheduler) {
  FiberScheduler scheduler;
  Event answer;  // not a WaitPoint, because the task may run before the fiber waits
  uint64_t value = 0;
  uint64_t got = 0;
  ASSERT_TRUE(scheduler
                  .spawn([&] {
                    answer.wait();
                    got = value;
                    scheduler.stop();
                  })
                  .ok());
  std::thread other([&] {
    scheduler.post([&] {
      value = 9;
      answer.notify();
    });
  });
  scheduler.run();
  other.join();
  EXPECT_EQ(got, 9u);
}

TEST(FiberScheduler, DestroysTasksPostedAfterTheLastRound) {
  auto held = std::make_shared<int>(1);
  {
    FiberScheduler scheduler;
    scheduler.post([held] { ADD_FAILURE(); });
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace loam::fiber
