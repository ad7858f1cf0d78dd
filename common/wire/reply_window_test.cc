#include "common/wire/reply_window.h"

#include <gtest/gtest.h>

namespace loam::wire {
namespace {

using Found = ReplyWindow::Found;

constexpr uint64_t kReplyWindow = kManagerReplyWindow.requests;
constexpr size_t kReplyWindowBytes = kManagerReplyWindow.bytes;

Buffer reply_of(uint64_t sequence, size_t size = 24) { return Buffer(size, static_cast<std::byte>(sequence * 7 + 1)); }

TEST(ReplyWindow, RepeatsTheFirstAnswer) {
  ReplyWindow window(kManagerReplyWindow);
  Buffer reply;
  EXPECT_EQ(window.look_up(1, reply), Found::kNew);
  EXPECT_EQ(window.look_up(1, reply), Found::kRunning);
  window.keep(1, reply_of(1));
  EXPECT_EQ(window.look_up(1, reply), Found::kAnswered);
  EXPECT_EQ(reply, reply_of(1));
}

TEST(ReplyWindow, TakesLateNewcomersAndForgetsTheOldest) {
  ReplyWindow window(kManagerReplyWindow);
  Buffer reply;
  for (uint64_t s = 2; s <= kReplyWindow + 1; ++s) {
    ASSERT_EQ(window.look_up(s, reply), Found::kNew);
    window.keep(s, reply_of(s));
  }
  EXPECT_EQ(window.look_up(kReplyWindow + 2, reply), Found::kNew);  // takes the slot of 2
  EXPECT_EQ(window.look_up(2, reply), Found::kForgotten);
  EXPECT_EQ(window.look_up(3, reply), Found::kAnswered);
  EXPECT_EQ(window.look_up(2 * kReplyWindow + 4, reply), Found::kNew);  // jumps ahead, takes the slot of 4
  EXPECT_EQ(window.look_up(kReplyWindow + 3, reply), Found::kNew) << "late, and never seen";
  EXPECT_EQ(window.look_up(4, reply), Found::kForgotten);
}

TEST(ReplyWindow, IsBoundedInBytes) {
  ReplyWindow window(kManagerReplyWindow);
  Buffer reply;
  constexpr size_t kSize = kReplyWindowBytes / 8 - 3;
  for (uint64_t s = 1; s <= 20; ++s) {
    ASSERT_EQ(window.look_up(s, reply), Found::kNew);
    window.keep(s, reply_of(s, kSize));
    for (uint64_t old = s > 7 ? s - 7 : 1; old <= s; ++old) {
      ASSERT_EQ(window.look_up(old, reply), Found::kAnswered) << old << " after " << s;
      ASSERT_EQ(reply, reply_of(old, kSize));
    }
  }
  EXPECT_EQ(window.look_up(1, reply), Found::kForgotten);
  ASSERT_EQ(window.look_up(21, reply), Found::kNew);
  window.keep(21, reply_of(21, kReplyWindowBytes + 1));
  EXPECT_EQ(window.look_up(21, reply), Found::kForgotten);
}

TEST(ReplyWindow, AnEmptyAnswerIsAnAnswer) {
  ReplyWindow window(kManagerReplyWindow);
  Buffer reply;
  ASSERT_EQ(window.look_up(1, reply), Found::kNew);
  window.keep(1, Bytes());
  EXPECT_EQ(window.look_up(1, reply), Found::kAnswered);
  EXPECT_TRUE(reply.empty());
}

TEST(ReplyWindow, AnOvertakenAnswerIsNotKept) {
  ReplyWindow window(kManagerReplyWindow);
  Buffer reply;
  ASSERT_EQ(window.look_up(1, reply), Found::kNew);
  ASSERT_EQ(window.look_up(1 + kReplyWindow, reply), Found::kNew);
  window.keep(1, reply_of(1));
  EXPECT_EQ(window.look_up(1 + kReplyWindow, reply), Found::kRunning);
  EXPECT_EQ(window.look_up(1, reply), Found::kForgotten);
}

// The order that holds an answer for longest: the slots before it are answered late, and then used again.
TEST(ReplyWindow, TheRingHoldsEverySmallAnswerOfTheWindow) {
  ReplyBudget budget(0);
  ReplyWindow window(kManagerReplyWindow, &budget);
  constexpr size_t kSmall = kManagerReplyWindow.small_bytes();
  Buffer reply;
  for (uint64_t s = 1; s <= kReplyWindow; ++s) ASSERT_EQ(window.look_up(s, reply), Found::kNew);
  window.keep(kReplyWindow, reply_of(kReplyWindow, kSmall));
  for (uint64_t s = 1; s < kReplyWindow; ++s) window.keep(s, reply_of(s, kSmall));
  for (uint64_t s = kReplyWindow + 1; s < 2 * kReplyWindow; ++s) {
    ASSERT_EQ(window.look_up(s, reply), Found::kNew);
    window.keep(s, reply_of(s, kSmall));
    for (uint64_t old = s - kReplyWindow + 1; old <= s; ++old) {
      ASSERT_EQ(window.look_up(old, reply), Found::kAnswered) << old << " after " << s;
      ASSERT_EQ(reply, reply_of(old, kSmall));
    }
  }
}

TEST(ReplyWindow, LargeAnswersAreBookedAndGivenBack) {
  constexpr ReplyWindowLimits kLimits{4, 256, 5'000};
  ReplyBudget budget(8'000);
  Buffer reply;
  {
    ReplyWindow first(kLimits, &budget);
    ASSERT_EQ(first.look_up(1, reply), Found::kNew);
    EXPECT_TRUE(first.book(1, 4'000));
    EXPECT_EQ(budget.used(), 4'000u);
    ASSERT_EQ(first.look_up(2, reply), Found::kNew);
    EXPECT_FALSE(first.book(2, 1'001)) << "beyond what one session may have";
    first.keep(1, reply_of(1, 3'000));
    EXPECT_EQ(budget.used(), 3'000u) << "what it does not need goes back";
    EXPECT_TRUE(first.book(2, 2'000));
    first.keep(2, reply_of(2, kLimits.small_bytes()));
    EXPECT_EQ(budget.used(), 3'000u);
    ReplyWindow second(kLimits, &budget);
    ASSERT_EQ(second.look_up(1, reply), Found::kNew);
    EXPECT_TRUE(second.book(1, 5'000));
    EXPECT_EQ(budget.used(), 8'000u);
    ASSERT_EQ(first.look_up(3, reply), Found::kNew);
    EXPECT_FALSE(first.book(3, 100)) << "beyond what all sessions may have";
    first.keep(3, reply_of(3, 100));
    EXPECT_EQ(first.look_up(3, reply), Found::kForgotten) << "no room was booked";
    EXPECT_EQ(first.look_up(1, reply), Found::kAnswered);
    EXPECT_EQ(reply, reply_of(1, 3'000));
    EXPECT_EQ(first.look_up(2, reply), Found::kAnswered);
    EXPECT_EQ(reply, reply_of(2, kLimits.small_bytes()));
    ASSERT_EQ(first.look_up(5, reply), Found::kNew);  // takes the slot of 1
    EXPECT_EQ(budget.used(), 5'000u);
    EXPECT_EQ(first.look_up(1, reply), Found::kForgotten);
  }
  EXPECT_EQ(budget.used(), 0u) << "the windows are gone";
}

TEST(ReplyWindow, AReferenceStandsForAnAnswer) {
  ReplyBudget budget(0);
  ReplyWindow window(kManagerReplyWindow, &budget);
  Buffer reply;
  ASSERT_EQ(window.look_up(1, reply), Found::kNew);
  window.keep_reference(1, reply_of(9));
  ASSERT_EQ(window.look_up(2, reply), Found::kNew);
  window.keep(2, reply_of(2));
  EXPECT_EQ(window.look_up(1, reply), Found::kAnswered);
  EXPECT_TRUE(window.is_reference(1));
  EXPECT_EQ(reply, reply_of(9));
  EXPECT_EQ(window.look_up(2, reply), Found::kAnswered);
  EXPECT_FALSE(window.is_reference(2));
}

}  // namespace
}  // namespace loam::wire
