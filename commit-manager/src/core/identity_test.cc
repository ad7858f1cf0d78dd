// Which commit manager, storage nodes and clients belong together, and that no older state of a cluster is served
// (R10, cluster identity and incarnations).
#include <gtest/gtest.h>

#include "commit-manager/src/catalog/durable_state.h"
#include "commit-manager/testing/core_harness.h"

namespace loam::commit {
namespace {

using wire::Begin;
using wire::BeginReply;
using wire::HistoryPoint;
using wire::OpenSession;
using wire::OpenSessionReply;
using wire::RegisterNode;
using wire::RegisterNodeReply;

constexpr wire::ClusterId kOtherCluster{1, 2};

/// What a storage node's process keeps between its connections.
struct NodeProcess {
  std::string address;
  Incarnation incarnation{};
  HistoryPoint known{};
  PeerId peer{};
};

struct IdentityTest : ::testing::Test {
  static CoreOptions options() {
    CoreOptions options = CoreHarness::open_at_once();
    options.initial_nodes = 2;
    options.ids_ahead = 100;
    return options;
  }

  /// Starts a commit manager from these bytes.
  void start(const Buffer& state, const CoreOptions& with = options()) {
    const uint64_t now_ns = h ? h->now_ns + 1'000'000 : 1'000'000'000;
    ASSERT_TRUE(Core::check_state(state).ok()) << Core::check_state(state).to_string();
    durable.state = state;
    h = std::make_unique<CoreHarness>(with, &durable, state, log.get());
    h->now_ns = now_ns;
    h->core.on_timer(now_ns);
  }
  void restart() { start(Buffer(durable.state)); }

  ReplyOrError<RegisterNodeReply> enter(NodeProcess& node) {
    node.peer = h->connect();
    auto answer =
        h->call<RegisterNodeReply>(node.peer, RegisterNode{node.address, "", 1, node.incarnation, 0, node.known});
    if (answer.ok()) {
      node.incarnation = answer->incarnation;
      node.known = answer->history.latest();
    }
    return answer;
  }
  StatusCode enter_code(NodeProcess& node) { return enter(node).error.code(); }

  /// The node takes what it is sent up to the next publication.
  void hear(NodeProcess& node) {
    h->run_for(20'000'000);
    const auto publish = h->newest<wire::Publish>(node.peer);
    ASSERT_TRUE(publish.ok());
    node.known.state = std::max(node.known.state, publish->state);
    node.known.log = std::max(node.known.log, publish->log);
  }

  /// A cluster of two nodes with shards.
  void fill() {
    start({});
    ASSERT_TRUE(enter(a).ok());
    ASSERT_TRUE(enter(b).ok());
    for (const NodeProcess* node : {&a, &b}) {  // the shard map
      const auto install = h->newest<wire::InstallTable>(node->peer);
      if (install.ok()) h->deliver(node->peer, CoreHarness::encoded(wire::InstallTableReply{}, install.sequence));
    }
    ASSERT_TRUE(h->core.ready());
  }

  void expect_stale() {
    EXPECT_FALSE(h->core.ready());
    EXPECT_TRUE(h->core.recovery_tasks(10).empty());
    EXPECT_EQ(h->call<OpenSessionReply>(h->connect(), OpenSession{"new"}).error.code(), StatusCode::kWrongCluster);
    const PeerId resumed = h->connect();
    EXPECT_EQ(h->call<OpenSessionReply>(resumed, OpenSession{"old", SessionId(1), 1}).error.code(),
              StatusCode::kWrongCluster);
    EXPECT_NE(h->core.statistics().not_serving.find("does not contain"), std::string::npos)
        << h->core.statistics().not_serving;
    const wire::CreateTable table{"t", TableKind::kTransactional, test_schema()};
    StatusCode created = StatusCode::kOk;
    h->core.create_table(table, [&](const auto& result) { created = result.code(); });
    EXPECT_EQ(created, StatusCode::kWrongCluster);
    StatusCode dropped = StatusCode::kOk;
    h->core.drop_table({"t", {}}, [&](const auto& result) { dropped = result.code(); });
    EXPECT_EQ(dropped, StatusCode::kWrongCluster);
    h->core.check_invariants();
  }

