// What recovery is given and says, and what clients learn of it (R4, R8, R9).
#include <algorithm>
#include <optional>
#include <vector>

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

  /// A session with `count` transactions that gives up; the ids in `committed` are committed before.
  SessionId lose_session(uint32_t count, const std::vector<uint64_t>& committed = {}) {
    const PeerId peer = h.connect();
    const SessionId session = h.call<wire::SessionOpened>(peer, wire::OpenSession{"gives up"})->session;
    EXPECT_TRUE(h.call<Begun>(peer, Begin{count, false}).ok());
    for (const uint64_t id : committed) {
      EXPECT_TRUE(h.call<Completed>(peer, Complete{{{TransactionId(id), true}}}).ok());
    }
    EXPECT_TRUE(h.call<wire::SessionClosed>(peer, CloseSession{}).ok());
    h.core.check_invariants();
    return session;
  }
  /// The only task that there is.
  RecoveryTask task() {
    const auto tasks = h.core.recovery_tasks(10);
    EXPECT_EQ(tasks.size(), 1u);
    return tasks.empty() ? RecoveryTask{} : tasks[0];
  }
  std::vector<Outcome> ask(PeerId client, std::initializer_list<uint64_t> numbers) {
    return h.call<Outcomes>(client, AskOutcomes{ids(numbers)})->outcomes;
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
  EXPECT_TRUE(h.core.recovery_tasks(10).empty()) << "no record can be there";
  ASSERT_TRUE(h.acknowledge_fence(b));
  RecoveryTask first = task();
  EXPECT_EQ(first.session, session);
  EXPECT_EQ(*first.aborted, ids({1, 3}));
  EXPECT_EQ(first.nodes, std::vector{NodeId(2)});
  EXPECT_TRUE(first.undoes(TransactionId(1)) && first.undoes(TransactionId(3)));
  EXPECT_FALSE(first.undoes(TransactionId(2)) || first.undoes(TransactionId(4)));
  EXPECT_EQ(task().nodes, first.nodes) << "the same again until it is reported";
  h.core.recovered(first, h.now_ns);
  EXPECT_TRUE(h.core.recovery_tasks(10).empty());
  EXPECT_EQ(h.core.statistics().orphaned_open, 2u) << "the rest is at the other node";
  EXPECT_EQ(h.core.statistics().sessions_fencing, 1u);
  ASSERT_TRUE(h.acknowledge_fence(a));
  EXPECT_EQ(task().nodes, std::vector{NodeId(1)});
  h.core.recovered(task(), h.now_ns);
  EXPECT_EQ(h.core.statistics().orphaned_open, 0u);
  EXPECT_EQ(h.core.statistics().recovered_aborted, 2u);
  EXPECT_EQ(h.core.statistics().sessions_recovering, 0u) << "it is gone when nothing is left";
  EXPECT_EQ(h.core.statistics().base, 3u);
  h.core.recovered(first, h.now_ns);  // a repetition
  h.core.check_invariants();
}

TEST_F(RecoveryTest, IdsAreCompleteOnlyWhenEveryNodeIsDoneAndTheSessionIsFencedEverywhere) {
  const SessionId session = lose_session(1);
  for (const PeerId node : {a, b}) ASSERT_TRUE(h.acknowledge_fence(node));
  RecoveryTask both = task();
  EXPECT_EQ(both.nodes, (std::vector{NodeId(1), NodeId(2)}));
  h.core.recovered(both, h.now_ns);
  EXPECT_EQ(h.core.statistics().orphaned_open, 1u) << "the spare node may still answer its reads";
  EXPECT_TRUE(h.core.recovery_tasks(10).empty());
  ASSERT_TRUE(h.acknowledge_fence(spare));
  EXPECT_EQ(h.core.statistics().orphaned_open, 0u);
  EXPECT_TRUE(h.core.sessions().empty());

  const SessionId second = lose_session(1);
  for (const PeerId node : {a, b, spare}) ASSERT_TRUE(h.acknowledge_fence(node));
  const PeerId client = h.client();
  both = task();
  EXPECT_EQ(both.session, second);
  RecoveryTask one = both;
  one.nodes = {NodeId(2)};
  h.core.recovered(one, h.now_ns);
  EXPECT_FALSE(h.call<Begun>(client, Begin{1, false})->snapshot.visible(Version(2)));
  EXPECT_EQ(task().nodes, std::vector{NodeId(1)});
  one.session = session;
  one.nodes = {NodeId(1)};
  h.core.recovered(one, h.now_ns);
  EXPECT_EQ(h.core.statistics().orphaned_open, 1u) << "a report of another session";
  h.core.recovered(task(), h.now_ns);
  EXPECT_TRUE(h.call<Begun>(client, Begin{1, false})->snapshot.visible(Version(2))) << "as complete as others";
  h.core.check_invariants();
}

