// The recoverer and storage nodes that do not answer, are unavailable, or return as others.
#include "commit-manager/src/recovery/recovery_node.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "commit-manager/testing/recoverer_fixture.h"
#include "common/testing/eventually.h"

namespace loam::commit {
namespace {

using wire::Opcode;
using wire::RecordId;

// Leases of storage nodes (R9): a node that does not answer delays the undo of the writes on that node only, however
// many sessions wait for it.
TEST_F(RecovererTest, RecoversOtherNodesWhileOneDoesNotAnswer) {
  constexpr uint64_t kSessions = 100;
  uint64_t session = 0;
  for (const ScriptedAction fate :
       {ScriptedAction::kClose, ScriptedAction::kIgnore, ScriptedAction::kUnavailable, ScriptedAction::kNoRecords}) {
    std::vector<RecoveryTask> tasks;
    for (uint64_t i = 0; i < kSessions; ++i) {
      DeadClient dead = client(++session);
      dead.run_transaction(false, false);
      tasks.push_back(task(dead));
    }
    std::atomic<size_t> asked{0};  // relaxed: a count
    nodes_.set_script([&](NodeId node, Opcode) {
      if (node != kSecond) return ScriptedAction::kAnswer;
      asked.fetch_add(1, std::memory_order_relaxed);
      return fate;
    });
    manager_.observed.notes.clear();
    RecovererOptions options;
    options.parallel = 8;
    manager_.start(options);
    for (const RecoveryTask& task : tasks) manager_.add(task);
    for (const RecoveryTask& task : tasks) {
      ASSERT_TRUE(manager_.wait_until_recovered(task.session, {kFirst, kThird}));
      EXPECT_FALSE(manager_.is_recovered(task.session, kSecond));
    }
    EXPECT_TRUE(testing::eventually([&] {
      const auto waiting = manager_.statistics().waiting;
      return waiting.contains(kSecond) && waiting.at(kSecond) >= kSessions - 8;
    }));
    EXPECT_TRUE(noted("storage node 2")) << "operators are told";
    EXPECT_LT(asked.load(std::memory_order_relaxed), 100u) << "it is asked again and again, and by one at a time";
    nodes_.set_script({});
    for (const RecoveryTask& task : tasks) ASSERT_TRUE(manager_.wait_until_recovered(task));
    EXPECT_EQ(nodes_.state(), ScriptedState());
    manager_.stop();
  }
}

// Index entries (R27): the records of a node whose index changes cannot be undone are reverted, and the node is not
// reported.
TEST_F(RecovererTest, RevertsRecordsWhenAnIndexIsUnreachable) {
  // The tree was made by its root at the second node. What it names at the others are leaves of other indexes.
  const TableId index = nodes_.index_at(kSecond);
  nodes_.make_tree(index);
  std::vector<TransactionId> ids;
  for (uint64_t i = 0; i < 100; ++i) {
    ids.emplace_back(1'000 + i);
    nodes_.change_index(SessionId(1), ids.back(), {index, Key(i + 1), false, false, "key " + std::to_string(i)}, 256);
    for (const NodeId node : {kFirst, kSecond, kThird}) nodes_.write(SessionId(1), ids.back(), record_at(node));
  }
  const RecoveryTask all = task_of(SessionId(1), ids, kNodes);
  script([](NodeId node, Opcode opcode) { return node == kSecond && opcode == Opcode::kPlainRead; },
         ScriptedAction::kUnavailable);
  manager_.start();
  manager_.add(all);
  ASSERT_TRUE(testing::eventually([&] {
    const ScriptedState now = nodes_.state();
    return std::ranges::none_of(now.versions, [&](const auto& record) { return nodes_.owner(record.first) == kThird; });
  }));
  EXPECT_TRUE(noted("storage node 2"));
  EXPECT_EQ(manager_.recovered(), 0u) << "each node names changes of the index whose root cannot be read";
  nodes_.set_script({});
  ASSERT_TRUE(manager_.wait_until_recovered(all));
  EXPECT_EQ(nodes_.state(), ScriptedState());
}

TEST_F(RecovererTest, ContinuesWithTheNextIncarnation) {
  DeadClient dead = client(1);
  dead.run_transaction(false);
  script([](NodeId node, Opcode) { return node == kThird; }, ScriptedAction::kClose);
  manager_.start();
  manager_.add(task(dead));
  ASSERT_TRUE(manager_.wait_until_recovered(dead.session(), {kFirst}));
  ASSERT_TRUE(noted("storage node 3"));
  nodes_.set_script({});
  nodes_.restart(kThird, wire::NodeState::kLive);
  manager_.recoverer().set_catalog(nodes_.catalog());
  ASSERT_TRUE(manager_.wait_until_recovered(task(dead)));
  EXPECT_EQ(nodes_.state(), ScriptedState());
}

// The node keeps the replies to the recoverer's earlier requests, so a later request needs a higher sequence (R3,
// idempotent requests within a session), also over another channel to the same incarnation.
TEST_F(RecovererTest, SequencesRiseOverAllChannelsToANode) {
  DeadClient first = client(1);
  first.run_transaction(false);
  DeadClient second = client(2);
  second.run_transaction(false);
  DeadClient third = client(3);
  third.run_transaction(false);
  static_cast<void>(nodes_.drain_executed());
  manager_.start();
  manager_.add(task(first));
  ASSERT_TRUE(manager_.wait_until_recovered(task(first)));

  // The node loses its connection, and for a while a node of another cluster is at its address.
  nodes_.set_script([lost = false](NodeId node, Opcode opcode) mutable {
    if (node != kThird) return ScriptedAction::kAnswer;
    if (opcode == Opcode::kAttach) return ScriptedAction::kWrongCluster;
    return std::exchange(lost, true) ? ScriptedAction::kAnswer : ScriptedAction::kClose;
  });
  manager_.add(task(second));
  ASSERT_TRUE(noted("storage node 3"));
  nodes_.set_script({});
  ASSERT_TRUE(manager_.wait_until_recovered(task(second)));

  wire::Catalog elsewhere = nodes_.catalog();
  ++elsewhere.version;
  std::string& address = elsewhere.nodes.at(2).address;
  address.replace(address.find("127.0.0.1"), std::string_view("127.0.0.1").size(), "localhost");
  manager_.recoverer().set_catalog(elsewhere);
  manager_.add(task(third));
  ASSERT_TRUE(manager_.wait_until_recovered(task(third)));
  EXPECT_EQ(nodes_.state(), ScriptedState());

  std::map<NodeId, uint64_t> highest;
  size_t attached = 0;
  for (const auto& executed : nodes_.drain_executed()) {
    if (executed.opcode == Opcode::kAttach && executed.node == kThird) ++attached;
    if (executed.opcode == Opcode::kAttach) continue;
    EXPECT_GT(executed.sequence, highest[executed.node]) << executed.node.value;
    highest[executed.node] = executed.sequence;
  }
  EXPECT_GE(attached, 3u) << "three channels";
}

// A node without its records names no intent, which proves nothing (R10, cluster identity and incarnations).
TEST_F(RecovererTest, IgnoresIntentsOfANodeWithLostMemory) {
  DeadClient dead = client(1);
  dead.run_transaction(false);
  nodes_.restart(kThird, wire::NodeState::kLost);
  manager_.start();
  manager_.add(task(dead));
  ASSERT_TRUE(noted("storage node 3"));
  EXPECT_FALSE(manager_.is_recovered(dead.session(), kThird));
  nodes_.set_state(kThird, wire::NodeState::kLive);
  manager_.recoverer().set_catalog(nodes_.catalog());
  ASSERT_TRUE(manager_.wait_until_recovered(task(dead)));
}

}  // namespace
}  // namespace loam::commit