  RecordingStateStore durable;
  std::unique_ptr<RecordingLog> log = std::make_unique<RecordingLog>();
  std::unique_ptr<CoreHarness> h;
  NodeProcess a{"tcp://a:1"};
  NodeProcess b{"tcp://b:1"};
};

TEST_F(IdentityTest, ClusterIdIsMadeOnceAndEachEpochHasARandomNumber) {
  fill();
  const std::string cluster = h->core.statistics().cluster;
  EXPECT_FALSE(cluster.empty());
  EXPECT_EQ(wire::to_string(a.known.cluster), cluster);
  const uint64_t first = a.known.random;
  const Buffer copy = durable.state;
  restart();
  EXPECT_EQ(h->core.statistics().cluster, cluster);
  EXPECT_EQ(enter_code(a), StatusCode::kUnavailable);
  const auto again = enter(b);
  ASSERT_TRUE(again.ok());
  ASSERT_EQ(again->history.epochs.size(), 2u);
  EXPECT_EQ(again->history.epochs[0].random, first);
  EXPECT_EQ(again->history.epochs[1].number, 2u);
  EXPECT_NE(again->history.epochs[1].random, first);
  const uint64_t second = again->history.epochs[1].random;
  start(copy);
  NodeProcess fresh_a{"tcp://a:1"}, fresh_b{"tcp://b:1"};
  ASSERT_EQ(enter_code(fresh_a), StatusCode::kUnavailable);
  ASSERT_TRUE(enter(fresh_b).ok());
  EXPECT_EQ(fresh_b.known.epoch, 2u);
  EXPECT_NE(fresh_b.known.random, second) << "another start from the same state";
  start({});
  EXPECT_NE(h->core.statistics().cluster, cluster) << "another cluster";
}

TEST_F(IdentityTest, NodeOfAnotherClusterIsRefusedAndChangesNothing) {
  fill();
  const Buffer before = durable.state;
  NodeProcess stranger{"tcp://a:1", Incarnation(1), {kOtherCluster, 1, 7, 3}};
  EXPECT_EQ(enter_code(stranger), StatusCode::kWrongCluster);
  EXPECT_EQ(durable.state, before);
  EXPECT_TRUE(h->core.ready()) << "a stray node does not stop a cluster";
  const auto refused = h->core.statistics().refused_nodes;
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].address, "tcp://a:1");
  EXPECT_NE(refused[0].reason.find(wire::to_string(kOtherCluster)), std::string::npos) << refused[0].reason;
  const size_t notes = h->outbox.log_events.size();
  EXPECT_EQ(enter_code(stranger), StatusCode::kWrongCluster);
  EXPECT_EQ(h->outbox.log_events.size(), notes) << "said once";
  ASSERT_TRUE(enter(a).ok());
  EXPECT_TRUE(h->core.statistics().refused_nodes.empty()) << "the node at that address is one of ours";
}

TEST_F(IdentityTest, RefusedNodesAreListedUpToALimit) {
  start({});
  for (size_t i = 0; i <= kMaxRefusedNodes; ++i) {
    NodeProcess stranger{"tcp://n:" + std::to_string(i), Incarnation(1), {kOtherCluster, 1, 7, 3}};
    EXPECT_EQ(enter_code(stranger), StatusCode::kWrongCluster);
  }
  const auto refused = h->core.statistics().refused_nodes;
  ASSERT_EQ(refused.size(), kMaxRefusedNodes);
  EXPECT_EQ(refused.front().address, "tcp://n:1") << "the oldest is forgotten";
}

TEST_F(IdentityTest, ClientOfAnotherClusterIsRefused) {
  fill();
  EXPECT_EQ(h->call<OpenSessionReply>(h->connect(), OpenSession{"c", {}, 0, kOtherCluster}).error.code(),
            StatusCode::kWrongCluster);
  EXPECT_EQ(h->call<OpenSessionReply>(h->connect(), OpenSession{"c", SessionId(1), 1, kOtherCluster}).error.code(),
            StatusCode::kWrongCluster);
  const auto opened = h->call<OpenSessionReply>(h->connect(), OpenSession{"c", {}, 0, a.known.cluster});
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->cluster, a.known.cluster);
}

/// A client sends requests right behind OpenSession. The connection stays open, so that it learns why it was refused.
TEST_F(IdentityTest, RequestsBehindARefusedOpenAreDropped) {
  fill();
  const PeerId peer = h->connect();
  h->post(peer, OpenSession{"c", SessionId(1), 1, kOtherCluster});
  ASSERT_EQ(h->outbox.sent[peer].size(), 1u);
  h->post(peer, Begin{1, false});
  EXPECT_EQ(h->outbox.sent[peer].size(), 1u);
  EXPECT_FALSE(h->outbox.closed.contains(peer));
  const PeerId silent = h->connect();
  h->post(silent, Begin{1, false});
  EXPECT_EQ(h->outbox.closed.at(silent), StatusCode::kMalformed) << "it never asked for a session";
}

