// Tests of the timer of a server thread. A batch that is slow began in the past, so the tests wait for nothing.
#include "common/latency/batch_timer.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "common/latency/stage_timer.h"

namespace loam::latency {
namespace {

constexpr uint64_t kMillisecondNs = 1'000'000;

class BatchTimerTest : public testing::Test {
 protected:
  BatchTimerTest() {
    // The first round has no round before it.
    timer_.begin_round();
    timer_.begin(Env::now_ns());
    timer_.end();
    timer_.begin_round();
  }
  std::vector<SlowOperation> slow() const {
    Latencies all;
    all.add(recorder_);
    return all.slow;
  }
  uint64_t count(OperationKind kind) const {
    Latencies all;
    all.add(recorder_);
    return all.kinds[static_cast<size_t>(kind)].count();
  }

  Recorder recorder_;
  BatchTimer timer_{recorder_};
};

TEST_F(BatchTimerTest, RequestsAreCountedByKind) {
  timer_.begin(Env::now_ns());
  timer_.request(OperationKind::kRead, 7, 1);
  timer_.request(OperationKind::kWrite, 7, 2);
  timer_.request(OperationKind::kRead, 7, 3);
  timer_.end();
  EXPECT_EQ(count(OperationKind::kRead), 2u);
  EXPECT_EQ(count(OperationKind::kWrite), 1u);
  EXPECT_EQ(count(OperationKind::kBegin), 0u);
  timer_.begin(Env::now_ns());
  timer_.request(OperationKind::kBegin, 7, 4);
  timer_.end();
  EXPECT_EQ(count(OperationKind::kBegin), 1u);
  EXPECT_EQ(count(OperationKind::kRead) + count(OperationKind::kWrite), 3u) << "those of the earlier batch";
}

TEST_F(BatchTimerTest, ASlowBatchHasItsStagesAndTheIdsOfItsRequests) {
  timer_.begin(Env::now_ns() - 20 * kMillisecondNs);
  timer_.mark(Stage::kExecution);
  timer_.request(OperationKind::kWrite, 7, 41);
  timer_.request(OperationKind::kRead, 7, 43);
  timer_.mark(Stage::kAnswer);
  timer_.end();
  const auto list = slow();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].kind, OperationKind::kWrite);
  EXPECT_EQ(list[0].session, 7u);
  EXPECT_EQ(list[0].first_sequence, 41u);
  EXPECT_EQ(list[0].last_sequence, 43u);
  EXPECT_EQ(list[0].requests, 2u);
  // The test may have waited for a core meanwhile.
  EXPECT_GE(list[0].stages[Stage::kExecution] + list[0].stages[Stage::kScheduling], 20 * kMillisecondNs);
}

TEST_F(BatchTimerTest, ALaterBatchOfTheRoundHasWaitedInTheQueue) {
  timer_.begin(Env::now_ns() - 30 * kMillisecondNs);
  timer_.request(OperationKind::kRead, 7, 1);
  timer_.mark(Stage::kExecution);
  timer_.end();
  timer_.begin(Env::now_ns());
  timer_.request(OperationKind::kRead, 8, 5);
  timer_.end();
  const auto list = slow();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].session, 8u);
  EXPECT_EQ(list[1].stages.longest(), Stage::kQueue);
  EXPECT_GE(list[1].stages[Stage::kQueue], 30 * kMillisecondNs);
}

TEST_F(BatchTimerTest, TheSleepBeforeARoundBelongsToItsRequests) {
  timer_.slept(Stage::kMemory, 40 * kMillisecondNs);
  timer_.begin(Env::now_ns());
  timer_.request(OperationKind::kWrite, 7, 1);
  timer_.end();
  timer_.begin_round();
  timer_.begin(Env::now_ns());
  timer_.request(OperationKind::kWrite, 7, 2);
  timer_.end();
  const auto list = slow();
  ASSERT_GE(list.size(), 1u);
  // The second batch is in the list only if the test had to wait for a core.
  uint64_t slept_ns = 0;
  for (const SlowOperation& one : list) slept_ns += one.stages[Stage::kMemory];
  EXPECT_EQ(slept_ns, 40 * kMillisecondNs);
}

TEST_F(BatchTimerTest, ARareStageIsTakenFromTheExecution) {
  timer_.begin(Env::now_ns() - 20 * kMillisecondNs);
  RareStages::of_thread().any = true;
  RareStages::of_thread().times[Stage::kIndexGrowth] = 15 * kMillisecondNs;
  timer_.mark(Stage::kExecution);
  timer_.request(OperationKind::kWrite, 7, 1);
  timer_.end();
  EXPECT_FALSE(RareStages::of_thread().any);
  const auto list = slow();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].stages[Stage::kIndexGrowth], 15 * kMillisecondNs);
  EXPECT_GE(list[0].stages.sum(), 20 * kMillisecondNs);
}

