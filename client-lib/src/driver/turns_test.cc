#include "client-lib/src/driver/turns.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "common/fiber/scheduler.h"
#include "common/testing/random.h"

namespace loam::client {
namespace {

using wire::RecordId;

RecordId record(uint64_t key) { return {TableId(7), Key(key)}; }

class TurnsTest : public ::testing::Test {
 protected:
  fiber::SchedulerOptions options() {
    fiber::SchedulerOptions result;
    result.idle = [](uint64_t) {};
    result.wake = [] {};
    result.now_ns = [this] { return now_ns_; };
    return result;
  }
  ~TurnsTest() override {
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
  Turns turns_;
  fiber::FiberScheduler scheduler_{options()};
};

TEST_F(TurnsTest, OneAfterTheOtherInTheOrderOfTheirComing) {
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) {
    spawn([&, i] {
      Turns::Turn turn(turns_);
      turn.take({record(1), record(1)});
      order.push_back(i);
      for (int rounds = 0; rounds < 3; ++rounds) scheduler_.yield();
      order.push_back(i);
    });
  }
  run();
  EXPECT_EQ(order, (std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3, 4, 4}));
  EXPECT_EQ(turns_.lines(), 0u) << "nothing is left of a line";
}

TEST_F(TurnsTest, OtherRecordsDoNotWait) {
  int running = 0, most = 0;
  for (uint64_t i = 0; i < 5; ++i) {
    spawn([&, i] {
      Turns::Turn turn(turns_);
      turn.take({record(i)});
      most = std::max(most, ++running);
      scheduler_.yield();
      --running;
    });
  }
  run();
  EXPECT_EQ(most, 5);
}

TEST_F(TurnsTest, WhoHangsIsNotWaitedForForLong) {
  fiber::Event end;
  bool second = false, third = false;
  spawn([&] {
    Turns::Turn turn(turns_);
    turn.take({record(1)});
    end.wait();
  });
  spawn([&] {
    Turns::Turn turn(turns_);
    turn.take({record(1), record(2)});
    second = true;
    turn.take({record(1)});
    EXPECT_FALSE(end.happened()) << "nobody waits for it any more";
  });
  run();
  pass(Turns::kMostWaitNs - 1);
  EXPECT_FALSE(second);
  pass(1);
  EXPECT_TRUE(second) << "without its turn";
  spawn([&] {
    Turns::Turn turn(turns_);
    turn.take({record(2)});
    third = true;
  });
  run();
  EXPECT_TRUE(third) << "the second has left the line";
  end.notify();
  run();
  EXPECT_EQ(turns_.lines(), 0u);
}

TEST_F(TurnsTest, ALineThatMovesIsWaitedFor) {
  int done = 0;
  for (int i = 0; i < 5; ++i) {
    spawn([&, i] {
      Turns::Turn turn(turns_);
      turn.take({record(1)});
      EXPECT_EQ(done, i);
      scheduler_.sleep_for(Turns::kMostWaitNs * 3 / 4);
      ++done;
    });
  }
  for (int i = 0; i < 5; ++i) {
    run();
    pass(Turns::kMostWaitNs * 3 / 4);
  }
  EXPECT_EQ(done, 5);
}

/// Nobody is at a record beside another, and everybody gets everywhere: whatever they want, in whatever order.
TEST_F(TurnsTest, NoTwoWaitForEachOther) {
  testing::Random random(testing::test_seed(1));
  std::vector<int> at(6);
  int done = 0;
  for (int i = 0; i < 40; ++i) {
    spawn([&] {
      for (int round = 0; round < 20; ++round) {
        Turns::Turn turn(turns_);
        std::vector<RecordId> wanted;
        for (uint64_t n = random.between(1, 3); n > 0; --n) wanted.push_back(record(random.below(at.size())));
        turn.take(wanted);
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
  EXPECT_EQ(done, 40) << "time stands still: nobody gave up";
  EXPECT_EQ(turns_.lines(), 0u);
}

}  // namespace
}  // namespace loam::client
