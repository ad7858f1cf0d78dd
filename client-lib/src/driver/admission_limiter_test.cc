#include "client-lib/src/driver/admission_limiter.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/fiber/scheduler.h"

namespace loam::client {
namespace {

using Admission = AdmissionLimiter::Admission;

/// Fibers on a clock that only the test moves.
class AdmissionLimiterTest : public ::testing::Test {
 protected:
  static fiber::SchedulerOptions options(uint64_t& clock) {
    fiber::SchedulerOptions result;
    result.now_ns = [&clock] { return clock; };
    result.idle = [](uint64_t) {};
    result.wake = [] {};
    return result;
  }
  ~AdmissionLimiterTest() override {
    scheduler_.stop();
    scheduler_.run();
  }

  /// Starts a fiber that acquires a slot by the deadline, and records the result under its number.
  void acquire(AdmissionLimiter& limiter, int number, uint64_t deadline_ns) {
    const Status spawned = scheduler_.spawn([&limiter, this, number, deadline_ns] {
      const Admission admission = limiter.acquire_until(deadline_ns);
      admissions_.emplace_back(number, admission);
    });
    ASSERT_TRUE(spawned.ok());
    round();
  }
  void round() { scheduler_.run_round(0); }

  uint64_t clock_ns_ = 1'000;
  fiber::FiberScheduler scheduler_{options(clock_ns_)};
  std::vector<std::pair<int, Admission>> admissions_;
};

using Admissions = std::vector<std::pair<int, Admission>>;

TEST_F(AdmissionLimiterTest, GrantsInFifoOrder) {
  AdmissionLimiter limiter(1);
  for (int i = 0; i < 4; ++i) acquire(limiter, i, fiber::kForever);
  EXPECT_EQ(limiter.in_use(), 1u);
  EXPECT_EQ(limiter.waiting(), 3u);
  for (int i = 0; i < 3; ++i) {
    limiter.release();
    EXPECT_EQ(limiter.in_use(), 1u) << "the slot is never free while a fiber waits";
    round();
  }
  limiter.release();
  EXPECT_EQ(
      admissions_,
      (Admissions{
          {0, Admission::kAdmitted}, {1, Admission::kAdmitted}, {2, Admission::kAdmitted}, {3, Admission::kAdmitted}}));
  EXPECT_EQ(limiter.in_use(), 0u);
}

TEST_F(AdmissionLimiterTest, NewArrivalDoesNotOvertakeWaiters) {
  AdmissionLimiter limiter(1);
  acquire(limiter, 0, fiber::kForever);
  acquire(limiter, 1, fiber::kForever);
  limiter.release();
  acquire(limiter, 2, fiber::kForever);
  EXPECT_EQ(admissions_, (Admissions{{0, Admission::kAdmitted}, {1, Admission::kAdmitted}}));
  limiter.release();
  round();
  limiter.release();
  EXPECT_EQ(admissions_.back(), (std::pair{2, Admission::kAdmitted}));
}

TEST_F(AdmissionLimiterTest, TimedOutWaiterLeavesTheQueue) {
  AdmissionLimiter limiter(1);
  acquire(limiter, 0, fiber::kForever);
  acquire(limiter, 1, 2'000);
  acquire(limiter, 2, fiber::kForever);
  clock_ns_ = 2'000;
  round();
  EXPECT_EQ(admissions_, (Admissions{{0, Admission::kAdmitted}, {1, Admission::kTimedOut}}));
  EXPECT_EQ(limiter.waiting(), 1u);
  limiter.release();
  round();
  EXPECT_EQ(admissions_.back(), (std::pair{2, Admission::kAdmitted}));
  limiter.release();
  EXPECT_EQ(limiter.in_use(), 0u);
}

TEST_F(AdmissionLimiterTest, GrantRacingWithTimeoutIsNotLost) {
  AdmissionLimiter limiter(1);
  acquire(limiter, 0, fiber::kForever);
  // The release comes in the same round as the waiter's deadline: the slot goes to a fiber that is already awake
  // because its time is up.
  ASSERT_TRUE(scheduler_
                  .spawn([&] {
                    scheduler_.sleep_until(2'000);
                    limiter.release();
                  })
                  .ok());
  round();
  acquire(limiter, 1, 2'000);
  clock_ns_ = 2'000;
  round();
  EXPECT_EQ(admissions_.back(), (std::pair{1, Admission::kAdmitted}));
  EXPECT_EQ(limiter.in_use(), 1u);
  limiter.release();
  EXPECT_EQ(limiter.in_use(), 0u);
}

TEST_F(AdmissionLimiterTest, RejectsBeyondMaxWaiters) {
  AdmissionLimiter limiter(2, 1);
  for (int i = 0; i < 4; ++i) acquire(limiter, i, fiber::kForever);
  EXPECT_EQ(admissions_,
            (Admissions{{0, Admission::kAdmitted}, {1, Admission::kAdmitted}, {3, Admission::kQueueFull}}));
  limiter.release();
  round();
  acquire(limiter, 4, 3'000);  // waits: there is room in the queue again
  EXPECT_EQ(admissions_.back(), (std::pair{2, Admission::kAdmitted}));
  EXPECT_EQ(limiter.waiting(), 1u);
  for (int i = 0; i < 3; ++i) limiter.release();
  round();
  EXPECT_EQ(admissions_.back(), (std::pair{4, Admission::kAdmitted}));
}

}  // namespace
}  // namespace loam::client
