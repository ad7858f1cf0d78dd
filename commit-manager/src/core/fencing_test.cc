// Fences while storage nodes die, return, are replaced, and acknowledge late.
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"

namespace loam::commit {
namespace {

using wire::Begin;
using wire::BeginReply;
using wire::CloseSession;
using wire::Fence;
using wire::FenceReply;
using wire::NodeState;
using wire::OpenSession;
using wire::RegisterNode;
using wire::RegisterNodeReply;
using wire::RenewNode;

/// A session with one open transaction that its client gives up; returns its number.
SessionId lose_session(CoreHarness& h) {
  const PeerId peer = h.connect();
  const SessionId id = h.call<wire::OpenSessionReply>(peer, OpenSession{"gives up"})->session;
  EXPECT_TRUE(h.call<BeginReply>(peer, Begin{1, false}).ok());
  EXPECT_TRUE(h.call<wire::CloseSessionReply>(peer, CloseSession{}).ok());
  return id;
}

/// True if the session is fenced everywhere and its transactions are not undone yet.
bool fenced_everywhere(const CoreHarness& h, SessionId session) {
  for (const SessionStatus& status : h.core.sessions()) {
    if (status.id == session) return status.state == SessionStatus::State::kRecovering;
  }
  return false;
}

/// Nodes where recovery may undo what the session has left.
std::vector<NodeId> handed_out(const CoreHarness& h, SessionId session) {
  for (const RecoveryTask& task : h.core.recovery_tasks(SIZE_MAX)) {
    if (task.session == session) return task.nodes;
  }
  return {};
}

TEST(Fencing, SetContainsAllSessionsThatAreNotAlive) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  h.client();
  const PeerId closed = h.client();
  h.client();
  ASSERT_TRUE(h.call<wire::CloseSessionReply>(closed, CloseSession{}).ok());
  EXPECT_TRUE(h.outbox.sent[node].empty()) << "no fence is sent at once for a session that was closed in order";
  const SessionId dead = lose_session(h);
  const auto fence = h.newest<Fence>(node);
  ASSERT_TRUE(fence.ok());
  EXPECT_EQ(fence->fences, (wire::FenceSet{dead, {SessionId(1), SessionId(3)}}));
  const PeerId late = h.connect();
  EXPECT_EQ(h.call<RegisterNodeReply>(late, RegisterNode{"tcp://b:1", "", 1})->fences, fence->fences);
}

/// A client that closes with nothing left.
SessionId close_session(CoreHarness& h) {
  const PeerId peer = h.connect();
  const SessionId id = h.call<wire::OpenSessionReply>(peer, OpenSession{"closes"})->session;
  EXPECT_TRUE(h.call<wire::CloseSessionReply>(peer, CloseSession{}).ok());
  return id;
}

TEST(Fencing, FencesClosedSessionsWithoutALostOne) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  h.run_for(1);
  const SessionId closed = close_session(h);
  close_session(h);
  h.run_for(kClosedUnfencedNs - 1);
  EXPECT_FALSE(h.newest<Fence>(node).ok()) << "not each alone";
  h.post(node, RenewNode{});
  h.run_for(kLease / 16);
  const auto fence = h.newest<Fence>(node);
  ASSERT_TRUE(fence.ok());
  EXPECT_TRUE(fence->fences.fenced(closed));
  EXPECT_EQ(fence->fences.watermark, SessionId(closed.value + 1));
  h.run_for(kLease / 2);
  EXPECT_EQ(h.core.statistics().fences, 1u) << "once is enough";
  EXPECT_EQ(h.core.statistics().sessions_fencing, 0u);
}

