// Sessions that are fenced everywhere, and the time at which a sweep of the indexes is due [R31, structure changes of
// the Bd-tree].
#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using wire::CloseSession;
using wire::OpenSessionReply;

struct SweepTest : ::testing::Test {
  void SetUp() override {
    nodes = {h->node("tcp://a:1"), h->node("tcp://b:1")};
    client = h->client("alive");
    h->run_for(1);
  }

  void make_index() {
    const TableId table = create({"accounts", TableKind::kTransactional, test_schema(), {}});
    wire::CreateTable index{"by_balance", TableKind::kNonTransactional, wire::index_node_schema(), {}};
    index.index.table = table;
    index.index.parts = {{1, false}};
    create(index);
  }
  TableId create(const wire::CreateTable& request) {
    h->post(client, request);
    for (const PeerId node : nodes) {
      const auto install = h->newest<wire::InstallTable>(node);
      EXPECT_TRUE(install.ok());
      h->deliver(node, CoreHarness::encoded(wire::InstallTableReply{}, install.sequence));
    }
    const auto created = h->newest<wire::CreateTableReply>(client);
    EXPECT_TRUE(created.ok());
    return created.ok() ? created->table.id : TableId();
  }
  /// Ends a session: it gives up with an open transaction, or closes in order.
  SessionId end_session(bool lost) {
    const PeerId peer = h->connect();
    const SessionId id = h->call<OpenSessionReply>(peer, wire::OpenSession{"ends"})->session;
    if (lost) static_cast<void>(h->call<wire::BeginReply>(peer, wire::Begin{1, false}));
    EXPECT_TRUE(h->call<wire::CloseSessionReply>(peer, CloseSession{}).ok());
    return id;
  }
  bool acknowledge_all() {
    bool all = true;
    for (const PeerId node : nodes) all &= h->acknowledge_fence(node);
    return all;
  }

  RecordingStateStore durable;
  std::unique_ptr<CoreHarness> h = std::make_unique<CoreHarness>(CoreHarness::open_at_once(), &durable);
  std::vector<PeerId> nodes;
  PeerId client;
};

TEST_F(SweepTest, IsDueWhenEveryNodeRefusesALostSession) {
  make_index();
  EXPECT_EQ(h->core.sweep_due(), nullptr);
  const SessionId dead = end_session(true);
  EXPECT_EQ(h->core.sweep_due(), nullptr) << "its writes may still be under way";
  EXPECT_TRUE(h->core.statistics().sweep_due) << "a sweep will be due";
  ASSERT_TRUE(h->acknowledge_fence(nodes[0]));
  EXPECT_EQ(h->core.sweep_due(), nullptr) << "at the other node";
  ASSERT_TRUE(h->acknowledge_fence(nodes[1]));
  const FencedSessions* const due = h->core.sweep_due();
  ASSERT_NE(due, nullptr);
  EXPECT_TRUE(due->set.fenced(dead));
  EXPECT_FALSE(due->set.fenced(SessionId(1))) << "the one that is alive";
  EXPECT_FALSE(due->set.fenced(SessionId(dead.value + 1))) << "the next one";
  EXPECT_TRUE(h->core.statistics().sweep_due);
  h->core.complete_sweep(*due);
  EXPECT_EQ(h->core.sweep_due(), nullptr);
  EXPECT_FALSE(h->core.statistics().sweep_due);
}

TEST_F(SweepTest, ASessionThatIsFencedDuringASweepIsForTheNextOne) {
  make_index();
  end_session(true);
  ASSERT_TRUE(acknowledge_all());
  const FencedSessions begun = *h->core.sweep_due();
  const SessionId later = end_session(true);
  ASSERT_TRUE(acknowledge_all());
  EXPECT_FALSE(begun.set.fenced(later));
  h->core.complete_sweep(begun);
  ASSERT_NE(h->core.sweep_due(), nullptr);
  EXPECT_TRUE(h->core.sweep_due()->set.fenced(later));
}

// Sessions end faster than one node acknowledges fences. The fences that it has acknowledged count all the same.
TEST_F(SweepTest, DoesNotWaitForTheNewestFence) {
  make_index();
  const SessionId first = end_session(true);
  const auto slow = h->newest<wire::Fence>(nodes[1]);
  ASSERT_TRUE(slow.ok() && h->acknowledge_fence(nodes[0]));
  const SessionId second = end_session(true);
  ASSERT_TRUE(h->acknowledge_fence(nodes[0]));
  h->deliver(nodes[1], CoreHarness::encoded(wire::FenceReply{}, slow.sequence));
  ASSERT_NE(h->core.sweep_due(), nullptr);
  EXPECT_TRUE(h->core.sweep_due()->set.fenced(first));
  EXPECT_FALSE(h->core.sweep_due()->set.fenced(second));
  ASSERT_TRUE(h->acknowledge_fence(nodes[1]));
  EXPECT_TRUE(h->core.sweep_due()->set.fenced(second));
}

TEST_F(SweepTest, IsDueAfterManyClosedSessions) {
  make_index();
  for (uint64_t i = 0; i < kSweepAfterClosedSessions; ++i) {
    EXPECT_EQ(h->core.sweep_due(), nullptr);
    end_session(false);
    if (i % kMaxClosedUnfenced == kMaxClosedUnfenced - 1) acknowledge_all();
  }
  ASSERT_NE(h->core.sweep_due(), nullptr);
  h->core.complete_sweep(*h->core.sweep_due());
  EXPECT_EQ(h->core.sweep_due(), nullptr);
}

TEST_F(SweepTest, IsNotDueWithoutIndexes) {
  end_session(true);
  ASSERT_TRUE(acknowledge_all());
  EXPECT_EQ(h->core.sweep_due(), nullptr);
  make_index();
  EXPECT_NE(h->core.sweep_due(), nullptr);
}

// A restart fences the sessions that were alive when the commit manager died. They may have left index nodes outside
// of the trees, so a sweep is due.
TEST_F(SweepTest, IsDueAfterARestart) {
  make_index();
  const Buffer state = durable.state;
  std::vector<Incarnation> before;
  for (const NodeStatus& node : h->core.nodes()) before.push_back(node.info.incarnation);
  const uint64_t now_ns = h->now_ns + 1;
  h = std::make_unique<CoreHarness>(CoreHarness::open_at_once(), &durable, state);
  h->now_ns = now_ns;
  nodes = {h->node("tcp://a:1", before[0]), h->node("tcp://b:1", before[1])};
  ASSERT_TRUE(acknowledge_all());
  h->run_for(CoreHarness::kLeaseNs / 4);
  const auto tasks = h->core.recovery_tasks(10);
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(h->core.sweep_due(), nullptr) << "recovery first";
  h->core.complete_recovery(tasks[0], h->now_ns);
  ASSERT_NE(h->core.sweep_due(), nullptr);
  EXPECT_TRUE(h->core.sweep_due()->set.fenced(SessionId(1)));
  h->client();
  const SessionId alive(h->core.sessions().back().id);
  EXPECT_FALSE(h->core.sweep_due()->set.fenced(alive));
}

}  // namespace
}  // namespace loam::commit
