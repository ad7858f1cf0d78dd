#include "common/fiber/mutex.h"

#include <mutex>
#include <vector>

#include <gtest/gtest.h>

namespace loam::fiber {
namespace {

TEST(FiberMutex, ExcludesAcrossYieldsInTheOrderOfArrival) {
  FiberScheduler scheduler;
  FiberMutex mutex;
  std::vector<int> order;
  bool inside = false;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(scheduler
                    .spawn([&, i] {
                      const std::lock_guard lock(mutex);
                      EXPECT_FALSE(inside);
                      inside = true;
                      scheduler.yield();
                      scheduler.yield();
                      inside = false;
                      order.push_back(i);
                    })
                    .ok());
  }
  scheduler.stop();
  scheduler.run();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_FALSE(mutex.is_locked());
}

TEST(FiberMutex, UnlockPassesTheMutexToTheFirstWaiter) {
  FiberScheduler scheduler;
  FiberMutex mutex;
  int greedy = 0;
  int greedy_when_served = -1;
  ASSERT_TRUE(scheduler
                  .spawn([&] {
                    for (; greedy < 100; ++greedy) {
                      const std::lock_guard lock(mutex);
                      scheduler.yield();
                    }
                  })
                  .ok());
  ASSERT_TRUE(scheduler
                  .spawn([&] {
                    const std::lock_guard lock(mutex);
                    greedy_when_served = greedy;
                  })
                  .ok());
  scheduler.stop();
  scheduler.run();
  EXPECT_LE(greedy_when_served, 1);
  EXPECT_EQ(greedy, 100);
}

TEST(FiberMutex, TryLockDoesNotWait) {
  FiberMutex mutex;
  EXPECT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

#ifdef LOAM_ASSERTIONS
TEST(NoYieldGuardDeathTest, AWaitInItsScopeAborts) {
  EXPECT_DEATH(
      {
        FiberScheduler scheduler;
        static_cast<void>(scheduler.spawn([&] {
          const NoYieldGuard guard;
          scheduler.yield();
        }));
        scheduler.run_round(0);
      },
      "NoYieldGuard");
}
#endif

TEST(NoYieldGuard, NestsAndEnds) {
  EXPECT_FALSE(NoYieldGuard::active());
  {
    const NoYieldGuard outer;
    const NoYieldGuard inner;
    EXPECT_TRUE(NoYieldGuard::active());
  }
  EXPECT_FALSE(NoYieldGuard::active());
}

}  // namespace
}  // namespace loam::fiber