TEST(Fencing, FencesManyClosedSessionsAtOnce) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  SessionId last;
  for (size_t i = 1; i < kMaxClosedUnfenced; ++i) last = close_session(h);
  EXPECT_FALSE(h.newest<Fence>(node).ok());
  last = close_session(h);
  const auto fence = h.newest<Fence>(node);
  ASSERT_TRUE(fence.ok());
  EXPECT_EQ(fence->fences, (wire::FenceSet{last, {}}));
  lose_session(h);
  h.run_for(kClosedUnfencedNs + kLease / 16);
  EXPECT_EQ(h.core.statistics().fences, 2u) << "the one for the dead; nothing is left to tell";
}

TEST(Fencing, AnUnreachableNodeCountsWhenItsLeaseIsOver) {
  CoreHarness h;
  const PeerId a = h.node("tcp://a:1");
  const PeerId b = h.node("tcp://b:1");
  h.core.on_peer_disconnected(b);
  const SessionId dead = lose_session(h);
  ASSERT_TRUE(h.acknowledge_fence(a));
  h.run_for(kLease);
  h.post(a, RenewNode{});
  EXPECT_FALSE(fenced_everywhere(h, dead)) << "b may still serve it";
  EXPECT_EQ(h.core.nodes()[1].info.state, NodeState::kLive);
  h.run_for(kLease / 4);
  EXPECT_TRUE(fenced_everywhere(h, dead));
  EXPECT_EQ(h.core.nodes()[1].info.state, NodeState::kUnreachable);
  EXPECT_EQ(h.core.statistics().node_leases_expired, 1u);
  h.core.check_invariants();
}

// What a node answers to it before it has the fence must not be older than its snapshot (R27, index entries).
TEST(Fencing, SnapshotOfAnEndedSessionStaysOpenUntilFencedEverywhere) {
  CoreHarness h;
  const PeerId a = h.node("tcp://a:1");
  const PeerId b = h.node("tcp://b:1");
  const PeerId reader = h.client();
  ASSERT_TRUE(h.call<BeginReply>(reader, Begin{0, true}).ok());
  const PeerId writer = h.client();
  const auto write = [&] {
    const auto begun = h.call<BeginReply>(writer, Begin{1, false});
    ASSERT_TRUE(begun.ok());
    ASSERT_TRUE(h.call<wire::CompleteReply>(writer, wire::Complete{{{begun->first_id, true}}}).ok());
  };
  write();
  const uint64_t before = h.core.statistics().seen_by_all;
  const PeerId dead = h.connect();
  ASSERT_TRUE(h.call<wire::OpenSessionReply>(dead, OpenSession{"gives up"}).ok());
  h.core.on_peer_disconnected(reader);
  for (int i = 0; i < 3 * 16 && h.core.statistics().sessions == 3; ++i) {
    for (const PeerId alive : {a, b}) h.post(alive, RenewNode{});
    for (const PeerId alive : {writer, dead}) h.post(alive, wire::RenewSession{});
    h.run_for(kLease / 16);
  }
  ASSERT_EQ(h.core.statistics().sessions, 2u) << "its lease is over";
  h.outbox.sent[writer].clear();
  write();
  ASSERT_TRUE(h.acknowledge_fence(a));
  EXPECT_EQ(h.core.statistics().seen_by_all, before) << "b may still answer it";
  ASSERT_TRUE(h.acknowledge_fence(b));
  EXPECT_GT(h.core.statistics().seen_by_all, before);
  h.core.check_invariants();
}

TEST(Fencing, BeginsGoOnWithADeadNode) {
  CoreHarness h;
  const PeerId a = h.node("tcp://a:1");
  h.core.on_peer_disconnected(h.node("tcp://b:1"));
  const PeerId client = h.client();
  for (int i = 0; i < 8; ++i) {
    const auto begun = h.call<BeginReply>(client, Begin{1, false});
    ASSERT_TRUE(begun.ok());
    ASSERT_TRUE(h.call<wire::CompleteReply>(client, wire::Complete{{{begun->first_id, true}}}).ok());
    h.post(a, RenewNode{});
    h.run_for(kLease / 2);
  }
  EXPECT_EQ(h.core.statistics().commits, 8u);
  EXPECT_TRUE(h.newest<wire::Publish>(a).ok()) << "and so do publications";
}

