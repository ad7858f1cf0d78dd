#include "storage-node/src/request/session_table.h"

#include <tuple>
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

  /// Attaches the session over the peer of the same number.
  std::shared_ptr<NodeSession> attach_writer(uint64_t session) {
    auto attached = attach(session, session);
    EXPECT_TRUE(table.open_window(*attached).ok());
    return attached;
  }

  /// Appends an intent of this transaction for the session.
  static void write(NodeSession& session, uint64_t transaction) {
    ASSERT_TRUE(session.intents().append(TransactionId(transaction), TableId(1'024), Key(transaction)));
    session.intents().end_batch(complete_up_to(0));
  }
  static Publication complete_up_to(uint64_t id) {
    Publication publication;
    publication.cm_epoch = 1;
    publication.number = 1 + id;
    publication.later = Snapshot(Version(id));
    publication.floor = Version(id);
    return publication;
  }
  /// Runs enough rounds of the sweep to drop all covered intents.
  void sweep(uint64_t complete) {
    for (int i = 0; i < 3; ++i) {
      while (table.sweep(complete_up_to(complete))) {
      }
    }
  }
  /// Returns the sessions whose intents the table keeps.
  std::vector<uint64_t> writers() const {
    std::vector<uint64_t> found;
    for (auto [id, intents] = table.intents_from(SessionId(0)); intents != nullptr;
         std::tie(id, intents) = table.intents_from(SessionId(id.value + 1))) {
      found.push_back(id.value);
    }
    return found;
  }

  std::vector<std::pair<PeerId, StatusCode>> closed;
  IntentPool pool{size_t{1} << 20};
  SessionTable table{pool, [this](PeerId peer, const Status& status) { closed.emplace_back(peer, status.code()); }};
};

TEST_F(SessionTableTest, NewestConnectionWins) {
  const auto session = attach(5, 1);
  EXPECT_TRUE(session->is_current(1));
  EXPECT_EQ(attach(5, 2), session);
  EXPECT_FALSE(session->is_current(1));
  EXPECT_TRUE(session->is_current(2));
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0], std::pair(PeerId{1}, StatusCode::kUnavailable));
  table.detach(session, 1);  // the end of the older connection changes nothing
  EXPECT_TRUE(session->is_current(2));
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
  table.detach(dead, 1);  // the connection ends later
  EXPECT_EQ(table.size(), 2u);
}

TEST_F(SessionTableTest, SessionsBeyondTheLimitAreRefused) {
  for (uint64_t session = 1; session <= kMaxSessions; ++session) attach(session, session);
  const auto refused = table.attach(SessionId(kMaxSessions + 1), 1);
  EXPECT_TRUE(refused.status() == StatusCode::kOverloaded) << refused.status().to_string();
  table.drop_fenced({SessionId(1), {}});
  EXPECT_TRUE(table.attach(SessionId(kMaxSessions + 1), 1).ok());
}

TEST_F(SessionTableTest, WindowsBeyondTheLimitAreRefused) {
  for (uint64_t session = 1; session <= kMaxWindows; ++session) attach_writer(session);
  const auto more = attach(kMaxWindows + 1, 1'000'000);
  EXPECT_TRUE(table.open_window(*more) == StatusCode::kOverloaded);
  EXPECT_FALSE(more->has_window());
  table.drop_fenced({SessionId(1), {}});
  EXPECT_TRUE(table.open_window(*more).ok());
}

TEST_F(SessionTableTest, EvictsTheLongestDisconnectedAndRefusesItsReturn) {
  std::vector<std::shared_ptr<NodeSession>> writers;
  for (uint64_t session = 1; session <= kMaxWindows; ++session) writers.push_back(attach_writer(session));
  for (const uint64_t session : {7u, 3u, 9u}) table.detach(writers[session - 1], session);
  EXPECT_EQ(attach(7, 1'000'007), writers[6]) << "back in time";
  attach_writer(kMaxWindows + 1);
  EXPECT_TRUE(table.attach(SessionId(3), 1'000'003).status() == StatusCode::kUnknownOutcome);
  EXPECT_EQ(attach(9, 1'000'009), writers[8]);
  EXPECT_TRUE(table.open_window(*attach(kMaxWindows + 2, 1'000'000)) == StatusCode::kOverloaded)
      << "every session has a connection";
  EXPECT_TRUE(closed.empty());
}

