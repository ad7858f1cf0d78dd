// The tree of an index on a real cluster: round trips, caches, the session of its reads, lost nodes, and its size.
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <loam/client/client.h>

#include "client-lib/src/api/client_impl.h"
#include "client-lib/testing/index_test_fixture.h"
#include "common/testing/eventually.h"

namespace loam::client {
namespace {

TEST_F(IndexTest, TransactionCanHaveAPrivateCache) {
  const Table table = accounts();
  ClientOptions options{.index_node_bytes = 128};
  const auto shared = cluster_->client(options);
  options.index_cache_shared = false;
  const auto apart = cluster_->client(options);
  const Index index = shared->create_index(index_name(), table, {{"balance"}}, {.unique = true}).value();
  constexpr int64_t kRecords = 100;  // a tree of three levels at least
  for (int64_t i = 0; i < kRecords; ++i) {
    Client& writer = i % 2 == 0 ? *shared : *apart;
    ASSERT_TRUE(writer
                    .run_transaction([&](Transaction& tx) {
                      return tx.insert(table, Key(static_cast<uint64_t>(i)), {Value::int64(i), {}});
                    })
                    .ok());
  }
  const auto trips = [&](Client& client) {
    const Index known = client.open_index(index_name()).value();
    const auto look = [&](Transaction& tx, int64_t value) {
      EXPECT_EQ(tx.get(known, {Value::int64(value)})->key().value, static_cast<uint64_t>(value));
    };
    for (int64_t i = 0; i < kRecords; ++i) {
      auto warm = client.begin({.read_only = true});
      look(*warm, i);
    }
    auto tx = client.begin({.read_only = true});
    const uint64_t before = client.statistics().round_trips;
    look(*tx, 42);
    const uint64_t first = client.statistics().round_trips;
    look(*tx, 42);
    return std::pair(first - before, client.statistics().round_trips - first);
  };
  EXPECT_EQ(trips(*shared), std::pair(uint64_t{2}, uint64_t{2})) << "one for the leaf, one for the record";
  const auto [first, second] = trips(*apart);
  EXPECT_GE(first, 4u) << "the descent begins at the root";
  EXPECT_EQ(second, 2u) << "the transaction has the inner nodes in its cache";
}

TEST_F(IndexTest, CommitReadsForAllIndexesInOneRoundTrip) {
  constexpr int kUpdates = 40;
  const Table table = accounts();
  ASSERT_TRUE(put(table, 1, 50, Value::text("a")).ok());
  const auto trips = [&] {
    const uint64_t before = client_->statistics().round_trips;
    for (int i = 0; i < kUpdates; ++i) {
      // The update changes no index.
      EXPECT_TRUE(
          commit([&](Transaction& tx) { return tx.update(table, Key(1), {Value::int64(50), Value::text("a")}); }).ok());
    }
    return client_->statistics().round_trips - before;
  };
  ASSERT_TRUE(client_->create_index(index_name("1"), table, {{"balance"}}).ok());
  const uint64_t with_one = trips();
  ASSERT_TRUE(client_->create_index(index_name("2"), table, {{"note"}}).ok());
  ASSERT_TRUE(client_->create_index(index_name("3"), table, {{"note"}, {"balance"}}).ok());
  // One by one they would take 80 more. Some more are allowed, because the answers do not always arrive together.
  EXPECT_LT(trips(), with_one + kUpdates);
}

// Tree nodes that were lost with a storage node cause an error: neither a wrong answer nor a new, empty tree.
TEST_F(IndexTest, LostTreeNodeIsAnError) {
  const Table table = accounts();
  for (const std::string part : {"root", "leaf"}) {
    SCOPED_TRACE(part);
    const auto maker = cluster_->client({.index_node_bytes = 128});
    const Index index = maker->create_index(index_name(part), table, {{"balance"}}, {.unique = true}).value();
    const auto fill = [&](Client& client, uint64_t from, uint64_t to) {
      return client.run_transaction([&](Transaction& tx) -> Status {
        for (uint64_t key = from; key < to; ++key) {
          LOAM_RETURN_IF_ERROR(tx.insert(table, Key(key), {Value::int64(static_cast<int64_t>(key)), {}}));
        }
        return ok_status();
      });
    };
    ASSERT_TRUE(fill(*maker, 0, 60).ok());
    maker->run([&] {
      Engine& engine = maker->impl().engine();
      bdtree::Store& nodes = *maker->impl().trees().open(engine.current_session(), index.id()).value()->store;
      for (uint64_t id = part == "root" ? 1 : 2; id < 200; ++id) {
        const bdtree::TreeNodeId node(id);
        const auto stored = nodes.get(std::span(&node, 1))[0];
        if (stored.ok()) {
          EXPECT_TRUE(nodes.remove(node, stored->version).ok());
        }
        if (part == "root") break;
      }
    });
    const auto expect_advice = [](const Status& status) {
      EXPECT_EQ(status.code(), StatusCode::kMalformed);
      EXPECT_NE(status.message().find("drop the index and create it again"), std::string_view::npos)
          << status.to_string();
    };
    const auto other = cluster_->client();
    auto tx = other->begin({.read_only = true});
    expect_advice(tx->get(index, {Value::int64(30)}).status());
    expect_advice(tx->range(index, {}).status());
    expect_advice(fill(*other, 100, 101));
    EXPECT_TRUE(other->session_open()) << "its undo has ended";
    ASSERT_TRUE(other->drop_index(index.name()).ok());
    EXPECT_TRUE(other->create_index(index.name(), table, {{"balance"}}, {.unique = true}).ok());
    EXPECT_EQ(range(other->open_index(index.name()).value(), {}).size(), 60u);
    ASSERT_TRUE(other->drop_index(index.name()).ok());
    ASSERT_TRUE(commit([&](Transaction& remove) -> Status {
                  for (uint64_t key = 0; key < 60; ++key) LOAM_RETURN_IF_ERROR(remove.remove(table, Key(key)));
                  return ok_status();
                }).ok());
  }
}

// A snapshot ends with its session. Under the next session its entries may be collected already.
TEST_F(IndexTest, TreeNodesAreReadUnderTheTransactionsSessionOnly) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"balance"}}).value();
  ASSERT_TRUE(put(table, 1, 10).ok());
  const auto reader = cluster_->client();
  reader->run([&] {
    Engine& engine = reader->impl().engine();
    StatusCode code = StatusCode::kOk;
    // The session is given up while the read is under way. If the answer came before, it is right, and the next
    // session is tried.
    for (int turn = 0; turn < 100 && code == StatusCode::kOk; ++turn) {
      const std::shared_ptr<Session> session = engine.session(engine.request_deadline()).value();
      bdtree::Store& nodes = *reader->impl().trees().open(session, index.id()).value()->store;
      EXPECT_TRUE(nodes.get(std::span(&bdtree::kRoot, 1))[0].ok());
      Task end = reader->spawn([&] { session->give_up({StatusCode::kFenced, "given up"}); });
      code = nodes.get(std::span(&bdtree::kRoot, 1))[0].code();
      end.join();
    }
    EXPECT_EQ(code, StatusCode::kFenced);
  });
}