TEST_F(IdentityTest, NoNodeLearnsTheEpochBeforeAllHaveReported) {
  fill();
  restart();
  const Buffer before = durable.state;
  EXPECT_EQ(enter_code(a), StatusCode::kUnavailable);
  EXPECT_EQ(a.known.epoch, 1u);
  EXPECT_EQ(h->call<OpenSessionReply>(h->connect(), OpenSession{"early"}).error.code(), StatusCode::kUnavailable);
  StatusCode created = StatusCode::kOk;
  h->core.create_table({"t", TableKind::kTransactional, test_schema()},
                       [&](const auto& result) { created = result.code(); });
  EXPECT_EQ(created, StatusCode::kUnavailable);
  NodeProcess joins{"tcp://c:1"};
  EXPECT_EQ(enter_code(joins), StatusCode::kUnavailable) << "a node that the state does not name waits too";
  EXPECT_NE(h->core.statistics().not_serving.find("storage node 2 at tcp://b:1"), std::string::npos)
      << h->core.statistics().not_serving;
  EXPECT_EQ(durable.state, before) << "no id was given out";
  ASSERT_TRUE(enter(b).ok());
  EXPECT_TRUE(h->core.statistics().not_serving.empty());
  ASSERT_TRUE(enter(a).ok());
  EXPECT_EQ(a.known.epoch, 2u);
  ASSERT_TRUE(enter(joins).ok());
  EXPECT_TRUE(h->call<OpenSessionReply>(h->connect(), OpenSession{"now"}).ok());
}

TEST_F(IdentityTest, EmptyProcessUnderANodesAddressCountsAsItsReport) {
  fill();
  restart();
  NodeProcess anew{"tcp://b:1"};
  EXPECT_EQ(enter_code(anew), StatusCode::kUnavailable) << "the other has not reported";
  ASSERT_TRUE(enter(a).ok());
  const auto registered = enter(anew);
  ASSERT_TRUE(registered.ok());
  EXPECT_TRUE(registered->memory_lost) << "an operator has to accept that";
}

TEST_F(IdentityTest, NodesWithoutShardsAreNotWaitedFor) {
  fill();
  NodeProcess spare{"tcp://c:1"};
  ASSERT_TRUE(enter(spare).ok());
  restart();
  EXPECT_EQ(enter_code(a), StatusCode::kUnavailable);
  EXPECT_TRUE(enter(b).ok());
}

TEST_F(IdentityTest, OlderCopyIsRefusedByWhatANodeReports) {
  fill();
  const Buffer copy = durable.state;
  restart();
  EXPECT_EQ(enter_code(a), StatusCode::kUnavailable);
  ASSERT_TRUE(enter(b).ok());
  ASSERT_TRUE(enter(a).ok());
  start(copy);
  const Buffer before = durable.state;
  EXPECT_EQ(enter_code(a), StatusCode::kWrongCluster) << "it was told epoch 2 by another start";
  EXPECT_EQ(h->core.statistics().refused_nodes.size(), 1u);
  expect_stale();
  NodeProcess anew{"tcp://b:1"};
  EXPECT_EQ(enter_code(anew), StatusCode::kWrongCluster) << "not with other nodes either";
  EXPECT_EQ(durable.state, before) << "no id was given out";
}

/// Nodes whose newest publication is older than the copy cannot tell; the one that was told more can.
TEST_F(IdentityTest, NodeThatWasAwayDoesNotTakeTheEpochOfAnOlderCopy) {
  fill();
  const Buffer copy = durable.state;
  restart();
  NodeProcess away = a;
  EXPECT_EQ(enter_code(a), StatusCode::kUnavailable);
  ASSERT_TRUE(enter(b).ok());
  const Buffer newest = durable.state;
  start(copy);
  EXPECT_EQ(enter_code(away), StatusCode::kUnavailable);
  EXPECT_EQ(enter_code(b), StatusCode::kWrongCluster);
  EXPECT_EQ(enter_code(away), StatusCode::kWrongCluster);
  EXPECT_EQ(away.known.epoch, 1u);
  start(newest);
  EXPECT_EQ(enter_code(away), StatusCode::kUnavailable);
  EXPECT_TRUE(enter(b).ok());
  EXPECT_TRUE(enter(away).ok()) << "the right commit manager has both";
}

TEST_F(IdentityTest, CopyWithinOneEpochIsRefusedByTheNumberOfItsState) {
  fill();
  const Buffer copy = durable.state;
  const PeerId client = h->client();
  for (int i = 0; i < 150; ++i) ASSERT_TRUE(h->call<BeginReply>(client, Begin{1, false}).ok());
  ASSERT_NE(durable.state, copy) << "the bound of ids has risen";
  hear(a);
  start(copy);
  EXPECT_EQ(enter_code(a), StatusCode::kWrongCluster);
  expect_stale();
}

