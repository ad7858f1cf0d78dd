// The debt to the background thread by a clock that the test advances, and the share of a real thread when threads want
// more cores than there are.
#include "storage-node/src/server/compaction_share.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "common/base/cpu_clock.h"
#include "common/base/thread.h"

namespace loam::storage {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr double kFull = 0.9;
constexpr double kRoomy = 0.7;

struct CompactionShareTest : ::testing::Test {
  uint64_t owed(size_t number = 0, double fill = kFull) const { return share.delay_ns(number, fill, now); }

  CompactionShare share{{.share = 0.25, .watermark = 0.8}};
  uint64_t now = 1'000 * kMs;
};

TEST_F(CompactionShareTest, NothingIsOwedToAThreadThatHasNotRun) { EXPECT_EQ(owed(), 0u); }

TEST_F(CompactionShareTest, DebtGrowsWhileItCannotRunAndWorkPaysIt) {
  share.record_step(now, kMs, kFull);
  now += kMs;
  EXPECT_EQ(owed(), 0u) << "a quarter of a millisecond is not worth a sleep";
  now += 3 * kMs;
  EXPECT_EQ(owed(), kMs);
  now += 100 * kMs;
  EXPECT_EQ(owed(), CompactionShare::kMaxThrottleNs) << "no request waits longer";
  share.record_step(now, 26 * kMs, kFull);
  EXPECT_EQ(owed(), 0u);
}

TEST_F(CompactionShareTest, WorkPaysAPartOfTheDebt) {
  share.record_step(now, kMs, kFull);
  now += 8 * kMs;
  share.record_step(now, kMs, kFull);
  EXPECT_EQ(owed(), kMs) << "of two milliseconds it has had one";
}

TEST_F(CompactionShareTest, StepsThatTakeNoTimePayToo) {
  share.record_step(now, kMs, kFull);
  now += 8 * kMs;
  EXPECT_EQ(owed(), 2 * kMs);
  for (uint64_t step = 0; step < kMs / CompactionShare::kMinStepNs; ++step) share.record_step(now, 0, kFull);
  EXPECT_EQ(owed(), kMs);
}

TEST_F(CompactionShareTest, NothingIsOwedBelowTheWatermark) {
  share.record_step(now, kMs, kRoomy);
  now += 50 * kMs;
  EXPECT_EQ(owed(0, kRoomy), 0u);
  share.record_step(now, 10'000, kRoomy);
  now += kMs;
  EXPECT_EQ(owed(), 0u) << "what it did not get below the watermark it is not owed above";
}

TEST_F(CompactionShareTest, IdleTimeIsNotOwed) {
  share.record_step(now, kMs, kFull);
  share.record_idle(now + 10 * kMs);
  now += 10 * kMs;
  EXPECT_EQ(owed(), 0u);
  now += 4 * kMs;
  EXPECT_EQ(owed(), kMs) << "from the end of the rest on";
  share.record_step(now, kMs / 2, kFull);
  share.record_idle(now + 10 * kMs);
  now += 14 * kMs;
  EXPECT_EQ(owed(), kMs) << "and work from before the rest pays nothing";
}

TEST_F(CompactionShareTest, NeitherSurplusNorDebtAccumulates) {
  share.record_step(now, kMs, kFull);
  now += kMs;
  share.record_step(now, 500 * kMs, kFull);
  now += 8 * kMs;
  EXPECT_EQ(owed(), 2 * kMs) << "it has had half a second, which is over";
  now += 2 * CompactionShare::kWindowNs;
  share.record_step(now, kMs, kFull);
  EXPECT_EQ(owed(), 0u) << "a long debt ends with the first step";
}

TEST_F(CompactionShareTest, MoreThreadsSleepAsTheDebtGrows) {
  share.record_step(now, kMs, kFull);
  now += 3 * kMs;
  EXPECT_GT(owed(0), 0u);
  EXPECT_EQ(owed(1), 0u);
  now += 2 * kMs;
  EXPECT_GT(owed(1), 0u);
  EXPECT_EQ(owed(2), 0u);
}

TEST_F(CompactionShareTest, ShareOfZeroOwesNothing) {
  CompactionShare none({.share = 0, .watermark = 0.8});
  none.record_step(now, kMs, kFull);
  EXPECT_EQ(none.delay_ns(0, kFull, now + 1'000 * kMs), 0u);
}

/// Binds the process to one of its cores while the object lives.
class OneCore {
 public:
  OneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
      if (CPU_ISSET(core, &before_)) CPU_SET(core, &one);
    }
    sched_setaffinity(0, sizeof one, &one);
  }
  ~OneCore() { sched_setaffinity(0, sizeof before_, &before_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_{};
};

/// CPU time of a background thread that always has work over that of all three threads, while two network threads never
/// rest: all of them on one core.
double share_of_background(double wanted, double fill) {
  const OneCore one;
  CompactionShare share({.share = wanted, .watermark = 0.8});
  constexpr uint64_t kTogetherNs = 600 * kMs;
  std::atomic<bool> done{false};
  std::atomic<uint64_t> network_ns{0};
  std::atomic<uint64_t> background_ns{0};
  std::vector<Thread> threads;
  // A step, or a batch: 50 µs of the thread's own time. Returns what it took.
  const auto work = [] {
    const uint64_t from = thread_cpu_ns();
    uint64_t spent = 0;
    while (spent < 50'000) spent = thread_cpu_ns() - from;
    return spent;
  };
  threads.emplace_back(
      "background",
      [&] {
        while (!done.load(std::memory_order_relaxed)) {
          const uint64_t spent = work();
          share.record_step(Env::now_ns(), spent, fill);
          background_ns.fetch_add(spent, std::memory_order_relaxed);
        }
      },
      15);
  for (size_t number = 0; number < 2; ++number) {
    threads.emplace_back("network", [&, number] {
      while (!done.load(std::memory_order_relaxed)) {
        network_ns.fetch_add(work(), std::memory_order_relaxed);
        if (const uint64_t owed = share.delay_ns(number, fill, Env::now_ns()); owed > 0) sleep_ns(owed);
        if (network_ns.load(std::memory_order_relaxed) + background_ns.load(std::memory_order_relaxed) > kTogetherNs) {
          done.store(true, std::memory_order_relaxed);
        }
      }
    });
  }
  for (Thread& thread : threads) thread.join();
  const auto mine = static_cast<double>(background_ns.load(std::memory_order_relaxed));
  return mine / (mine + static_cast<double>(network_ns.load(std::memory_order_relaxed)));
}

TEST(FairShare, SaturatedNetworkThreadsDoNotStarveTheCompactorAboveTheWatermark) {
  EXPECT_GT(share_of_background(0.25, kFull), 0.15);
}

TEST(FairShare, PointOperationsGoFirstBelowTheWatermark) { EXPECT_LT(share_of_background(0.25, kRoomy), 0.1); }

}  // namespace
}  // namespace loam::storage