TEST(Fencing, ANodeThatComesBackCountsAgainOnlyWhenItAcknowledges) {
  CoreHarness h;
  const PeerId first = h.node("tcp://a:1");
  const SessionId dead = lose_session(h);
  h.core.on_peer_disconnected(first);
  const PeerId second = h.connect();
  const auto back = h.call<RegisterNodeReply>(second, RegisterNode{"tcp://a:1", "", 1, Incarnation(1)});
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->incarnation, Incarnation(1)) << "the same memory goes on";
  EXPECT_FALSE(back->memory_lost);
  EXPECT_TRUE(back->fences.fenced(dead));
  EXPECT_EQ(back->lease_ns, kLease);
  EXPECT_TRUE(handed_out(h, dead).empty()) << "having the set is not enough (R7)";
  ASSERT_TRUE(h.acknowledge_fence(second));
  EXPECT_EQ(handed_out(h, dead), std::vector{NodeId(1)});
}

TEST(Fencing, AnAcknowledgementIsOfOneIncarnation) {
  CoreHarness h;
  const PeerId first = h.node("tcp://a:1");
  h.core.on_peer_disconnected(first);
  const SessionId dead = lose_session(h);
  h.run_for(kLease / 2);
  const PeerId second = h.connect();
  ASSERT_EQ(h.call<RegisterNodeReply>(second, RegisterNode{"tcp://a:1", "", 1})->incarnation, Incarnation(2));
  ASSERT_TRUE(h.acknowledge_fence(second));
  EXPECT_FALSE(fenced_everywhere(h, dead)) << "the incarnation before may still run somewhere, with its lease";
  h.run_for(kLease / 2);
  h.post(second, RenewNode{});
  h.run_for(kLease / 4);
  EXPECT_TRUE(fenced_everywhere(h, dead));
  EXPECT_TRUE(handed_out(h, dead).empty()) << "its intents are lost, and the loss is not accepted";
}

TEST(Fencing, IgnoresAcknowledgementFromBeforeTheRegistration) {
  CoreHarness h;
  const PeerId a = h.node("tcp://a:1");
  const PeerId b = h.node("tcp://b:1");
  const SessionId dead = lose_session(h);
  ASSERT_TRUE(h.acknowledge_fence(a));
  h.core.on_peer_disconnected(a);
  const PeerId back = h.node("tcp://a:1", Incarnation(1));
  ASSERT_TRUE(h.acknowledge_fence(b));
  EXPECT_FALSE(fenced_everywhere(h, dead)) << "a has taken its fences from the registration, and has not said when";
  EXPECT_TRUE(handed_out(h, dead).empty());
  ASSERT_TRUE(h.acknowledge_fence(back));
  EXPECT_TRUE(fenced_everywhere(h, dead));
  EXPECT_EQ(handed_out(h, dead), std::vector{NodeId(1)});
}

TEST(Fencing, AReplacedIncarnationIsFenced) {
  CoreHarness h;
  h.node("tcp://a:1");
  h.node("tcp://a:1");
  const PeerId old = h.connect();
  EXPECT_EQ(h.call<RegisterNodeReply>(old, RegisterNode{"tcp://a:1", "", 1, Incarnation(1)}).error.code(),
            StatusCode::kFenced);
  EXPECT_EQ(h.call<RegisterNodeReply>(old, RegisterNode{"tcp://z:1", "", 1, Incarnation(1)}).error.code(),
            StatusCode::kFenced)
      << "of another cluster, or of a commit manager that has lost its state";
  EXPECT_EQ(h.core.statistics().nodes_unreachable, 0u);
}

