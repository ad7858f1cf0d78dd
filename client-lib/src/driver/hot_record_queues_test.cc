#include "client-lib/src/driver/hot_record_queues.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "common/fiber/scheduler.h"
#include "common/testing/random.h"

namespace loam::client {
namespace {

using wire::RecordId;

RecordId record(uint64_t key) { return {TableId(7), Key(key)}; }

class HotRecordQueuesTest : public ::testing::Test {
 protected:
  fiber::SchedulerOptions options() {
    fiber::SchedulerOptions result;
    result.idle = [](uint64_t) {};
    result.wake = [] {};
    result.now_ns = [this] { return now_ns_; };
    return result;
  }
  ~HotRecordQueuesTest() override {
    scheduler_.stop();
    scheduler_.run();
  }

  template <class F>
  void spawn(F body) {
    ASSERT_TRUE(scheduler_.spawn(std::move(body)).ok());
  }
  void run() {
    do {
      scheduler_.run_round(0);
    } while (scheduler_.has_ready_fibers());
  }
  void pass(uint64_t ns) {
    now_ns_ += ns;
    run();
  }

  uint64_t now_ns_ = 1'000;
  HotRecordQueues queues_;
  fiber::FiberScheduler scheduler_{options()};
};

TEST_F(HotRecordQueuesTest, GrantsInFifoOrder) {
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) {
    spawn([&, i] {
      HotRecordQueues::Guard guard(queues_);
      guard.acquire({record(1), record(1)});
      order.push_back(i);
      for (int rounds = 0; rounds < 3; ++rounds) scheduler_.yield();
      order.push_back(i);
    });
  }
  run();
  EXPECT_EQ(order, (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3, 4, 4}));
  EXPECT_EQ(queues_.queues(), 0u) << "an empty queue is removed";
}

TEST_F(HotRecordQueuesTest, OtherRecordsDoNotWait) {
  int running = 0, most = 0;
  for (uint64_t i = 0; i < 5; ++i) {
    spawn([&, i] {
      HotRecordQueues::Guard guard(queues_);
      guard.acquire({record(i)});
      most = std::max(most, ++running);
      scheduler_.yield();
      --running;
    });
  }
  run();
  EXPECT_EQ(most, 5);
}

TEST_F(HotRecordQueuesTest, StuckTransactionDelaysOthersForABoundedTime) {
  fiber::Event end;
  bool second = false, third = false;
  spawn([&] {
    HotRecordQueues::Guard guard(queues_);
    guard.acquire({record(1)});
    end.wait();
  });
  spawn([&] {
    HotRecordQueues::Guard guard(queues_);
    guard.acquire({record(1), record(2)});
    second = true;
    guard.acquire({record(1)});
    EXPECT_FALSE(end.notified()) << "the transaction at the head has not ended";
  });
  run();
  pass(HotRecordQueues::kMaxQueueWaitNs - 1);
  EXPECT_FALSE(second);
  pass(1);
  EXPECT_TRUE(second) << "it stopped waiting";
  spawn([&] {
    HotRecordQueues::Guard guard(queues_);
    guard.acquire({record(2)});
    third = true;
  });
  run();
  EXPECT_TRUE(third) << "the second has left the queue";
  end.notify();
  run();
  EXPECT_EQ(queues_.queues(), 0u);
}

TEST_F(HotRecordQueuesTest, WaitsWhileTheQueueProgresses) {
  int done = 0;
  for (int i = 0; i < 5; ++i) {
    spawn([&, i] {
      HotRecordQueues::Guard guard(queues_);
      guard.acquire({record(1)});
      EXPECT_EQ(done, i);
      scheduler_.sleep_for(HotRecordQueues::kMaxQueueWaitNs * 3 / 4);
      ++done;
    });
  }
  for (int i = 0; i < 5; ++i) {
    run();
    pass(HotRecordQueues::kMaxQueueWaitNs * 3 / 4);
  }
  EXPECT_EQ(done, 5);
}

/// Transactions acquire random records in random orders. No two hold the same record at once, and each of them gets
/// its records.
TEST_F(HotRecordQueuesTest, NoDeadlock) {
  testing::Random random(testing::test_seed(1));
  std::vector<int> at(6);
  int done = 0;
  for (int i = 0; i < 40; ++i) {
    spawn([&] {
      for (int round = 0; round < 20; ++round) {
        HotRecordQueues::Guard guard(queues_);
        std::vector<RecordId> wanted;
        for (uint64_t n = random.between(1, 3); n > 0; --n) wanted.push_back(record(random.below(at.size())));
        guard.acquire(wanted);
        std::ranges::sort(wanted);
        wanted.erase(std::ranges::unique(wanted).begin(), wanted.end());
        for (const RecordId& one : wanted) EXPECT_EQ(++at[one.key.value], 1);
        for (uint64_t n = random.below(3); n > 0; --n) scheduler_.yield();
        for (const RecordId& one : wanted) --at[one.key.value];
      }
      ++done;
    });
  }
  run();
  EXPECT_EQ(done, 40) << "no transaction ran out of time, because the clock stands still";
  EXPECT_EQ(queues_.queues(), 0u);
}

}  // namespace
}  // namespace loam::client
