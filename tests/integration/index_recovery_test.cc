// Recovery of indexes in a whole cluster over TCP, after deaths of clients and losses of nodes: orphan nodes are
// removed, merges are finished, and indexes that may lack entries are reported as damaged.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <loam/bdtree/index_entries.h>
#include <loam/bdtree/tree.h>
#include <loam/client/client.h>
#include <loam/commit/manager.h>
#include <loam/storage/node.h>

#include "bdtree/src/node/node.h"
#include "client-lib/src/index/index_keys.h"
#include "client-lib/testing/cluster_test_fixture.h"
#include "client-lib/testing/open_tree_store.h"
#include "common/testing/eventually.h"
#include "tests/integration/dead_test_client.h"

namespace loam::client {
namespace {

using bdtree::EntryView;
using bdtree::kRoot;
using bdtree::NodeHeader;
using bdtree::TreeNodeId;

class IndexRecoveryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    data_ = std::filesystem::temp_directory_path() / ("loam-index-recovery-test-" + std::to_string(::getpid()));
    std::filesystem::remove_all(data_);
    start_manager("tcp://127.0.0.1:0");
    for (int i = 0; i < 2; ++i) {
      nodes_.push_back(storage::StorageNode::start(small_node(manager_->address())).value());
    }
    client_ = Client::connect(manager_->address()).value();
    const Schema schema = Schema::make({{"name", FieldType::kText, false}}).value();
    const Table table = client_->create_table("people", TableKind::kTransactional, schema).value();
    index_.emplace(client_->create_index("by_name", table, {{"name"}}).value());
    keys_.emplace(IndexKeys::make(*index_).value());
    store_ = tree_store_of(*client_, *index_);
  }
  void TearDown() override {
    store_.reset();
    client_.reset();
    for (auto& node : nodes_) node->stop();
    manager_->stop();
    std::filesystem::remove_all(data_);
  }

  void start_manager(const std::string& listen) {
    commit::ManagerOptions manager;
    manager.listen = listen;
    manager.admin_listen = "";
    manager.data = data_;
    manager.core.initial_nodes = 2;
    manager.core.client_lease_ns = 500'000'000;
    manager.sweep_interval_ns = 10'000'000;
    manager_ = commit::CommitManager::start(manager).value();
  }
  void restart_manager() {
    const std::string address = manager_->address();
    manager_->stop();
    manager_.reset();
    start_manager(address);
  }

  /// A storage node dies with its records and returns empty, and an operator accepts the loss.
  void lose(size_t which) {
    const std::string address = nodes_[which]->address();
    nodes_[which]->stop();
    nodes_[which].reset();
    storage::NodeOptions node = small_node(manager_->address());
    node.listen = address;
    nodes_[which] = storage::StorageNode::start(node).value();
    std::atomic<bool> done{false};
    const auto accepted = [&] {
      manager_->post([&](commit::Core& core) {
        for (const commit::NodeStatus& status : core.nodes()) {
          if (status.memory_lost)
            core.accept_loss(status.info.id, [&](const Status& loss_status) {
              done.store(loss_status.ok(), std::memory_order_release);
            });
        }
      });
      return done.load(std::memory_order_acquire);  // acquire, pairs with the release after accept_loss()
    };
    ASSERT_TRUE(testing::eventually(accepted));
  }

  TreeNodeId new_node() {
    return client_->run([&] { return store_->new_id(); }).value();
  }
  /// Writes a tree node as a client would.
  void put(TreeNodeId id, const NodeHeader& header, const std::vector<EntryView>& entries) {
    const Buffer base = bdtree::encode_base(header, entries);
    const Status written = client_->run([&] {
      const auto there = std::move(store_->get(std::span(&id, 1))[0]);
      return (there.ok() ? store_->replace(id, there->version, base, {}, {}, {}) : store_->insert(id, base, {}, {}))
          .status();
    });
    ASSERT_TRUE(written.ok()) << written.to_string();
  }
  static Buffer row_of(Bytes base) {
    RowBuilder builder(wire::index_node_schema());
    EXPECT_TRUE(builder.set_blob(wire::IndexNodeFields::kBase, base).ok());
    EXPECT_TRUE(builder.set_blob(wire::IndexNodeFields::kDelta, {}).ok());
    const Bytes row = builder.finish().value();
    return {row.begin(), row.end()};
  }
  bool exists(TreeNodeId id) {
    const auto found = client_->run([&] { return std::move(store_->get(std::span(&id, 1))[0]); });
    EXPECT_TRUE(found.ok() || found.code() == StatusCode::kNotFound) << found.status().to_string();
    return found.ok();
  }
  std::string key(const std::string& name, uint64_t record) {
    RowBuilder builder(keys_->fields().schema());
    EXPECT_TRUE(builder.set(0, Value::text(name)).ok());
    const Bytes row = builder.finish().value();
    return keys_->key_of(RowView(keys_->fields().schema(), row), Key(record)).value().bytes;
  }