TEST_F(RecoveryTest, TasksAreGivenOneForEachSession) {
  const SessionId first = lose_session(1);
  const SessionId nothing_open = [&] {
    const PeerId peer = h.connect();
    const SessionId session = h.call<wire::SessionOpened>(peer, wire::OpenSession{"breaks the protocol"})->session;
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
  h.core.peer_lost(a);
  EXPECT_EQ(task().nodes, std::vector{NodeId(2)});
  a = h.node("tcp://a:1", Incarnation(1));
  EXPECT_EQ(task().nodes, std::vector{NodeId(2)});
  ASSERT_TRUE(h.acknowledge_fence(a));
  EXPECT_EQ(task().nodes, (std::vector{NodeId(1), NodeId(2)}));
}

TEST_F(RecoveryTest, AnUnreachableNodeHoldsUpItsPartAlone) {
  lose_session(1);
  h.core.peer_lost(a);
  for (const PeerId node : {b, spare}) ASSERT_TRUE(h.acknowledge_fence(node));
  keep_alive(kOver, {b, spare});
  EXPECT_EQ(h.core.statistics().nodes_unreachable, 1u);
  EXPECT_EQ(task().nodes, std::vector{NodeId(2)});
  h.core.recovered(task(), h.now_ns);
  EXPECT_TRUE(h.core.recovery_tasks(10).empty());
  EXPECT_EQ(h.core.statistics().orphaned_open, 1u);
  a = h.node("tcp://a:1", Incarnation(1));
  ASSERT_TRUE(h.acknowledge_fence(a));
  h.core.recovered(task(), h.now_ns);
  EXPECT_EQ(h.core.statistics().orphaned_open, 0u);
}

TEST_F(RecoveryTest, ANodeThatWasStartedAnewCountsWhenItsLossIsAcceptedAndNotBefore) {
  lose_session(1);
  for (const PeerId node : {a, b, spare}) ASSERT_TRUE(h.acknowledge_fence(node));
  RecoveryTask given = task();
  EXPECT_EQ(given.nodes.size(), 2u);
  a = h.node("tcp://a:1");
  ASSERT_EQ(h.core.nodes()[0].info.state, wire::NodeState::kLost);
  ASSERT_TRUE(h.acknowledge_fence(a));
  h.core.recovered(given, h.now_ns);  // who answered may have been the process that has lost its intents
  EXPECT_EQ(h.core.statistics().orphaned_open, 1u);
  EXPECT_TRUE(h.core.recovery_tasks(10).empty()) << "the other node is done, and this one cannot say anything";
  std::optional<Status> done;
  h.core.accept_loss(NodeId(1), [&](const Status& status) { done = status; });
  EXPECT_EQ(h.core.statistics().orphaned_open, 1u) << "the process before may run on with its lease";
  keep_alive(kOver, {a, b, spare});
  EXPECT_EQ(h.core.statistics().orphaned_open, 0u);
  EXPECT_FALSE(done.has_value());
  h.acknowledge_all(a);
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->ok()) << done->to_string();
  h.core.check_invariants();
}

/// The node serves from the moment when it hears of the acceptance, which is before the commit manager knows that.
TEST_F(RecoveryTest, ASessionThatEndsWhileALossIsBeingAcceptedIsAskedForAtThatNode) {
  h.core.peer_lost(a);
  keep_alive(kOver, {b, spare});
  a = h.node("tcp://a:1");
  h.core.accept_loss(NodeId(1), [](const Status&) {});
  const auto told = h.newest<wire::AcceptLoss>(a);
  ASSERT_TRUE(told.ok());
  const SessionId session = lose_session(1);
  for (const PeerId node : {a, b, spare}) ASSERT_TRUE(h.acknowledge_fence(node));
  h.deliver(a, CoreHarness::encoded(wire::LossAccepted{}, told.sequence));
  EXPECT_EQ(task().session, session);
  EXPECT_EQ(task().nodes, (std::vector{NodeId(1), NodeId(2)}));
}

