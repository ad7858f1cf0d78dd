#include "client-lib/src/core/begin_batcher.h"

#include <gtest/gtest.h>

#include "client-lib/src/core/backoff.h"

namespace loam::client {
namespace {

struct Waiter final : BeginWaiter {
  void on_begun(const BeginResult& got) override {
    ++answers;
    answer = got;
  }
  BeginResult answer;
  int answers = 0;
};

wire::BeginReply begun(uint64_t first, uint64_t base, uint64_t number) {
  wire::BeginReply message;
  message.first_id = TransactionId(first);
  message.snapshot = Snapshot(Version(base));
  message.snapshot_number = number;
  message.catalog_version = 9;
  return message;
}

TEST(BeginBatcher, SharesOneMessageAndOneSnapshot) {
  BeginBatcher batcher;
  std::vector<Waiter> waiters(4);
  batcher.add(&waiters[0], BeginKind::kReadWrite);
  batcher.add(&waiters[1], BeginKind::kReadOnly);
  batcher.add(&waiters[2], BeginKind::kReadWrite);
  const BeginBatch group = batcher.next_batch();
  EXPECT_TRUE(batcher.empty());
  EXPECT_EQ(group.message().read_write, 2u);
  EXPECT_TRUE(group.message().read_only);
  batcher.add(&waiters[3], BeginKind::kReadWrite);  // too late for the batch that was taken (R12, ids at begin)
  group.deliver(begun(100, 99, 5));
  EXPECT_EQ(waiters[0].answer.id, TransactionId(100));
  EXPECT_EQ(waiters[2].answer.id, TransactionId(101));
  EXPECT_EQ(waiters[1].answer.id, TransactionId());
  EXPECT_EQ(waiters[1].answer.snapshot_number, 5u);
  EXPECT_EQ(waiters[0].answer.snapshot_number, 0u);
  EXPECT_EQ(waiters[0].answer.snapshot, waiters[1].answer.snapshot);
  EXPECT_EQ(waiters[0].answer.catalog_version, 9u);
  EXPECT_EQ(waiters[3].answers, 0);
  EXPECT_EQ(batcher.next_batch().message().read_write, 1u);
}

TEST(BeginBatcher, SplitsAtTheLimit) {
  BeginBatcher batcher;
  std::vector<Waiter> waiters(wire::kMaxBegins + 3);
  for (Waiter& waiter : waiters) batcher.add(&waiter, BeginKind::kReadWrite);
  const BeginBatch first = batcher.next_batch();
  EXPECT_EQ(first.read_write.size(), wire::kMaxBegins);
  EXPECT_FALSE(batcher.empty());
  const BeginBatch second = batcher.next_batch();
  EXPECT_EQ(second.read_write.size(), 3u);
  EXPECT_TRUE(batcher.empty());
  EXPECT_EQ(second.read_write[0], &waiters[wire::kMaxBegins]) << "in the order in which they came";
}

TEST(BeginBatcher, RejectsRepliesThatDoNotFitTheRequest) {
  using enum BeginKind;
  for (const auto& [first, base, number, kind] :
       std::vector<std::tuple<uint64_t, uint64_t, uint64_t, BeginKind>>{{0, 0, 0, kReadWrite},
                                                                        {50, 50, 0, kReadWrite},
                                                                        {UINT64_MAX, 5, 0, kReadWrite},
                                                                        {100, 99, 0, kReadOnly},
                                                                        {100, 99, 5, kUpgradable}}) {
    BeginBatcher batcher;
    std::vector<Waiter> waiters(2);
    batcher.add(&waiters[0], BeginKind::kReadWrite);
    batcher.add(&waiters[1], kind);
    batcher.next_batch().deliver(begun(first, base, number));
    EXPECT_EQ(waiters[0].answer.status.code(), StatusCode::kMalformed);
    EXPECT_EQ(waiters[1].answers, 1);
  }
}

TEST(BeginBatcher, FailsEveryWaiter) {
  BeginBatcher batcher;
  std::vector<Waiter> waiters(3);
  for (Waiter& waiter : waiters) {
    batcher.add(&waiter, &waiter == &waiters[1] ? BeginKind::kReadOnly : BeginKind::kUpgradable);
  }
  Waiter upgrade;
  batcher.add_upgrade(&upgrade, 7);
  batcher.next_batch().fail({StatusCode::kUnavailable, "gone"});
  for (const Waiter& waiter : waiters) {
    EXPECT_EQ(waiter.answers, 1);
    EXPECT_EQ(waiter.answer.status.code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ(upgrade.answer.status.code(), StatusCode::kUnavailable);
}

TEST(BeginBatcher, UpgradesGetTheLastIds) {
  BeginBatcher batcher;
  std::vector<Waiter> waiters(5);
  batcher.add_upgrade(&waiters[0], 7);
  batcher.add(&waiters[1], BeginKind::kReadWrite);
  batcher.add(&waiters[2], BeginKind::kUpgradable);
  batcher.add(&waiters[3], BeginKind::kReadOnly);
  batcher.add_upgrade(&waiters[4], 9);
  const BeginBatch group = batcher.next_batch();
  EXPECT_TRUE(batcher.empty());
  EXPECT_EQ(group.message().upgrades, (std::vector<uint64_t>{7, 9}));
  EXPECT_TRUE(group.message().upgradable);
  wire::BeginReply answer = begun(100, 99, 5);
  answer.upgradable_number = 6;
  group.deliver(answer);
  EXPECT_EQ(waiters[1].answer.id, TransactionId(100));
  EXPECT_EQ(waiters[0].answer.id, TransactionId(101));
  EXPECT_EQ(waiters[4].answer.id, TransactionId(102));
  EXPECT_EQ(waiters[2].answer.id, TransactionId());
  EXPECT_EQ(waiters[2].answer.snapshot_number, 6u);
  EXPECT_EQ(waiters[3].answer.snapshot_number, 5u);
  EXPECT_EQ(waiters[4].answer.snapshot_number, 0u);
}

TEST(BeginBatcher, UpgradesCountAsIdsAtTheLimit) {
  BeginBatcher batcher;
  std::vector<Waiter> waiters(wire::kMaxBegins + 3);
  for (size_t i = 0; i < waiters.size(); ++i) {
    if (i < 10) {
      batcher.add(&waiters[i], BeginKind::kReadWrite);
    } else {
      batcher.add_upgrade(&waiters[i], i);
    }
  }
  const BeginBatch first = batcher.next_batch();
  EXPECT_EQ(first.read_write.size() + first.upgrades.size(), wire::kMaxBegins);
  const BeginBatch second = batcher.next_batch();
  EXPECT_EQ(second.upgrades.size(), 3u);
  EXPECT_TRUE(batcher.empty());
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