  std::filesystem::path data_;
  std::unique_ptr<commit::CommitManager> manager_;
  std::vector<std::unique_ptr<storage::StorageNode>> nodes_;
  std::unique_ptr<Client> client_;
  std::optional<Index> index_;
  std::optional<IndexKeys> keys_;
  std::shared_ptr<TreeStore> store_;
};

TEST_F(IndexRecoveryTest, SweepsUnlinkedNodesOfDeadClients) {
  ASSERT_TRUE(
      client_
          ->run_transaction([&](Transaction& tx) { return tx.insert(index_->table(), Key(1), {Value::text("Ada")}); })
          .ok());
  const TreeNodeId of_dead = new_node();
  const TreeNodeId of_living = new_node();
  const uint64_t living = client_->run([&] { return store_->owner(); });
  {
    DeadTestClient dead(manager_->address());
    put(of_dead, {.low = "m", .owner = dead.session().value}, {});
    put(of_living, {.low = "m", .owner = living}, {});
    dead.begin();
  }
  EXPECT_TRUE(testing::eventually([&] { return !exists(of_dead); }));
  EXPECT_TRUE(testing::eventually([&] { return !manager_->statistics().core.sweep_due; }));
  EXPECT_TRUE(exists(of_living)) << "a live client may still link it into the tree";
  EXPECT_EQ(manager_->statistics().recovery.swept_nodes, 1u);
  EXPECT_GE(manager_->statistics().recovery.sweeps, 1u);
  const auto found = client_->begin({.read_only = true, .retry = {}})->range(*index_, {});
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->size(), 1u);
}

TEST_F(IndexRecoveryTest, LossMarksIndexesDamagedForLaterTransactions) {
  const Table& people = index_->table();
  const auto insert = [&](uint64_t record, const std::string& name) {
    return client_->run_transaction(
        [&](Transaction& tx) { return tx.insert(people, Key(record), {Value::text(name)}); });
  };
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(insert(i, "name " + std::to_string(i)).ok());
  ASSERT_TRUE(client_->begin({.read_only = true, .retry = {}})->range(*index_, {}).ok());
  lose(1);
  Transaction later = client_->begin({.read_only = true, .retry = {}}).value();
  const auto refused = later.range(*index_, {});
  EXPECT_EQ(refused.code(), StatusCode::kMalformed);
  EXPECT_NE(refused.status().message().find("drop the index and create it again"), std::string::npos)
      << refused.status().to_string();
  EXPECT_EQ(later.update(*index_, {}, {{"name", Value::text("all the same")}}).code(), StatusCode::kInvalidArgument)
      << "the check for read-only transactions comes first";
  // The index is not unique, so its table accepts writes.
  EXPECT_TRUE(testing::eventually([&] { return insert(100, "of later").ok(); }));
  const Index listed = client_->list_indexes()->at(0);
  EXPECT_TRUE(listed.damaged() && !listed.ready());
  EXPECT_EQ(client_->create_index("by_name", people, {{"name"}}).code(), StatusCode::kMalformed);
  ASSERT_TRUE(client_->drop_index("by_name").ok());
  const auto again = client_->create_index("by_name", people, {{"name"}});
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  const auto found =
      client_->begin({.read_only = true, .retry = {}})->range(*again, IndexRange::equal({Value::text("of later")}));
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->size(), 1u);
}

TEST_F(IndexRecoveryTest, ADamagedUniqueIndexRefusesWhatItCannotCheck) {
  const Table& people = index_->table();
  ASSERT_TRUE(client_->drop_index("by_name").ok());
  ASSERT_TRUE(client_->create_index("one_name", people, {{"name"}}, {.unique = true, .on_progress = {}}).ok());
  lose(0);
  EXPECT_EQ(
      client_->run_transaction([&](Transaction& tx) { return tx.insert(people, Key(1), {Value::text("Ada")}); }).code(),
      StatusCode::kMalformed);
  ASSERT_TRUE(client_->drop_index("one_name").ok());
  ASSERT_TRUE(client_->create_index("one_name", people, {{"name"}}, {.unique = true, .on_progress = {}}).ok());
  const auto insert = [&](uint64_t record) {
    return client_->run_transaction(
        [&](Transaction& tx) { return tx.insert(people, Key(record), {Value::text("Ada")}); });
  };
  EXPECT_TRUE(insert(1).ok());
  EXPECT_EQ(insert(2).code(), StatusCode::kAlreadyExists);
}