TEST_F(RecoveryTest, ClientsAskForOutcomes) {
  lose_session(3, {2});
  const PeerId client = h.client();
  ASSERT_TRUE(h.call<Begun>(client, Begin{2, false}).ok());
  ASSERT_TRUE(h.call<Completed>(client, Complete{{{TransactionId(5), true}}}).ok());
  const std::vector<Outcome> known = {Outcome::kAborted,   Outcome::kCommitted, Outcome::kAborted,  Outcome::kPending,
                                      Outcome::kCommitted, Outcome::kForgotten, Outcome::kForgotten};
  EXPECT_EQ(ask(client, {1, 2, 3, 4, 5, 6, 0}), known) << "decided when the session ended, not when it is undone";
  for (const PeerId node : {a, b, spare}) ASSERT_TRUE(h.acknowledge_fence(node));
  h.core.recovered(task(), h.now_ns);
  EXPECT_EQ(ask(client, {1, 2, 3, 4, 5, 6, 0}), known);
  EXPECT_EQ(h.core.outcome(TransactionId(2)), Outcome::kCommitted);
  EXPECT_EQ(h.core.statistics().outcomes_asked, 14u);
}

TEST_F(RecoveryTest, CommitsFromBeforeAnAcceptedLossAreRefusedAndAbortsGoThrough) {
  const PeerId client = h.client();
  ASSERT_TRUE(h.call<Begun>(client, Begin{3, false}).ok());
  h.core.peer_lost(a);
  for (uint64_t passed = 0; passed < kOver; passed += kLease / 8) {
    h.post(client, wire::RenewSession{});
    keep_alive(kLease / 8, {b, spare});
  }
  a = h.node("tcp://a:1");
  h.outbox.sent[client].clear();
  const auto complete = [&](std::initializer_list<Complete::Outcome> outcomes) {
    return h.call<Completed>(client, Complete{outcomes});
  };
  EXPECT_TRUE(complete({{TransactionId(1), true}})->refused.empty()) << "no loss is accepted yet";
  h.core.accept_loss(NodeId(1), [](const Status&) {});
  ASSERT_TRUE(h.call<Begun>(client, Begin{1, false}).ok());
  const auto mixed = complete({{TransactionId(4), true}, {TransactionId(3), true}, {TransactionId(2), false}});
  ASSERT_TRUE(mixed.ok()) << mixed.error.to_string();
  EXPECT_EQ(mixed->refused, ids({3}));
  EXPECT_EQ(ask(client, {1, 2, 3, 4}),
            (std::vector{Outcome::kCommitted, Outcome::kAborted, Outcome::kPending, Outcome::kCommitted}));
  EXPECT_EQ(complete({{TransactionId(3), true}})->refused, ids({3})) << "it stays so";
  EXPECT_EQ(h.core.statistics().open, 1u);
  EXPECT_TRUE(complete({{TransactionId(3), false}})->refused.empty());
  EXPECT_EQ(h.core.statistics().base, 4u);
  h.core.check_invariants();
}

TEST_F(RecoveryTest, ANewRecovererFencesTheOneBefore) {
  const SessionId first = h.core.open_recoverer(h.now_ns);
  EXPECT_TRUE(h.outbox.sent[a].empty()) << "the first recoverer fences no session";
  h.client();
  h.run_for(kLease / 2);
  EXPECT_EQ(h.core.statistics().sessions_lost, 0u);
  const SessionId second = h.core.open_recoverer(h.now_ns);
  EXPECT_GT(second, first);
  const auto fence = h.newest<wire::Fence>(a);
  ASSERT_TRUE(fence.ok());
  EXPECT_TRUE(fence->fences.fenced(first));
  EXPECT_FALSE(fence->fences.fenced(second));
  EXPECT_FALSE(fence->fences.fenced(SessionId(2))) << "the client is alive";
  h.core.check_invariants();
  h.deliver(a, CoreHarness::encoded(wire::FenceInstalled{}, fence.sequence));
  for (const PeerId node : {b, spare}) ASSERT_TRUE(h.acknowledge_fence(node));
  EXPECT_EQ(h.core.sessions().size(), 2u) << "the first one is gone";
}

}  // namespace
}  // namespace loam::commit
