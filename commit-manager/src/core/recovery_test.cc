// What recovery is given and says, and what clients learn of it.
#include <gtest/gtest.h>

#include "commit-manager/src/core/core_harness.h"

namespace loam::commit {
namespace {

using wire::AskOutcomes;
using wire::Begin;
using wire::Begun;
using wire::CloseSession;
using wire::Complete;
using wire::Completed;
using wire::Outcome;
using wire::Outcomes;
using Kind = RecoveryTask::Kind;

std::vector<TransactionId> ids(std::initializer_list<uint64_t> numbers) {
  std::vector<TransactionId> all;
  for (const uint64_t number : numbers) all.emplace_back(number);
  return all;
}

struct RecoveryTest : ::testing::Test {
  /// A session with transactions 1 to `count`, of which `complete` is committed, that gives up.
  void lose_session(uint32_t count, uint64_t complete = 0) {
    const PeerId peer = h.client("gives up");
    ASSERT_TRUE(h.call<Begun>(peer, Begin{count, false}).ok());
    if (complete != 0) {
      ASSERT_TRUE(h.call<Completed>(peer, Complete{{{TransactionId(complete), true}}}).ok());
    }
    ASSERT_TRUE(h.call<wire::SessionClosed>(peer, CloseSession{}).ok());
    h.core.check_invariants();
  }

  static CoreOptions options() {
    CoreOptions options = CoreHarness::open_at_once();
    options.max_outcomes = 4;
    options.outcome_keep_ns = 10 * CoreHarness::kLeaseNs;
    return options;
  }

