#include "commit-manager/src/core/ended_sessions.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"

namespace loam::commit {
namespace {

/// Two storage nodes with shards, both live, and one session with open transactions. The test plays the core: it sends
/// fences, and passes acknowledgements and recovered nodes on.
class EndedSessionsTest : public ::testing::Test {
 protected:
  static constexpr NodeId kFirst{1}, kSecond{2};
  static constexpr SessionId kSession{7};

  EndedSessionsTest() {
    options_.initial_nodes = 2;
    for (const char* address : {"tcp://a:1", "tcp://b:1"}) {
      const auto registered = catalog_.register_node({address, "", 1 << 20});
      EXPECT_TRUE(registered.ok()) << registered.status().to_string();
      leases_.registered(registered->node, registered->new_start, now_ns_);
    }
    EXPECT_TRUE(catalog_.assign_shards());
  }

  /// Begins `count` transactions of the session and returns the first id.
  TransactionId begin(uint32_t count) {
    Transactions::BeginResult begun;
    EXPECT_TRUE(transactions_.begin(kSession, usage_, {count, false}, now_ns_, begun).ok());
    return begun.first;
  }
  /// Does what the core does after the session has left the open ones. Returns the sequence of the fence.
  uint64_t end_and_fence() {
    ended_.add(kSession, "client", "the test ends it", now_ns_);
    ended_.make_orphans();
    return fence();
  }
  uint64_t fence() {
    ended_.fence_sent(++sequence_, {kSession, {}});
    for (const NodeId node : {kFirst, kSecond}) leases_.fence_sent(node, sequence_);
    ended_.advance(now_ns_);
    return sequence_;
  }
  void acknowledge(NodeId node, uint64_t fence) {
    ASSERT_TRUE(leases_.acknowledge(node, fence).ok());
    ended_.advance(now_ns_);
  }