TEST_F(SessionTableTest, EvictionsEndAtTheirLimit) {
  for (uint64_t session = 1; session <= kMaxWindows + kMaxEvictedSessions; ++session) {
    table.detach(attach_writer(session), session);
  }
  const auto more = attach(1'000'000, 1'000'000);
  EXPECT_TRUE(table.open_window(*more) == StatusCode::kOverloaded);
  table.drop_fenced({SessionId(999'999), {}});
  EXPECT_TRUE(table.open_window(*more).ok());
  EXPECT_EQ(table.size(), 1u);
}

TEST_F(SessionTableTest, IntentsStayUntilTheyAreCovered) {
  const auto fenced = attach_writer(5);
  const auto idle = attach_writer(6);
  const auto without = attach_writer(7);
  write(*fenced, 100);
  write(*idle, 101);
  EXPECT_EQ(table.intents(), 2u);
  table.drop_fenced({SessionId(7), {SessionId(6)}});
  EXPECT_EQ(writers(), (std::vector<uint64_t>{5, 6})) << "session 7 has written nothing";
  sweep(99);
  EXPECT_EQ(table.intents(), 2u);
  sweep(100);
  EXPECT_EQ(writers(), std::vector<uint64_t>{6});
  table.detach(idle, 6);
  sweep(101);
  EXPECT_EQ(table.intents(), 0u);
  EXPECT_EQ(pool.used_bytes(), 0u);
  EXPECT_EQ(writers(), std::vector<uint64_t>{6}) << "it may come back";
  EXPECT_EQ(attach(6, 60), idle);
  table.drop_fenced({SessionId(7), {}});
  EXPECT_TRUE(writers().empty());
}

TEST_F(SessionTableTest, EvictedSessionLeavesItsIntents) {
  {
    const auto longest = attach_writer(1);
    write(*longest, 100);
    table.detach(longest, 1);
  }
  for (uint64_t session = 2; session <= kMaxWindows + 1; ++session) attach_writer(session);
  ASSERT_TRUE(table.attach(SessionId(1), 1'000'001).status() == StatusCode::kUnknownOutcome);
  EXPECT_EQ(table.intents(), 1u);
  table.drop_fenced({SessionId(1), {}});
  EXPECT_EQ(table.intents(), 1u);
  EXPECT_EQ(writers().size(), kMaxWindows + 1);
  sweep(100);
  EXPECT_EQ(table.intents(), 0u);
  EXPECT_EQ(writers().size(), kMaxWindows);
}

TEST_F(SessionTableTest, SweepRoundTakesSeveralCalls) {
  constexpr uint64_t kSessions = 3 * kSweepSessions;
  for (uint64_t session = 1; session <= kSessions; ++session) write(*attach_writer(session), session);
  table.drop_fenced({SessionId(kSessions), {}});
  const Publication all = complete_up_to(kSessions);
  uint64_t steps = 1;
  for (; table.sweep(all); ++steps) EXPECT_GE(table.intents(), kSessions - steps * kSweepSessions);
  EXPECT_EQ(steps, 4u);
  EXPECT_EQ(table.intents(), 0u);
}

TEST_F(SessionTableTest, LongListIsSweptInSeveralCalls) {
  constexpr uint64_t kIntents = 2 * kSweepBlocks * 100;
  IntentPool large(uint64_t{64} << 20);
  SessionTable long_lists{large, [](PeerId, const Status&) {}};
  const auto writer = long_lists.attach(SessionId(5), 1).value();
  ASSERT_TRUE(long_lists.open_window(*writer).ok());
  for (uint64_t i = 0; i < kIntents; ++i) {
    ASSERT_TRUE(writer->intents().append(TransactionId(100), TableId(1'024), Key(i)));
  }
  writer->intents().end_batch(complete_up_to(0));
  long_lists.drop_fenced({SessionId(5), {}});
  EXPECT_TRUE(long_lists.sweep(complete_up_to(100)));
  EXPECT_EQ(long_lists.intents(), kIntents - kSweepBlocks * 168);
  EXPECT_FALSE(long_lists.sweep(complete_up_to(100)));
  EXPECT_EQ(long_lists.intents(), 0u);
}

}  // namespace
}  // namespace loam::storage