// No operation touches a key of a queue again after the removal of its record. The tree stays small, because writes
// of leaves drop garbage entries.
TEST_F(IndexTest, QueueWorkloadKeepsTreeSmall) {
  const Table table = accounts();
  constexpr uint64_t kRecords = 1'500, kLength = 20;
  for (const bool unique : {false, true}) {
    SCOPED_TRACE(unique);
    const auto first = cluster_->client({.index_node_bytes = 256});
    const auto second = cluster_->client({.index_node_bytes = 256, .index_cache_shared = false});
    const Index index =
        first->create_index(index_name(unique ? "u" : "n"), table, {{"balance"}}, {.unique = unique}).value();
    const auto nodes = [&] {
      return first->run([&] {
        Engine& engine = first->impl().engine();
        bdtree::Store& store = *first->impl().trees().open(engine.current_session(), index.id()).value()->store;
        std::vector<bdtree::TreeNodeId> ids;
        for (uint64_t id = 1; id < 2'000; ++id) ids.emplace_back(id);
        return std::ranges::count_if(store.get(ids), [](const auto& node) { return node.ok(); });
      });
    };
    std::optional<Transaction> old;
    for (uint64_t i = 0; i < kRecords; ++i) {
      if (i == kRecords / 3) old = first->begin({.read_only = true}).value();
      if (i == kRecords / 2) {
        EXPECT_GT(nodes(), 25) << "entries of the old snapshot are kept";
        EXPECT_EQ(keys(old->range(index, {})).size(), kLength);
        old.reset();
      }
      Client& client = i % 2 == 0 ? *first : *second;
      const Status moved = client.run_transaction([&](Transaction& tx) -> Status {
        LOAM_RETURN_IF_ERROR(tx.insert(table, Key(i), {Value::int64(static_cast<int64_t>(i)), {}}));
        return i < kLength ? ok_status() : tx.remove(table, Key(i - kLength));
      });
      ASSERT_TRUE(moved.ok()) << moved.to_string();
    }
    EXPECT_TRUE(testing::eventually([&] { return nodes() < 40; })) << nodes();
    EXPECT_EQ(range(index, {}).size(), kLength);
    ASSERT_TRUE(client_->drop_index(index.name()).ok());
    ASSERT_TRUE(commit([&](Transaction& tx) -> Status {
                  for (uint64_t i = kRecords - kLength; i < kRecords; ++i) {
                    LOAM_RETURN_IF_ERROR(tx.remove(table, Key(i)));
                  }
                  return ok_status();
                }).ok());
  }
}

}  // namespace
}  // namespace loam::client
