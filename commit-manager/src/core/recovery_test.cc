// Recovery tasks, reports of the recoverer, and outcomes for clients (R4, outcomes from the commit log; R8,
// completion by the owner, recovery after the fence; R9, leases of storage nodes).
#include <algorithm>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"

namespace loam::commit {
namespace {

using wire::Begin;
using wire::BeginReply;
using wire::CloseSession;
using wire::Complete;
using wire::CompleteReply;
using wire::GetOutcomes;
using wire::GetOutcomesReply;
using wire::Outcome;

std::vector<TransactionId> ids(std::initializer_list<uint64_t> numbers) {
  std::vector<TransactionId> all;
  for (const uint64_t number : numbers) all.emplace_back(number);
  return all;
}

/// Two storage nodes with shards and one without.
struct RecoveryTest : ::testing::Test {
  static CoreOptions options() {
    CoreOptions options = CoreHarness::open_at_once();
    options.initial_nodes = 2;
    return options;
  }

  void SetUp() override {
    a = h.node("tcp://a:1");
    b = h.node("tcp://b:1");
    h.acknowledge_all(a);
    spare = h.node("tcp://spare:1");
    ASSERT_TRUE(h.core.ready());
    h.run_for(1);
    for (const PeerId node : {a, b, spare}) h.acknowledge_all(node);
  }

  /// A session that begins `count` transactions, commits those in `committed`, and gives up.
  SessionId lose_session(uint32_t count, const std::vector<uint64_t>& committed = {}) {
    const PeerId peer = h.connect();
    const SessionId session = h.call<wire::OpenSessionReply>(peer, wire::OpenSession{"gives up"})->session;
    EXPECT_TRUE(h.call<BeginReply>(peer, Begin{count, false}).ok());
    for (const uint64_t id : committed) {
      EXPECT_TRUE(h.call<CompleteReply>(peer, Complete{{{TransactionId(id), true}}}).ok());
    }
    EXPECT_TRUE(h.call<wire::CloseSessionReply>(peer, CloseSession{}).ok());
    h.core.check_invariants();
    return session;
  }
  /// Returns the only task.
  RecoveryTask task() {
    const auto tasks = h.core.recovery_tasks(10);
    EXPECT_EQ(tasks.size(), 1u);
    return tasks.empty() ? RecoveryTask{} : tasks[0];
  }
  std::vector<Outcome> ask(PeerId client, std::initializer_list<uint64_t> numbers) {
    return h.call<GetOutcomesReply>(client, GetOutcomes{ids(numbers)})->outcomes;
  }
  void keep_alive(uint64_t ns, std::initializer_list<PeerId> nodes) {
    for (uint64_t passed = 0; passed < ns; passed += kLease / 8) {
      for (const PeerId node : nodes) h.post(node, wire::RenewNode{});
      h.run_for(kLease / 8);
    }
  }