  CoreOptions options_;
  CatalogStore catalog_{options_};
  NodeLeases leases_{options_.node_lease_ns};
  Transactions transactions_{options_};
  RecordingOutbox outbox_;
  CoreCounts counts_;
  EndedSessions ended_{catalog_, leases_, transactions_, outbox_, counts_};
  SessionUsage usage_;
  uint64_t now_ns_ = 1'000'000'000;
  uint64_t sequence_ = 0;
};

TEST_F(EndedSessionsTest, AnAddedSessionIsFencedAndItsOpenTransactionsAreAborted) {
  const TransactionId first = begin(3);
  EXPECT_FALSE(ended_.orphans_due());
  EXPECT_FALSE(ended_.fence_due());
  ended_.add(kSession, "client", "the test ends it", now_ns_);
  EXPECT_TRUE(ended_.orphans_due());
  EXPECT_TRUE(ended_.fence_due());
  ended_.make_orphans();
  EXPECT_FALSE(ended_.orphans_due());
  const EndedSession& session = ended_.sessions().at(kSession);
  EXPECT_EQ(*session.aborted, (std::vector{first, TransactionId(first.value + 1), TransactionId(first.value + 2)}));
  EXPECT_EQ(session.fence, 0u);
  const uint64_t sequence = fence();
  EXPECT_FALSE(ended_.fence_due());
  EXPECT_EQ(session.fence, sequence);
  EXPECT_EQ(ended_.fencing(), 1u);
  ended_.check_invariants({kSession, {}});
}

TEST_F(EndedSessionsTest, ASessionIsRemovedWhenItIsFencedAndRecoveredEverywhere) {
  begin(1);
  const uint64_t sequence = end_and_fence();
  acknowledge(kFirst, sequence);
  EXPECT_EQ(ended_.fencing(), 1u) << "the second node may still execute its writes";
  acknowledge(kSecond, sequence);
  EXPECT_EQ(ended_.fencing(), 0u);
  ended_.add_recovered_nodes(kSession, {kFirst});
  EXPECT_EQ(ended_.size(), 1u) << "the second node may still hold versions of it";
  EXPECT_EQ(counts_.recovered_aborted, 0u);
  ended_.add_recovered_nodes(kSession, {kSecond});
  EXPECT_EQ(ended_.size(), 0u);
  EXPECT_EQ(counts_.recovered_aborted, 1u);
  EXPECT_EQ(transactions_.base(), Version(transactions_.last_id().value)) << "its ids are finished";
}

TEST_F(EndedSessionsTest, ASessionThatIsRecoveredBeforeItIsFencedEverywhereStays) {
  begin(1);
  const uint64_t sequence = end_and_fence();
  acknowledge(kFirst, sequence);
  ended_.add_recovered_nodes(kSession, {kFirst, kSecond});
  EXPECT_EQ(ended_.size(), 1u);
  acknowledge(kSecond, sequence);
  EXPECT_EQ(ended_.size(), 0u);
}

TEST_F(EndedSessionsTest, ASessionWithoutTransactionsIsRemovedWhenItIsFencedEverywhere) {
  const uint64_t sequence = end_and_fence();
  acknowledge(kFirst, sequence);
  EXPECT_EQ(ended_.size(), 1u);
  acknowledge(kSecond, sequence);
  EXPECT_EQ(ended_.size(), 0u);
  EXPECT_EQ(counts_.recovered_aborted, 0u);
}

TEST_F(EndedSessionsTest, AnAcceptedLossCountsAsRecoveredForSessionsThatHaveEndedAlready) {
  begin(1);
  const uint64_t sequence = end_and_fence();
  ended_.mark_node_recovered(kSecond);
  acknowledge(kFirst, sequence);
  acknowledge(kSecond, sequence);
  ended_.add_recovered_nodes(kSession, {kFirst});
  EXPECT_EQ(ended_.size(), 0u);
}

TEST_F(EndedSessionsTest, ANewerFenceDoesNotDelayTheOneThatIsAwaited) {
  ended_.count_closed(now_ns_);
  const uint64_t first = fence();
  ended_.count_closed(now_ns_);
  const uint64_t second = fence();
  EXPECT_TRUE(ended_.fence_needed_at_registration());
  acknowledge(kFirst, first);
  acknowledge(kSecond, first);
  EXPECT_EQ(ended_.fenced().closed, 1u);
  acknowledge(kFirst, second);
  acknowledge(kSecond, second);
  EXPECT_EQ(ended_.fenced().closed, 2u);
  EXPECT_FALSE(ended_.fence_needed_at_registration());
}

TEST_F(EndedSessionsTest, ClosedSessionsAreFencedTogether) {
  for (size_t i = 1; i < kMaxClosedUnfenced; ++i) ended_.count_closed(now_ns_);
  EXPECT_FALSE(ended_.fence_due());
  ended_.fence_closed_sessions(now_ns_ + kClosedUnfencedNs - 1);
  EXPECT_FALSE(ended_.fence_due());
  ended_.fence_closed_sessions(now_ns_ + kClosedUnfencedNs);
  EXPECT_TRUE(ended_.fence_due()) << "they have waited for long enough";
  fence();
  for (size_t i = 0; i < kMaxClosedUnfenced; ++i) ended_.count_closed(now_ns_);
  EXPECT_TRUE(ended_.fence_due()) << "they are many";
}

TEST_F(EndedSessionsTest, ASweepIsDueAfterOneLostOrManyClosedSessions) {
  constexpr uint64_t kLimit = 3;
  ended_.count_closed(now_ns_);
  ended_.count_closed(now_ns_);
  EXPECT_FALSE(ended_.needs_sweep(kLimit));
  ended_.count_closed(now_ns_);
  EXPECT_TRUE(ended_.needs_sweep(kLimit));
  ended_.swept({{}, 0, 3});
  EXPECT_FALSE(ended_.needs_sweep(kLimit));
  ended_.add(kSession, "client", "the test ends it", now_ns_);
  EXPECT_TRUE(ended_.needs_sweep(kLimit));
  ended_.swept({{}, 1, 3});
  EXPECT_FALSE(ended_.needs_sweep(kLimit));
}

}  // namespace
}  // namespace loam::commit
