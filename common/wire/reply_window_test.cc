#include "common/wire/reply_window.h"

#include <gtest/gtest.h>

namespace loam::wire {
namespace {

using LookupResult = ReplyWindow::LookupResult;

constexpr uint64_t kReplyWindow = kManagerReplyWindow.requests;
constexpr size_t kReplyWindowBytes = kManagerReplyWindow.bytes;

Buffer reply_of(uint64_t sequence, size_t size = 24) { return Buffer(size, static_cast<std::byte>(sequence * 7 + 1)); }

TEST(ReplyWindow, RepeatsTheFirstReply) {
  ReplyWindow window(kManagerReplyWindow);
  Buffer reply;
  EXPECT_EQ(window.look_up(1, reply), LookupResult::kNew);
  EXPECT_EQ(window.look_up(1, reply), LookupResult::kRunning);
  window.store(1, reply_of(1));
  EXPECT_EQ(window.look_up(1, reply), LookupResult::kAnswered);
  EXPECT_EQ(reply, reply_of(1));
}

TEST(ReplyWindow, AcceptsLateRequestsAndEvictsTheOldest) {
  ReplyWindow window(kManagerReplyWindow);
  Buffer reply;
  for (uint64_t s = 2; s <= kReplyWindow + 1; ++s) {
    ASSERT_EQ(window.look_up(s, reply), LookupResult::kNew);
    window.store(s, reply_of(s));
  }
  EXPECT_EQ(window.look_up(kReplyWindow + 2, reply), LookupResult::kNew);  // reuses the slot of 2
  EXPECT_EQ(window.look_up(2, reply), LookupResult::kEvicted);
  EXPECT_EQ(window.look_up(3, reply), LookupResult::kAnswered);
  EXPECT_EQ(window.look_up(2 * kReplyWindow + 4, reply), LookupResult::kNew);  // skips some, and reuses the slot of 4
  EXPECT_EQ(window.look_up(kReplyWindow + 3, reply), LookupResult::kNew) << "a late request that was never seen";
  EXPECT_EQ(window.look_up(4, reply), LookupResult::kEvicted);
}

TEST(ReplyWindow, IsBoundedInBytes) {
  ReplyWindow window(kManagerReplyWindow);
  Buffer reply;
  constexpr size_t kSize = kReplyWindowBytes / 8 - 3;
  for (uint64_t s = 1; s <= 20; ++s) {
    ASSERT_EQ(window.look_up(s, reply), LookupResult::kNew);
    window.store(s, reply_of(s, kSize));
    for (uint64_t old = s > 7 ? s - 7 : 1; old <= s; ++old) {
      ASSERT_EQ(window.look_up(old, reply), LookupResult::kAnswered) << old << " after " << s;
      ASSERT_EQ(reply, reply_of(old, kSize));
    }
  }
  EXPECT_EQ(window.look_up(1, reply), LookupResult::kEvicted);
  ASSERT_EQ(window.look_up(21, reply), LookupResult::kNew);
  window.store(21, reply_of(21, kReplyWindowBytes + 1));
  EXPECT_EQ(window.look_up(21, reply), LookupResult::kEvicted);
}

TEST(ReplyWindow, AnEmptyReplyIsAReply) {
  ReplyWindow window(kManagerReplyWindow);
  Buffer reply;
  ASSERT_EQ(window.look_up(1, reply), LookupResult::kNew);
  window.store(1, Bytes());
  EXPECT_EQ(window.look_up(1, reply), LookupResult::kAnswered);
  EXPECT_TRUE(reply.empty());
}

TEST(ReplyWindow, TheReplyOfAnEvictedRequestIsNotKept) {
  ReplyWindow window(kManagerReplyWindow);
  Buffer reply;
  ASSERT_EQ(window.look_up(1, reply), LookupResult::kNew);
  ASSERT_EQ(window.look_up(1 + kReplyWindow, reply), LookupResult::kNew);
  window.store(1, reply_of(1));
  EXPECT_EQ(window.look_up(1 + kReplyWindow, reply), LookupResult::kRunning);
  EXPECT_EQ(window.look_up(1, reply), LookupResult::kEvicted);
}

// The order of replies in which the ring must hold a reply for the longest time: all other slots are answered after
// it, reused, and answered again.
TEST(ReplyWindow, TheRingHoldsEverySmallReplyOfTheWindow) {
  ReplyBudget budget(0);
  ReplyWindow window(kManagerReplyWindow, &budget);
  constexpr size_t kSmall = kManagerReplyWindow.small_bytes();
  Buffer reply;
  for (uint64_t s = 1; s <= kReplyWindow; ++s) ASSERT_EQ(window.look_up(s, reply), LookupResult::kNew);
  window.store(kReplyWindow, reply_of(kReplyWindow, kSmall));
  for (uint64_t s = 1; s < kReplyWindow; ++s) window.store(s, reply_of(s, kSmall));
  for (uint64_t s = kReplyWindow + 1; s < 2 * kReplyWindow; ++s) {
    ASSERT_EQ(window.look_up(s, reply), LookupResult::kNew);
    window.store(s, reply_of(s, kSmall));
    for (uint64_t old = s - kReplyWindow + 1; old <= s; ++old) {
      ASSERT_EQ(window.look_up(old, reply), LookupResult::kAnswered) << old << " after " << s;
      ASSERT_EQ(reply, reply_of(old, kSmall));
    }
  }
}

TEST(ReplyWindow, LargeRepliesAreChargedToTheBudgetAndReleased) {
  constexpr ReplyWindowLimits kLimits{4, 256, 5'000};
  ReplyBudget budget(8'000);
  Buffer reply;
  {
    ReplyWindow first(kLimits, &budget);
    ASSERT_EQ(first.look_up(1, reply), LookupResult::kNew);
    EXPECT_TRUE(first.reserve(1, 4'000));
    EXPECT_EQ(budget.used(), 4'000u);
    ASSERT_EQ(first.look_up(2, reply), LookupResult::kNew);
    EXPECT_FALSE(first.reserve(2, 1'001)) << "beyond the limit of one session";
    first.store(1, reply_of(1, 3'000));
    EXPECT_EQ(budget.used(), 3'000u) << "bytes that the reply does not need return to the budget";
    EXPECT_TRUE(first.reserve(2, 2'000));
    first.store(2, reply_of(2, kLimits.small_bytes()));
    EXPECT_EQ(budget.used(), 3'000u);
    ReplyWindow second(kLimits, &budget);
    ASSERT_EQ(second.look_up(1, reply), LookupResult::kNew);
    EXPECT_TRUE(second.reserve(1, 5'000));
    EXPECT_EQ(budget.used(), 8'000u);
    ASSERT_EQ(first.look_up(3, reply), LookupResult::kNew);
    EXPECT_FALSE(first.reserve(3, 100)) << "beyond the limit of all sessions";
    first.store(3, reply_of(3, 100));
    EXPECT_EQ(first.look_up(3, reply), LookupResult::kEvicted) << "no room was reserved";
    EXPECT_EQ(first.look_up(1, reply), LookupResult::kAnswered);
    EXPECT_EQ(reply, reply_of(1, 3'000));
    EXPECT_EQ(first.look_up(2, reply), LookupResult::kAnswered);
    EXPECT_EQ(reply, reply_of(2, kLimits.small_bytes()));
    ASSERT_EQ(first.look_up(5, reply), LookupResult::kNew);  // reuses the slot of 1
    EXPECT_EQ(budget.used(), 5'000u);
    EXPECT_EQ(first.look_up(1, reply), LookupResult::kEvicted);
  }
  EXPECT_EQ(budget.used(), 0u) << "the windows are destroyed";
}

TEST(ReplyWindow, AReferenceStandsForAReply) {
  ReplyBudget budget(0);
  ReplyWindow window(kManagerReplyWindow, &budget);
  Buffer reply;
  ASSERT_EQ(window.look_up(1, reply), LookupResult::kNew);
  window.store_reference(1, reply_of(9));
  ASSERT_EQ(window.look_up(2, reply), LookupResult::kNew);
  window.store(2, reply_of(2));
  EXPECT_EQ(window.look_up(1, reply), LookupResult::kAnswered);
  EXPECT_TRUE(window.is_reference(1));
  EXPECT_EQ(reply, reply_of(9));
  EXPECT_EQ(window.look_up(2, reply), LookupResult::kAnswered);
  EXPECT_FALSE(window.is_reference(2));
}

}  // namespace
}  // namespace loam::wire