TEST_F(BatchTimerTest, TheRareStagesOfABatchWithoutRequestsBelongToNoOther) {
  timer_.begin(Env::now_ns());
  {
    const StageTimer timer(Stage::kSessionLock);
  }
  timer_.end();
  EXPECT_FALSE(RareStages::of_thread().any);
}

TEST_F(BatchTimerTest, AStageTimerAddsItsTime) {
  {
    const StageTimer timer(Stage::kSessionLock);
  }
  EXPECT_TRUE(RareStages::of_thread().any);
  EXPECT_GT(RareStages::of_thread().times[Stage::kSessionLock], 0u);
  RareStages::of_thread() = {};
}

TEST_F(BatchTimerTest, ALateAnswerHasWaitedSinceItsRequest) {
  const uint64_t now_ns = BatchTimer::late_ns();
  timer_.answered_late(OperationKind::kComplete, 7, 9, Stage::kLog, {now_ns - 50 * kMillisecondNs}, now_ns);
  timer_.answered_late(OperationKind::kComplete, 7, 10, Stage::kLog, {now_ns - kMillisecondNs / 2}, now_ns);
  EXPECT_EQ(count(OperationKind::kComplete), 2u);
  const auto list = slow();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].first_sequence, 9u);
  EXPECT_EQ(list[0].stages.sum(), 50 * kMillisecondNs);
}

TEST_F(BatchTimerTest, ATimeWithoutALookForEventsIsAWaitForACore) {
  const uint64_t now_ns = Env::now_ns();
  const uint64_t last_look_ns = now_ns - 10 * kMillisecondNs;
  timer_.watch(last_look_ns);
  const auto batch = [&](uint64_t sequence, uint64_t begin_ns) {
    timer_.begin_round();
    timer_.begin(begin_ns);
    timer_.request(OperationKind::kRead, 7, sequence);
    timer_.end();
  };
  batch(1, now_ns - 20 * kMillisecondNs);
  batch(2, now_ns);
  const auto list = slow();
  const auto second = std::ranges::find(list, 2u, &SlowOperation::first_sequence);
  ASSERT_NE(second, list.end());
  EXPECT_GE(second->stages[Stage::kScheduling], 10 * kMillisecondNs);
}

TEST(UnseenTime, IsTheTimeSinceTheLastLookOfASpinningPoll) {
  constexpr uint64_t kNowNs = 1'000'000'000;
  EXPECT_EQ(unseen_ns_at(kNowNs, kNowNs - 200'000), 200'000u);
  EXPECT_EQ(unseen_ns_at(kNowNs, kNowNs - 199'999), 0u) << "a spinning poll looks every few microseconds";
  EXPECT_EQ(unseen_ns_at(kNowNs, kNowNs + 1), 0u);
  EXPECT_EQ(unseen_ns_at(kNowNs, kNoLookNs), 0u) << "the poll has slept";
}

TEST_F(BatchTimerTest, ALateAnswerHasWaitedBeforeItsRound) {
  timer_.slept(Stage::kMemory, 30 * kMillisecondNs);
  timer_.begin_round();
  const uint64_t now_ns = Env::now_ns();
  timer_.begin(now_ns);
  const BatchTimer::Arrival arrival = timer_.arrival();
  timer_.mark(Stage::kExecution);
  timer_.end();
  EXPECT_EQ(arrival.round_ns, now_ns);
  timer_.answered_late(OperationKind::kComplete, 7, 9, Stage::kLog, arrival, now_ns);
  const auto list = slow();
  ASSERT_EQ(list.size(), 1u) << "the wait before the round makes the request slow";
  EXPECT_EQ(list[0].stages[Stage::kMemory], 30 * kMillisecondNs);
}

TEST_F(BatchTimerTest, RequestsThatArrivedDuringALongRoundHaveWaitedInTheQueue) {
  // The next round must begin at once. If another thread gets the core just then, the test tries again.
  for (int attempt = 0; attempt < 1'000; ++attempt) {
    timer_.begin_round();
    timer_.begin(Env::now_ns() - 25 * kMillisecondNs);
    timer_.mark(Stage::kExecution);
    timer_.end();
    timer_.begin_round();
    timer_.begin(Env::now_ns());
    timer_.request(OperationKind::kRead, 7, 2);
    timer_.end();
    if (!slow().empty()) break;
  }
  const auto list = slow();
  ASSERT_EQ(list.size(), 1u);
  EXPECT_GE(list[0].stages[Stage::kQueue], 25 * kMillisecondNs);
}

}  // namespace
}  // namespace loam::latency