  CoreHarness h{options()};
};

TEST_F(RecoveryTest, NothingIsHandedOutBeforeEveryNodeHasAcknowledged) {
  const PeerId a = h.node("tcp://a:1");
  const PeerId b = h.node("tcp://b:1");
  lose_session(3, 2);
  EXPECT_TRUE(h.core.recovery_tasks(10).empty());
  ASSERT_TRUE(h.acknowledge_fence(a));
  EXPECT_TRUE(h.core.recovery_tasks(10).empty());
  EXPECT_EQ(h.core.statistics().sessions_fencing, 1u);
  h.core.recovered(TransactionId(1), false, h.now_ns);
  h.core.recovery_cleared(TransactionId(2));
  EXPECT_EQ(h.core.statistics().orphaned_open, 2u) << "what was not handed out is not taken back";
  EXPECT_EQ(h.core.statistics().orphaned_uncleared, 1u);
  ASSERT_TRUE(h.acknowledge_fence(b));
  const auto tasks = h.core.recovery_tasks(10);
  ASSERT_EQ(tasks.size(), 3u);
  EXPECT_EQ(tasks[0].id, TransactionId(1));
  EXPECT_EQ(tasks[0].session, SessionId(1));
  EXPECT_EQ(tasks[0].kind, Kind::kOpen);
  EXPECT_EQ(tasks[1].kind, Kind::kUncleared);
  EXPECT_EQ(h.core.recovery_tasks(2).size(), 2u);
  EXPECT_EQ(h.core.recovery_tasks(10).size(), 3u) << "the same again until they are reported";
  EXPECT_EQ(h.core.statistics().sessions_recovering, 1u);
  h.core.check_invariants();
}

TEST_F(RecoveryTest, RecoveredIdsCompleteLikeOthers) {
  lose_session(3, 2);
  const PeerId client = h.client();
  h.core.recovered(TransactionId(1), true, h.now_ns);
  EXPECT_TRUE(h.call<Begun>(client, Begin{1, false})->snapshot.visible(Version(1)));
  h.core.recovered(TransactionId(1), false, h.now_ns);
  h.core.recovered(TransactionId(2), false, h.now_ns);
  h.core.recovered(TransactionId(3), false, h.now_ns);
  h.core.recovered(TransactionId(4), false, h.now_ns);
  h.core.recovered(TransactionId(77), false, h.now_ns);
  h.core.check_invariants();
  Statistics statistics = h.core.statistics();
  EXPECT_EQ(statistics.recovered_committed, 1u);
  EXPECT_EQ(statistics.recovered_aborted, 1u) << "complete ones and those of open sessions stay as they are (R8)";
  EXPECT_EQ(statistics.open, 1u);
  EXPECT_EQ(statistics.base, 3u);
  EXPECT_TRUE(h.call<Completed>(client, Complete{{{TransactionId(4), true}}}).ok());
  for (const RecoveryTask& task : h.core.recovery_tasks(10)) EXPECT_EQ(task.kind, Kind::kUncleared);
  for (const uint64_t id : {3u, 1u, 2u, 2u, 4u}) h.core.recovery_cleared(TransactionId(id));
  EXPECT_TRUE(h.core.recovery_tasks(10).empty());
  statistics = h.core.statistics();
  EXPECT_EQ(statistics.sessions_recovering, 0u) << "it is gone when nothing is left";
  EXPECT_EQ(statistics.orphaned_uncleared, 0u);
  EXPECT_EQ(statistics.uncleared, 1u) << "an open session's is not the recoverer's";
  EXPECT_EQ(statistics.outcomes_kept, 3u);
  h.core.check_invariants();
}

TEST_F(RecoveryTest, ClientsAskForOutcomes) {
  const PeerId node = h.node("tcp://a:1");
  lose_session(3, 2);
  const PeerId client = h.client();
  ASSERT_TRUE(h.call<Begun>(client, Begin{1, false}).ok());
  const auto ask = [&] { return h.call<Outcomes>(client, AskOutcomes{ids({1, 2, 3, 4, 5, 0})})->outcomes; };
  EXPECT_EQ(ask(), (std::vector<Outcome>{Outcome::kPending, Outcome::kCommitted, Outcome::kPending, Outcome::kPending,
                                         Outcome::kForgotten, Outcome::kForgotten}));
  ASSERT_TRUE(h.acknowledge_fence(node));
  h.core.recovered(TransactionId(1), true, h.now_ns);
  h.core.recovered(TransactionId(3), false, h.now_ns);
  h.core.recovery_cleared(TransactionId(1));
  h.core.recovery_cleared(TransactionId(2));
  const std::vector<Outcome> known = {Outcome::kCommitted, Outcome::kCommitted, Outcome::kAborted,
                                      Outcome::kPending,   Outcome::kForgotten, Outcome::kForgotten};
  EXPECT_EQ(ask(), known);
  EXPECT_EQ(ask(), known) << "being asked does not forget them";
  for (int i = 0; i < 24; ++i) {
    h.post(client, wire::RenewSession{});
    h.run_for(CoreHarness::kLeaseNs / 2);
  }
  h.outbox.sent[client].clear();
  EXPECT_EQ(ask()[0], Outcome::kForgotten) << "kept for a fixed time";
  EXPECT_EQ(ask()[2], Outcome::kAborted) << "its undo record is still there";
}

TEST_F(RecoveryTest, OutcomesAreBounded) {
  lose_session(6);
  for (uint64_t id = 1; id <= 6; ++id) {
    h.core.recovered(TransactionId(id), id % 2 == 0, h.now_ns);
    h.core.recovery_cleared(TransactionId(id));
  }
  EXPECT_EQ(h.core.statistics().outcomes_kept, 4u);
  const PeerId client = h.client();
  const auto told = h.call<Outcomes>(client, AskOutcomes{ids({1, 2, 3, 6})});
  EXPECT_EQ(told->outcomes,
            (std::vector<Outcome>{Outcome::kForgotten, Outcome::kForgotten, Outcome::kAborted, Outcome::kCommitted}));
}

TEST_F(RecoveryTest, ANewRecovererFencesTheOneBefore) {
  const PeerId node = h.node("tcp://a:1");
  const SessionId first = h.core.open_recoverer(h.now_ns);
  EXPECT_TRUE(h.outbox.sent[node].empty()) << "nobody is fenced by the first";
  h.client();
  h.run_for(CoreHarness::kLeaseNs / 2);
  EXPECT_EQ(h.core.statistics().sessions_lost, 0u);
  const SessionId second = h.core.open_recoverer(h.now_ns);
  EXPECT_GT(second, first);
  const auto fence = h.newest<wire::Fence>(node);
  ASSERT_TRUE(fence.ok());
  EXPECT_TRUE(fence->fences.fenced(first));
  EXPECT_FALSE(fence->fences.fenced(second));
  EXPECT_FALSE(fence->fences.fenced(SessionId(2))) << "the client is alive";
  h.core.check_invariants();
  h.deliver(node, CoreHarness::encoded(wire::FenceInstalled{}, fence.sequence));
  EXPECT_EQ(h.core.sessions().size(), 2u) << "the first one is gone";
}

}  // namespace
}  // namespace loam::commit