TEST(Fencing, ANodeWithoutLeaseHasToRegister) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(h.call<wire::RenewNodeReply>(node, RenewNode{}).ok());
    h.run_for(kLease / 2);
    h.outbox.sent[node].clear();
  }
  EXPECT_FALSE(h.outbox.closed.contains(node));
  h.run_for(kLeaseExpiryNs);
  EXPECT_EQ(h.outbox.closed.at(node), StatusCode::kUnavailable);
  const PeerId back = h.node("tcp://a:1", Incarnation(1));
  EXPECT_EQ(h.core.nodes()[0].info.state, NodeState::kLive);
  EXPECT_FALSE(h.outbox.closed.contains(back));
  h.core.check_invariants();
}

TEST(Fencing, AFenceThatWasNeverSentIsMalformed) {
  CoreHarness h;
  const PeerId a = h.node("tcp://a:1");
  const PeerId b = h.node("tcp://b:1");
  const SessionId dead = lose_session(h);
  const uint64_t sequence = h.newest<Fence>(a).sequence;
  const PeerId again = h.node("tcp://a:1", Incarnation(1));
  h.deliver(again, CoreHarness::encoded(FenceReply{}, sequence));
  EXPECT_EQ(h.outbox.closed.at(again), StatusCode::kMalformed) << "told on an earlier connection, not on this one";
  ASSERT_TRUE(h.acknowledge_fence(b));
  EXPECT_FALSE(fenced_everywhere(h, dead));
  const PeerId client = h.client();
  h.deliver(client, CoreHarness::encoded(FenceReply{}, sequence));
  EXPECT_EQ(h.outbox.closed.at(client), StatusCode::kMalformed);
}

TEST(Fencing, ANodeThatCannotFenceLosesItsConnection) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  const SessionId dead = lose_session(h);
  const uint64_t sequence = h.newest<Fence>(node).sequence;
  h.deliver(node, CoreHarness::encoded(wire::Error{Status(StatusCode::kInternal, "no"), 0}, sequence));
  EXPECT_TRUE(h.outbox.closed.contains(node));
  EXPECT_FALSE(fenced_everywhere(h, dead));
  h.run_for(kLeaseExpiryNs);
  EXPECT_TRUE(fenced_everywhere(h, dead));
  EXPECT_TRUE(handed_out(h, dead).empty()) << "no connected node is left to ask";
}

TEST(Fencing, ALossIsAcceptedByTheNodeThatHasIt) {
  CoreOptions options = CoreHarness::open_at_once();
  options.initial_nodes = 1;
  CoreHarness h(options);
  std::optional<Status> done;
  const auto accept = [&](uint64_t node) {
    done.reset();
    h.core.accept_loss(NodeId(node), [&](Status status) { done = std::move(status); });
    return done.has_value() ? done->code() : StatusCode::kOk;
  };
  const PeerId first = h.node("tcp://a:1");
  EXPECT_EQ(accept(1), StatusCode::kInvalidArgument) << "it has lost nothing";
  EXPECT_EQ(accept(0), StatusCode::kInvalidArgument);
  EXPECT_EQ(accept(2), StatusCode::kInvalidArgument) << "no such node";
  h.core.on_peer_disconnected(first);
  h.run_for(kLeaseExpiryNs);
  EXPECT_EQ(accept(1), StatusCode::kUnavailable);
  EXPECT_NE(done->message().find("start it again first"), std::string_view::npos) << done->to_string();
  const PeerId second = h.node("tcp://a:1");
  EXPECT_EQ(h.core.nodes()[0].info.state, NodeState::kLost);
  EXPECT_TRUE(h.core.nodes()[0].memory_lost);
  accept(1);
  EXPECT_FALSE(done.has_value()) << "the node is told first";
  const auto told = h.newest<wire::AcceptLoss>(second);
  ASSERT_TRUE(told.ok());
  EXPECT_EQ(h.core.nodes()[0].info.state, NodeState::kLost);
  h.deliver(second, CoreHarness::encoded(wire::AcceptLossReply{}, told.sequence));
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->ok()) << done->to_string();
  EXPECT_EQ(h.core.nodes()[0].info.state, NodeState::kLive);
  EXPECT_EQ(h.core.nodes()[0].shards, wire::kVirtualShards);
  h.core.check_invariants();
}