TEST_F(IndexRecoveryTest, ATreeWithoutItsCounterHasNoNumbers) {
  const Table empty = client_->create_table("no_tree", TableKind::kNonTransactional, wire::index_node_schema()).value();
  const Index none(std::make_shared<const Index::Description>(
      Index::Description{empty.id(), "no_tree", index_->table(), index_->parts()}));
  const auto store = tree_store_of(*client_, none);
  EXPECT_EQ(client_->run([&] { return store->new_id(); }).code(), StatusCode::kMalformed)
      << "a new counter would assign numbers again";
}

/// A leaf that a dead client has frozen, and that fits nowhere: the bounds of its current left neighbour exclude the
/// leaf's keys. Recovery must undo an entry there, and needs a new node for the copy.
class FrozenLeafTest : public IndexRecoveryTest, public ::testing::WithParamInterface<bool> {};

TEST_P(FrozenLeafTest, RecoveryFinishesTheMerge) {
  constexpr uint64_t kRecords = 150;
  constexpr uint64_t kHalfMade = 42;
  const std::string beginning(900, 'p');
  std::vector<std::string> keys;
  keys.reserve(kRecords);
  for (uint64_t i = 0; i < kRecords; ++i) keys.push_back(key(beginning + "1" + std::to_string(1'000 + i), i));
  const std::string low = key(beginning + "1", 0);
  const std::string high = key(beginning + "2", 0);
  const TreeNodeId left = new_node(), frozen = new_node(), right = new_node();
  TransactionId transaction;
  {
    DeadTestClient dead(manager_->address());
    transaction = dead.begin();
    std::vector<std::string> payloads;
    payloads.reserve(kRecords);
    for (uint64_t i = 0; i < kRecords; ++i) {
      bdtree::IndexEntries one = bdtree::IndexEntries::decode(std::nullopt, Key(i)).value();
      const TransactionId by = i == kHalfMade ? transaction : TransactionId(transaction.value - 1);
      ASSERT_TRUE(one.insert(Key(i), by, Snapshot(), false).ok());
      payloads.push_back(one.encode());
    }
    std::vector<EntryView> entries;
    entries.reserve(kRecords);
    for (uint64_t i = 0; i < kRecords; ++i) entries.push_back({keys[i], payloads[i]});
    const auto child = [](TreeNodeId id) { return std::string(reinterpret_cast<const char*>(&id.value), 8); };
    const std::string children[] = {child(left), child(frozen), child(right)};
    put(left, {.high = low, .right = frozen}, {});
    // The dead client froze the leaf after its own change was in it. Its session has the intent.
    const NodeHeader header{.frozen = true, .low = low, .high = high, .right = right, .owner = dead.session().value};
    dead.write_tree_node({index_->id(), Key(frozen.value)}, Version(), row_of(bdtree::encode_base(header, entries)),
                         {{transaction, Key(kHalfMade), false, false, keys[kHalfMade]}});
    EXPECT_EQ(dead.intents({transaction}), 1u);
    put(right, {.low = high}, {});
    put(kRoot, {.level = 1}, {{"", children[0]}, {low, children[1]}, {high, children[2]}});
    if (GetParam()) restart_manager();
  }
  EXPECT_TRUE(testing::eventually([&] { return client_->begin({.read_only = true, .retry = {}}).ok(); }))
      << "the cluster is open for clients";
  EXPECT_TRUE(testing::eventually([&] {
    const auto now = manager_->statistics();
    return now.core.open == 0 && !now.core.sweep_due && !now.core.restarting;
  }));
  EXPECT_FALSE(exists(frozen));
  client_->run([&] {
    const auto tree = bdtree::Tree::open(*store_);
    const auto held = tree->range("", "", SIZE_MAX);
    ASSERT_TRUE(held.ok()) << held.status().to_string();
    EXPECT_EQ(held->size(), kRecords - 1) << "all entries except the undone one";
    EXPECT_EQ(tree->find(keys[kHalfMade]).value(), std::nullopt);
    EXPECT_EQ(tree->check_invariants().value(), "");
  });
}

INSTANTIATE_TEST_SUITE_P(Restarted, FrozenLeafTest, ::testing::Bool());

}  // namespace
}  // namespace loam::client