TEST_F(IdentityTest, RenewalTellsTheStateToo) {
  fill();
  const auto renewed = h->call<wire::RenewNodeReply>(b.peer, wire::RenewNode{});
  ASSERT_TRUE(renewed.ok());
  EXPECT_EQ(renewed->state, decode_state(durable.state)->history.state);
}

/// A folder whose commit log is an older copy than its state.
TEST_F(IdentityTest, CommitLogThatEndsBeforeWhatANodeWasToldIsRefused) {
  fill();
  const Buffer before = durable.state;
  const PeerId client = h->client();
  const auto begun = h->call<BeginReply>(client, Begin{2, false});
  ASSERT_TRUE(begun.ok());
  const wire::Complete commits{{{begun->first_id, true}, {TransactionId(begun->first_id.value + 1), true}}};
  ASSERT_TRUE(h->call<wire::CompleteReply>(client, commits).ok());
  ASSERT_EQ(durable.state, before);
  const auto renewed = h->call<wire::RenewNodeReply>(b.peer, wire::RenewNode{});
  ASSERT_TRUE(renewed.ok());
  EXPECT_EQ(renewed->log, 2u);
  b.known.log = renewed->log;
  hear(a);
  EXPECT_EQ(a.known.log, 2u);
  log = std::make_unique<RecordingLog>(CommitLogContents{{{begun->first_id, begun->first_id}}, {}, 1});
  restart();
  EXPECT_EQ(enter_code(a), StatusCode::kWrongCluster);
  expect_stale();
  log = std::make_unique<RecordingLog>(
      CommitLogContents{{{begun->first_id, TransactionId(begun->first_id.value + 1)}}, {}, 2});
  start(before);
  EXPECT_EQ(enter_code(a), StatusCode::kUnavailable);
  EXPECT_TRUE(enter(b).ok()) << "the right commit log has both";
  EXPECT_EQ(b.known.log, 2u);
}

/// A copy from before the cluster had nodes serves new ones, until a node of the cluster reports.
TEST_F(IdentityTest, OlderCopyThatServesStopsAtTheFirstReport) {
  start({});
  const Buffer copy = durable.state;
  ASSERT_TRUE(enter(a).ok());
  ASSERT_TRUE(enter(b).ok());
  CoreOptions one = options();
  one.initial_nodes = 1;
  start(copy, one);
  NodeProcess other{"tcp://c:1"};
  ASSERT_TRUE(enter(other).ok());
  const PeerId client = h->client();
  ASSERT_TRUE(h->call<BeginReply>(client, Begin{1, false}).ok());
  EXPECT_EQ(enter_code(a), StatusCode::kWrongCluster);
  EXPECT_EQ(h->outbox.closed.at(client), StatusCode::kWrongCluster);
  EXPECT_EQ(h->outbox.closed.at(other.peer), StatusCode::kWrongCluster);
  h->outbox.sent.clear();
  h->run_for(CoreHarness::kLeaseNs * 2);
  EXPECT_TRUE(h->outbox.sent.empty()) << "no publication, no fence";
  EXPECT_EQ(enter_code(other), StatusCode::kWrongCluster) << "it keeps what it has";
  expect_stale();
}

TEST_F(IdentityTest, StateOfTheFormatBeforeGetsAClusterId) {
  fill();
  DurableState old = decode_state(durable.state).value();
  old.format = kOldestStateFormat;
  Buffer bytes;
  encode_state(old, bytes);
  start(bytes);
  EXPECT_FALSE(h->core.statistics().cluster.empty());
  EXPECT_EQ(h->core.statistics().epoch, 2u);
  const std::string cluster = h->core.statistics().cluster;
  restart();
  EXPECT_EQ(h->core.statistics().cluster, cluster) << "it is stored";
  NodeProcess fresh_a{"tcp://a:1"}, fresh_b{"tcp://b:1"};
  EXPECT_EQ(enter_code(fresh_a), StatusCode::kUnavailable);
  ASSERT_TRUE(enter(fresh_b).ok());
  EXPECT_EQ(wire::to_string(fresh_b.known.cluster), cluster);
}

TEST_F(IdentityTest, OnlyTheNewestEpochsAreKept) {
  start({});
  for (size_t i = 0; i < wire::kMaxEpochs + 1; ++i) restart();
  const wire::ClusterHistory history = decode_state(durable.state)->history;
  ASSERT_EQ(history.epochs.size(), wire::kMaxEpochs);
  EXPECT_EQ(history.epochs.front().number, 3u);
  EXPECT_EQ(history.epochs.back().number, wire::kMaxEpochs + 2);
}

}  // namespace
}  // namespace loam::commit
