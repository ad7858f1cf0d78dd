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

}  // namespace
}  // namespace loam::wire
