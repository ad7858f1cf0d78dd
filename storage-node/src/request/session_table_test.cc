#include "storage-node/src/request/session_table.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace loam::storage {
namespace {

class SessionTableTest : public ::testing::Test {
 protected:
  std::shared_ptr<NodeSession> attach(uint64_t session, PeerId peer) {
    return table.attach(SessionId(session), peer).value();
  }

  /// Its peer has the same number.
  std::shared_ptr<NodeSession> attach_writer(uint64_t session) {
    auto attached = attach(session, session);
    EXPECT_TRUE(table.open_window(*attached).ok());
    return attached;
  }

  std::vector<std::pair<PeerId, StatusCode>> closed;
  SessionTable table{[this](PeerId peer, const Status& status) { closed.emplace_back(peer, status.code()); }};
};

TEST_F(SessionTableTest, TheNewestConnectionSpeaks) {
  const auto session = attach(5, 1);
  EXPECT_TRUE(session->speaks(1));
  EXPECT_EQ(attach(5, 2), session);
  EXPECT_FALSE(session->speaks(1));
  EXPECT_TRUE(session->speaks(2));
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0], std::pair(PeerId{1}, StatusCode::kUnavailable));
  table.detach(session, 1);  // the older connection ends: nothing changes
  EXPECT_TRUE(session->speaks(2));
}

TEST_F(SessionTableTest, OnlySessionsThatChangedSomethingAreRemembered) {
  const auto reader = attach(5, 1);
  const auto writer = attach(6, 2);
  ASSERT_TRUE(table.open_window(*writer).ok());
  table.detach(reader, 1);
  table.detach(writer, 2);
  EXPECT_EQ(table.size(), 1u);
  EXPECT_EQ(attach(6, 3), writer) << "what it has executed is known";
  EXPECT_TRUE(closed.empty()) << "its former connection was gone";
}

TEST_F(SessionTableTest, FencedSessionsAreForgottenAndClosed) {
  const auto dead = attach(5, 1);
  ASSERT_TRUE(table.open_window(*dead).ok());
  const auto alive = attach(6, 2);
  const auto later = attach(9, 3);
  table.drop_fenced({SessionId(8), {SessionId(6)}});
  EXPECT_EQ(table.size(), 2u);
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0], std::pair(PeerId{1}, StatusCode::kFenced));
  table.detach(dead, 1);  // the connection's end comes later
  EXPECT_EQ(table.size(), 2u);
}

TEST_F(SessionTableTest, MoreSessionsThanTheLimitAreTurnedAway) {
  for (uint64_t session = 1; session <= kMaxSessions; ++session) attach(session, session);
  const auto refused = table.attach(SessionId(kMaxSessions + 1), 1);
  EXPECT_TRUE(refused.status() == StatusCode::kOverloaded) << refused.status().to_string();
  table.drop_fenced({SessionId(1), {}});
  EXPECT_TRUE(table.attach(SessionId(kMaxSessions + 1), 1).ok());
}

TEST_F(SessionTableTest, MoreWindowsThanTheLimitAreTurnedAway) {
  for (uint64_t session = 1; session <= kMaxWindows; ++session) attach_writer(session);
  const auto more = attach(kMaxWindows + 1, 1'000'000);
  EXPECT_TRUE(table.open_window(*more) == StatusCode::kOverloaded);
  EXPECT_FALSE(more->windowed());
  table.drop_fenced({SessionId(1), {}});
  EXPECT_TRUE(table.open_window(*more).ok());
}

TEST_F(SessionTableTest, WhoHasBeenAwayForLongestMakesRoomAndIsNotLetInAgain) {
  std::vector<std::shared_ptr<NodeSession>> writers;
  for (uint64_t session = 1; session <= kMaxWindows; ++session) writers.push_back(attach_writer(session));
  for (const uint64_t session : {7u, 3u, 9u}) table.detach(writers[session - 1], session);
  EXPECT_EQ(attach(7, 1'000'007), writers[6]) << "back in time";
  attach_writer(kMaxWindows + 1);
  EXPECT_TRUE(table.attach(SessionId(3), 1'000'003).status() == StatusCode::kUnknownOutcome);
  EXPECT_EQ(attach(9, 1'000'009), writers[8]);
  EXPECT_TRUE(table.open_window(*attach(kMaxWindows + 2, 1'000'000)) == StatusCode::kOverloaded) << "nobody is away";
  EXPECT_TRUE(closed.empty());
}

TEST_F(SessionTableTest, SessionsThatWereGivenUpAreRememberedUpToALimit) {
  for (uint64_t session = 1; session <= kMaxWindows + kMaxGivenUp; ++session) {
    table.detach(attach_writer(session), session);
  }
  const auto more = attach(1'000'000, 1'000'000);
  EXPECT_TRUE(table.open_window(*more) == StatusCode::kOverloaded);
  table.drop_fenced({SessionId(999'999), {}});
  EXPECT_TRUE(table.open_window(*more).ok());
  EXPECT_EQ(table.size(), 1u);
}

}  // namespace
}  // namespace loam::storage
