#include "client-lib/src/core/begin_batcher.h"

#include <gtest/gtest.h>

#include "client-lib/src/core/backoff.h"

namespace loam::client {
namespace {

struct Waiter final : BeginWaiter {
  void on_begun(const BeginAnswer& got) override {
    ++answers;
    answer = got;
  }
  BeginAnswer answer;
  int answers = 0;
};

wire::Begun begun(uint64_t first, uint64_t base, uint64_t number) {
  wire::Begun message;
  message.first_id = TransactionId(first);
  message.snapshot = Snapshot(Version(base));
  message.snapshot_number = number;
  message.catalog_version = 9;
  return message;
}

TEST(BeginBatcher, SharesOneMessageAndOneSnapshot) {
  BeginBatcher batcher;
  std::vector<Waiter> waiters(4);
  batcher.add(&waiters[0], false);
  batcher.add(&waiters[1], true);
  batcher.add(&waiters[2], false);
  const BeginGroup group = batcher.take();
  EXPECT_TRUE(batcher.empty());
  EXPECT_EQ(group.message().read_write, 2u);
  EXPECT_TRUE(group.message().read_only);
  batcher.add(&waiters[3], false);  // too late for the message that was taken (R12)
  group.answer(begun(100, 99, 5));
  EXPECT_EQ(waiters[0].answer.id, TransactionId(100));
  EXPECT_EQ(waiters[2].answer.id, TransactionId(101));
  EXPECT_EQ(waiters[1].answer.id, TransactionId());
  EXPECT_EQ(waiters[1].answer.snapshot_number, 5u);
  EXPECT_EQ(waiters[0].answer.snapshot_number, 0u);
  EXPECT_EQ(waiters[0].answer.snapshot, waiters[1].answer.snapshot);
  EXPECT_EQ(waiters[0].answer.catalog_version, 9u);
  EXPECT_EQ(waiters[3].answers, 0);
  EXPECT_EQ(batcher.take().message().read_write, 1u);
}

TEST(BeginBatcher, SplitsAtTheLimit) {
  BeginBatcher batcher;
  std::vector<Waiter> waiters(wire::kMaxBegins + 3);
  for (Waiter& waiter : waiters) batcher.add(&waiter, false);
  const BeginGroup first = batcher.take();
  EXPECT_EQ(first.read_write.size(), wire::kMaxBegins);
  EXPECT_FALSE(batcher.empty());
  const BeginGroup second = batcher.take();
  EXPECT_EQ(second.read_write.size(), 3u);
  EXPECT_TRUE(batcher.empty());
  EXPECT_EQ(second.read_write[0], &waiters[wire::kMaxBegins]) << "in the order in which they came";
}

TEST(BeginBatcher, RefusesAnswersThatDoNotFit) {
  for (const auto& [first, base, number, read_only] : std::vector<std::tuple<uint64_t, uint64_t, uint64_t, bool>>{
           {0, 0, 0, false}, {50, 50, 0, false}, {UINT64_MAX, 5, 0, false}, {100, 99, 0, true}}) {
    BeginBatcher batcher;
    std::vector<Waiter> waiters(2);
    batcher.add(&waiters[0], false);
    batcher.add(&waiters[1], read_only);
    batcher.take().answer(begun(first, base, number));
    EXPECT_EQ(waiters[0].answer.status.code(), StatusCode::kMalformed);
    EXPECT_EQ(waiters[1].answers, 1);
  }
}

TEST(BeginBatcher, FailsEveryWaiter) {
  BeginBatcher batcher;
  std::vector<Waiter> waiters(3);
  for (Waiter& waiter : waiters) batcher.add(&waiter, &waiter == &waiters[1]);
  batcher.take().fail({StatusCode::kUnavailable, "gone"});
  for (const Waiter& waiter : waiters) {
    EXPECT_EQ(waiter.answers, 1);
    EXPECT_EQ(waiter.answer.status.code(), StatusCode::kUnavailable);
  }
}

TEST(Backoff, GrowsToItsBound) {
  const RetryOptions options{10, 1'000, 50'000};
  for (uint32_t attempt = 0; attempt < 100; ++attempt) {
    const uint64_t bound = attempt < 6 ? 1'000u << attempt : 50'000u;
    EXPECT_LE(backoff_ns(options, attempt, UINT64_MAX), bound);
    EXPECT_EQ(backoff_ns(options, attempt, bound), bound) << attempt;
  }
  EXPECT_EQ(backoff_ns({1, 0, 0}, 3, 12345), 0u);
}

}  // namespace
}  // namespace loam::client