TEST(Fencing, RegistrationReplyConfirmsAcceptedLoss) {
  CoreOptions options = CoreHarness::open_at_once();
  options.initial_nodes = 1;
  CoreHarness h(options);
  h.core.on_peer_disconnected(h.node("tcp://a:1"));
  h.run_for(kLeaseExpiryNs);
  const PeerId second = h.node("tcp://a:1");
  std::optional<Status> done;
  h.core.accept_loss(NodeId(1), [&](Status status) { done = std::move(status); });
  h.core.on_peer_disconnected(second);
  EXPECT_FALSE(done.has_value());
  const PeerId third = h.connect();
  const auto back = h.call<RegisterNodeReply>(third, RegisterNode{"tcp://a:1", "", 1, Incarnation(2)});
  EXPECT_FALSE(back->memory_lost);
  ASSERT_TRUE(done.has_value());
  EXPECT_TRUE(done->ok());
  EXPECT_EQ(h.core.nodes()[0].info.state, NodeState::kLive);
  const PeerId fourth = h.node("tcp://a:1");
  EXPECT_EQ(h.core.nodes()[0].info.state, NodeState::kLost) << "and lost again with the next start";
  h.core.accept_loss(NodeId(1), [&](Status status) { done = std::move(status); });
  h.core.on_peer_disconnected(fourth);
  h.node("tcp://a:1");
  EXPECT_EQ(done->code(), StatusCode::kUnavailable)
      << "the new process has lost its records too, and that loss is not accepted";
  EXPECT_EQ(h.core.nodes()[0].info.state, NodeState::kLost);
  h.core.check_invariants();
}

/// The earlier process may still answer writes of transactions that begin after the acceptance (R9, leases of storage
/// nodes).
TEST(Fencing, ALossIsAcceptedWhenTheLeaseOfTheEarlierProcessIsOver) {
  CoreOptions options = CoreHarness::open_at_once();
  options.initial_nodes = 1;
  CoreHarness h(options);
  h.node("tcp://a:1");
  PeerId second = h.node("tcp://a:1");
  const PeerId client = h.client();
  std::optional<Status> done;
  h.core.accept_loss(NodeId(1), [&](Status status) { done = std::move(status); });
  EXPECT_FALSE(h.newest<wire::AcceptLoss>(second).ok());
  Status again;
  h.core.accept_loss(NodeId(1), [&](Status status) { again = std::move(status); });
  EXPECT_EQ(again.code(), StatusCode::kUnavailable) << "one is waited for";
  uint64_t last = 0;
  const uint64_t asked_ns = h.now_ns;
  for (int i = 0; !h.newest<wire::AcceptLoss>(second).ok(); ++i) {
    ASSERT_LT(h.now_ns, asked_ns + kLeaseExpiryNs);
    if (i == 3) {  // the process connects anew
      h.core.on_peer_disconnected(second);
      second = h.node("tcp://a:1", Incarnation(2));
    }
    h.outbox.sent[client].clear();
    last = h.call<BeginReply>(client, Begin{1, false})->first_id.value;
    h.post(second, RenewNode{});
    h.run_for(kLease / 16);
  }
  EXPECT_GE(h.now_ns, asked_ns + kLease);
  h.outbox.sent[client].clear();
  const wire::Complete commit{{{TransactionId(last), true}}};
  EXPECT_EQ(h.call<wire::CompleteReply>(client, commit)->refused, std::vector{TransactionId(last)})
      << "every id that was given out before the decision";
  EXPECT_FALSE(done.has_value());
  h.core.on_peer_disconnected(second);
  ASSERT_FALSE(h.call<RegisterNodeReply>(h.connect(), RegisterNode{"tcp://a:1", "", 1, Incarnation(2)})->memory_lost);
  ASSERT_TRUE(done.has_value() && done->ok());
  h.core.check_invariants();
}

}  // namespace
}  // namespace loam::commit
