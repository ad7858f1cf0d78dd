// Tests of the timer of a client thread. A request that is slow was made in the past, so the tests wait for nothing.
#include "common/latency/request_timer.h"

#include <vector>

#include <gtest/gtest.h>

namespace loam::latency {
namespace {

constexpr uint64_t kRequestMs = 1'000'000;

class RequestTimerTest : public testing::Test {
 protected:
  RequestTimerTest() { timer_.set_session(5); }
  SlowOperation only() const {
    Latencies all;
    all.add(recorder_);
    EXPECT_EQ(all.slow.size(), 1u);
    return all.slow.empty() ? SlowOperation() : all.slow.front();
  }

  Recorder recorder_;
  RequestTimer timer_{recorder_};
};

TEST_F(RequestTimerTest, ASlowRequestHasWaitedForTheNetwork) {
  const uint64_t now_ns = Env::now_ns();
  timer_.after_poll(now_ns - 30 * kRequestMs);
  EXPECT_EQ(timer_.round_ns(), now_ns - 30 * kRequestMs);
  timer_.answered(OperationKind::kRead, 3, 17, now_ns - 30 * kRequestMs, now_ns - 30 * kRequestMs);
  const SlowOperation slow = only();
  EXPECT_EQ(slow.session, 5u);
  EXPECT_EQ(slow.node, 3u);
  EXPECT_EQ(slow.first_sequence, 17u);
  EXPECT_GE(slow.stages.sum(), 30 * kRequestMs);
  EXPECT_EQ(slow.stages[Stage::kWindow], 0u);
}

TEST_F(RequestTimerTest, ARequestThatWasSentLaterHasWaitedInTheWindow) {
  const uint64_t now_ns = Env::now_ns();
  timer_.answered(OperationKind::kWrite, 3, 17, now_ns - 30 * kRequestMs, now_ns - 10 * kRequestMs);
  EXPECT_EQ(only().stages[Stage::kWindow], 20 * kRequestMs);
}

TEST_F(RequestTimerTest, FibersThatRanMeanwhileAreAStage) {
  const uint64_t now_ns = Env::now_ns();
  timer_.after_poll(now_ns - 40 * kRequestMs);
  timer_.before_poll();  // fibers ran for 40 ms
  timer_.answered(OperationKind::kRead, 3, 17, now_ns - 30 * kRequestMs, now_ns - 30 * kRequestMs);
  const SlowOperation slow = only();
  // The test may have waited for a core meanwhile.
  EXPECT_GE(slow.stages[Stage::kClient] + slow.stages[Stage::kScheduling], 30 * kRequestMs);
}

TEST_F(RequestTimerTest, FibersThatRanBeforeARequestAreNoStageOfIt) {
  timer_.after_poll(Env::now_ns() - 90 * kRequestMs);
  timer_.before_poll();
  const uint64_t made_ns = Env::now_ns();
  while (Env::now_ns() - made_ns < 2 * kSlowNs) Env::spin_pause();
  timer_.answered(OperationKind::kRead, 3, 17, made_ns, made_ns);
  EXPECT_EQ(only().stages[Stage::kClient], 0u);
}

TEST_F(RequestTimerTest, ATimeWithoutALookForEventsIsAWaitForACore) {
  const uint64_t now_ns = Env::now_ns();
  const uint64_t last_look_ns = now_ns - 20 * kRequestMs;
  timer_.watch(last_look_ns);
  timer_.answered(OperationKind::kRead, 3, 17, now_ns - 30 * kRequestMs, now_ns - 30 * kRequestMs);
  EXPECT_GE(only().stages[Stage::kScheduling], 20 * kRequestMs);
}

TEST_F(RequestTimerTest, EveryRequestIsCounted) {
  for (uint64_t i = 1; i <= 1'000; ++i) {
    timer_.after_poll(Env::now_ns());
    timer_.before_poll();
    timer_.answered(OperationKind::kRead, 3, i, timer_.round_ns(), timer_.round_ns());
  }
  Latencies all;
  all.add(recorder_);
  EXPECT_EQ(all.kinds[static_cast<size_t>(OperationKind::kRead)].count(), 1'000u);
}

}  // namespace
}  // namespace loam::latency