  CoreHarness h{options()};
  PeerId a, b, spare;
};

TEST_F(RecoveryTest, ANodesPartIsATaskAsSoonAsThatNodeHasAcknowledged) {
  const SessionId session = lose_session(3, {2});
  EXPECT_TRUE(h.core.recovery_tasks(10).empty());
  ASSERT_TRUE(h.acknowledge_fence(spare));
  EXPECT_TRUE(h.core.recovery_tasks(10).empty()) << "a node without shards has no records";
  ASSERT_TRUE(h.acknowledge_fence(b));
  RecoveryTask first = task();
  EXPECT_EQ(first.session, session);
  EXPECT_EQ(*first.aborted, ids({1, 3}));
  EXPECT_EQ(first.nodes, std::vector{NodeId(2)});
  EXPECT_TRUE(first.must_undo(TransactionId(1)) && first.must_undo(TransactionId(3)));
  EXPECT_FALSE(first.must_undo(TransactionId(2)) || first.must_undo(TransactionId(4)));
  EXPECT_EQ(task().nodes, first.nodes) << "the task is returned again until it is reported";
  h.core.complete_recovery(first, h.now_ns);
  EXPECT_TRUE(h.core.recovery_tasks(10).empty());
  EXPECT_EQ(h.core.statistics().orphaned_transactions, 2u) << "the rest is at the other node";
  EXPECT_EQ(h.core.statistics().sessions_fencing, 1u);
  ASSERT_TRUE(h.acknowledge_fence(a));
  EXPECT_EQ(task().nodes, std::vector{NodeId(1)});
  h.core.complete_recovery(task(), h.now_ns);
  EXPECT_EQ(h.core.statistics().orphaned_transactions, 0u);
  EXPECT_EQ(h.core.statistics().recovered_aborted, 2u);
  EXPECT_EQ(h.core.statistics().sessions_recovering, 0u) << "the session is removed when it is recovered";
  EXPECT_EQ(h.core.statistics().base, 3u);
  h.core.complete_recovery(first, h.now_ns);  // a repetition
  h.core.check_invariants();
}

TEST_F(RecoveryTest, IdsAreCompleteOnlyWhenEveryNodeIsDoneAndTheSessionIsFencedEverywhere) {
  const SessionId session = lose_session(1);
  for (const PeerId node : {a, b}) ASSERT_TRUE(h.acknowledge_fence(node));
  RecoveryTask both = task();
  EXPECT_EQ(both.nodes, (std::vector{NodeId(1), NodeId(2)}));
  h.core.complete_recovery(both, h.now_ns);
  EXPECT_EQ(h.core.statistics().orphaned_transactions, 1u) << "the spare node may still answer its reads";
  EXPECT_TRUE(h.core.recovery_tasks(10).empty());
  ASSERT_TRUE(h.acknowledge_fence(spare));
  EXPECT_EQ(h.core.statistics().orphaned_transactions, 0u);
  EXPECT_TRUE(h.core.sessions().empty());

  const SessionId second = lose_session(1);
  for (const PeerId node : {a, b, spare}) ASSERT_TRUE(h.acknowledge_fence(node));
  const PeerId client = h.client();
  both = task();
  EXPECT_EQ(both.session, second);
  RecoveryTask one = both;
  one.nodes = {NodeId(2)};
  h.core.complete_recovery(one, h.now_ns);
  EXPECT_FALSE(h.call<BeginReply>(client, Begin{1, false})->snapshot.visible(Version(2)));
  EXPECT_EQ(task().nodes, std::vector{NodeId(1)});
  one.session = session;
  one.nodes = {NodeId(1)};
  h.core.complete_recovery(one, h.now_ns);
  EXPECT_EQ(h.core.statistics().orphaned_transactions, 1u) << "a report of another session";
  h.core.complete_recovery(task(), h.now_ns);
  EXPECT_TRUE(h.call<BeginReply>(client, Begin{1, false})->snapshot.visible(Version(2))) << "as complete as others";
  h.core.check_invariants();
}

TEST_F(RecoveryTest, TasksAreGivenOneForEachSession) {
  const SessionId first = lose_session(1);
  const SessionId nothing_open = [&] {
    const PeerId peer = h.connect();
    const SessionId session = h.call<wire::OpenSessionReply>(peer, wire::OpenSession{"breaks the protocol"})->session;
    h.deliver(peer, Buffer{std::byte{200}, std::byte{1}});
    return session;
  }();
  const SessionId second = lose_session(2);
  ASSERT_TRUE(h.acknowledge_fence(a));
  const auto tasks = h.core.recovery_tasks(10);
  ASSERT_EQ(tasks.size(), 2u) << "nothing is left of session " << nothing_open.value;
  EXPECT_EQ(tasks[0].session, first);
  EXPECT_EQ(tasks[1].session, second);
  EXPECT_EQ(*tasks[1].aborted, ids({2, 3}));
  EXPECT_EQ(h.core.recovery_tasks(1).size(), 1u);
  h.core.check_invariants();
}

TEST_F(RecoveryTest, ANodeIsAskedOverTheConnectionOnWhichItHasAcknowledged) {
  lose_session(1);
  for (const PeerId node : {a, b, spare}) ASSERT_TRUE(h.acknowledge_fence(node));
  h.core.on_peer_disconnected(a);
  EXPECT_EQ(task().nodes, std::vector{NodeId(2)});
  a = h.node("tcp://a:1", Incarnation(1));
  EXPECT_EQ(task().nodes, std::vector{NodeId(2)});
  ASSERT_TRUE(h.acknowledge_fence(a));
  EXPECT_EQ(task().nodes, (std::vector{NodeId(1), NodeId(2)}));
}

TEST_F(RecoveryTest, UnreachableNodeDelaysOnlyItsPart) {
  lose_session(1);
  h.core.on_peer_disconnected(a);
  for (const PeerId node : {b, spare}) ASSERT_TRUE(h.acknowledge_fence(node));
  keep_alive(kLeaseExpiryNs, {b, spare});
  EXPECT_EQ(h.core.statistics().nodes_unreachable, 1u);
  EXPECT_EQ(task().nodes, std::vector{NodeId(2)});
  h.core.complete_recovery(task(), h.now_ns);
  EXPECT_TRUE(h.core.recovery_tasks(10).empty());
  EXPECT_EQ(h.core.statistics().orphaned_transactions, 1u);
  a = h.node("tcp://a:1", Incarnation(1));
  ASSERT_TRUE(h.acknowledge_fence(a));
  h.core.complete_recovery(task(), h.now_ns);
  EXPECT_EQ(h.core.statistics().orphaned_transactions, 0u);
}

TEST_F(RecoveryTest, ANodeThatWasStartedAnewCountsWhenItsLossIsAcceptedAndNotBefore) {
  lose_session(1);
  for (const PeerId node : {a, b, spare}) ASSERT_TRUE(h.acknowledge_fence(node));
  RecoveryTask given = task();
  EXPECT_EQ(given.nodes.size(), 2u);
  a = h.node("tcp://a:1");
  ASSERT_EQ(h.core.nodes()[0].info.state, wire::NodeState::kLost);
  ASSERT_TRUE(h.acknowledge_fence(a));
  h.core.complete_recovery(given, h.now_ns);  // who answered may have been the process that has lost its intents
  EXPECT_EQ(h.core.statistics().orphaned_transactions, 1u);
  EXPECT_TRUE(h.core.recovery_tasks(10).empty()) << "the other node is done, and this one cannot say anything";
  std::optional<Status> done;
  h.core.accept_loss(NodeId(1), [&](const Status& status) { done = status; });
  EXPECT_EQ(h.core.statistics().orphaned_transactions, 1u) << "the earlier process may still hold its lease";
  keep_alive(kLeaseExpiryNs, {a, b, spare});
  EXPECT_EQ(h.core.statistics().orphaned_transactions, 0u);
  EXPECT_FALSE(done.has_value());
  h.acknowledge_all(a);
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->ok()) << done->to_string();
  h.core.check_invariants();
}

/// The node serves from the moment when it hears of the acceptance. The commit manager learns that later, so a
/// session that ends in between may have intents there.
TEST_F(RecoveryTest, ASessionThatEndsWhileALossIsBeingAcceptedIsAskedForAtThatNode) {
  h.core.on_peer_disconnected(a);
  keep_alive(kLeaseExpiryNs, {b, spare});
  a = h.node("tcp://a:1");
  h.core.accept_loss(NodeId(1), [](const Status&) {});
  const auto told = h.newest<wire::AcceptLoss>(a);
  ASSERT_TRUE(told.ok());
  const SessionId session = lose_session(1);
  for (const PeerId node : {a, b, spare}) ASSERT_TRUE(h.acknowledge_fence(node));
  h.deliver(a, CoreHarness::encoded(wire::AcceptLossReply{}, told.sequence));
  EXPECT_EQ(task().session, session);
  EXPECT_EQ(task().nodes, (std::vector{NodeId(1), NodeId(2)}));
}

TEST_F(RecoveryTest, ClientsAskForOutcomes) {
  lose_session(3, {2});
  const PeerId client = h.client();
  ASSERT_TRUE(h.call<BeginReply>(client, Begin{2, false}).ok());
  ASSERT_TRUE(h.call<CompleteReply>(client, Complete{{{TransactionId(5), true}}}).ok());
  const std::vector<Outcome> known = {Outcome::kAborted,   Outcome::kCommitted, Outcome::kAborted,  Outcome::kPending,
                                      Outcome::kCommitted, Outcome::kForgotten, Outcome::kForgotten};
  EXPECT_EQ(ask(client, {1, 2, 3, 4, 5, 6, 0}), known) << "decided when the session ended, not when it is undone";
  for (const PeerId node : {a, b, spare}) ASSERT_TRUE(h.acknowledge_fence(node));
  h.core.complete_recovery(task(), h.now_ns);
  EXPECT_EQ(ask(client, {1, 2, 3, 4, 5, 6, 0}), known);
  EXPECT_EQ(h.core.outcome(TransactionId(2)), Outcome::kCommitted);
  EXPECT_EQ(h.core.statistics().outcome_queries, 14u);
}

TEST_F(RecoveryTest, CommitsFromBeforeAnAcceptedLossAreRefusedAndAbortsGoThrough) {
  const PeerId client = h.client();
  ASSERT_TRUE(h.call<BeginReply>(client, Begin{3, false}).ok());
  h.core.on_peer_disconnected(a);
  for (uint64_t passed = 0; passed < kLeaseExpiryNs; passed += kLease / 8) {
    h.post(client, wire::RenewSession{});
    keep_alive(kLease / 8, {b, spare});
  }
  a = h.node("tcp://a:1");
  h.outbox.sent[client].clear();
  const auto complete = [&](std::initializer_list<Complete::Completion> outcomes) {
    return h.call<CompleteReply>(client, Complete{outcomes});
  };
  EXPECT_TRUE(complete({{TransactionId(1), true}})->refused.empty()) << "no loss is accepted yet";
  h.core.accept_loss(NodeId(1), [](const Status&) {});
  ASSERT_TRUE(h.call<BeginReply>(client, Begin{1, false}).ok());
  const auto mixed = complete({{TransactionId(4), true}, {TransactionId(3), true}, {TransactionId(2), false}});
  ASSERT_TRUE(mixed.ok()) << mixed.error.to_string();
  EXPECT_EQ(mixed->refused, ids({3}));
  EXPECT_EQ(ask(client, {1, 2, 3, 4}),
            (std::vector{Outcome::kCommitted, Outcome::kAborted, Outcome::kPending, Outcome::kCommitted}));
  EXPECT_EQ(complete({{TransactionId(3), true}})->refused, ids({3})) << "a later request is refused too";
  EXPECT_EQ(h.core.statistics().open, 1u);
  EXPECT_TRUE(complete({{TransactionId(3), false}})->refused.empty());
  EXPECT_EQ(h.core.statistics().base, 4u);
  h.core.check_invariants();
}

TEST_F(RecoveryTest, ANewRecovererFencesTheOneBefore) {
  const SessionId first = h.core.open_recoverer_session(h.now_ns);
  EXPECT_TRUE(h.outbox.sent[a].empty()) << "the first recoverer fences no session";
  h.client();
  h.run_for(kLease / 2);
  EXPECT_EQ(h.core.statistics().sessions_lost, 0u);
  const SessionId second = h.core.open_recoverer_session(h.now_ns);
  EXPECT_GT(second, first);
  const auto fence = h.newest<wire::Fence>(a);
  ASSERT_TRUE(fence.ok());
  EXPECT_TRUE(fence->fences.fenced(first));
  EXPECT_FALSE(fence->fences.fenced(second));
  EXPECT_FALSE(fence->fences.fenced(SessionId(2))) << "the client is alive";
  h.core.check_invariants();
  h.deliver(a, CoreHarness::encoded(wire::FenceReply{}, fence.sequence));
  for (const PeerId node : {b, spare}) ASSERT_TRUE(h.acknowledge_fence(node));
  EXPECT_EQ(h.core.sessions().size(), 2u) << "the first recoverer's session is recovered";
}

}  // namespace
}  // namespace loam::commit
