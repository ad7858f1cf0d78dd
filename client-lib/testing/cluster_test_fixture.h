// A whole cluster in the test's process: commit manager, storage nodes and clients over TCP on loopback.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <loam/client/client.h>
#include <loam/commit/manager.h>
#include <loam/storage/node.h>

#include "common/schema/chunk.h"
#include "common/testing/eventually.h"

namespace loam::client {

/// Options of a small storage node in the test's process: `bytes` of memory for records and indexes, a free port.
inline storage::NodeOptions small_node(const std::string& manager, uint64_t bytes = uint64_t{96} << 20) {
  storage::NodeOptions node;
  node.manager = manager;
  node.admin_listen = "";
  node.memory_bytes = 2 * bytes;  // one half for records and indexes
  node.query_memory_share = 0.5;
  node.page_bytes = uint64_t{2} << 20;  // a row of the largest size fits
  node.huge_pages = false;
  return node;
}

/// A commit manager and storage nodes, which run while the object lives. Clients must be destroyed before it.
class TestCluster {
 public:
  explicit TestCluster(unsigned nodes, uint64_t node_bytes = uint64_t{96} << 20, unsigned scan_threads = 1) {
    commit::ManagerOptions manager;
    manager.listen = "tcp://127.0.0.1:0";
    manager.admin_listen = "";
    manager.core.initial_nodes = nodes;
    // On a busy machine a test may hold a transaction open for minutes, and a client may not run for seconds.
    manager.core.max_transaction_age_ns = 3'600'000'000'000;
    manager.core.client_lease_ns = 10'000'000'000;
    auto started = commit::CommitManager::start(manager);
    LOAM_CHECK(started.ok(), "the commit manager does not start");
    manager_ = std::move(started).value();
    for (unsigned i = 0; i < nodes; ++i) {
      storage::NodeOptions node = small_node(manager_->address(), node_bytes);
      node.scan_threads = scan_threads;
      auto running = storage::StorageNode::start(node);
      if (!running.ok()) std::fprintf(stderr, "%s\n", running.status().to_string().c_str());
      LOAM_CHECK(running.ok(), "a storage node does not start");
      nodes_.push_back(std::move(running).value());
    }
  }
  ~TestCluster() {
    for (auto& node : nodes_) node->stop();
    manager_->stop();
  }

  std::unique_ptr<Client> client(ClientOptions options = {}) const {
    auto client = Client::connect(manager_->address(), options);
    if (!client.ok()) std::fprintf(stderr, "%s\n", client.status().to_string().c_str());
    LOAM_CHECK(client.ok(), "a client does not connect");
    return std::move(client).value();
  }

  commit::CommitManager& manager() { return *manager_; }
  storage::StorageNode& node(size_t index) { return *nodes_[index]; }

 private:
  std::unique_ptr<commit::CommitManager> manager_;
  std::vector<std::unique_ptr<storage::StorageNode>> nodes_;
};

/// Base of tests that share one cluster of two storage nodes. Each test has its own client.
class ClusterTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { cluster_ = std::make_unique<TestCluster>(2); }
  static void TearDownTestSuite() { cluster_.reset(); }

  void SetUp() override { client_ = cluster_->client(); }
  void TearDown() override { client_.reset(); }

  /// Creates a table for the running test: (balance int64, note text null).
  Table accounts(TableKind kind = TableKind::kTransactional) {
    const Schema schema =
        Schema::make({{"balance", FieldType::kInt64, false}, {"note", FieldType::kText, true}}).value();
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    auto table = client_->create_table(
        std::string(test->test_suite_name()) + "." + test->name() + "." + std::to_string(tables_++), kind, schema);
    LOAM_CHECK(table.ok(), "a table cannot be created");
    return std::move(table).value();
  }

  /// Inserts keys 0 … count - 1 with the same balance, in one transaction.
  void fill(const Table& table, uint64_t count, int64_t balance) {
    const Status status = client_->run_transaction([&](Transaction& tx) -> Status {
      for (uint64_t key = 0; key < count; ++key) {
        LOAM_RETURN_IF_ERROR(tx.insert(table, Key(key), {Value::int64(balance), Value::null()}));
      }
      return ok_status();
    });
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  /// The balance as a new transaction sees it; -1 if there is no record.
  int64_t balance(const Table& table, uint64_t key) {
    auto tx = client_->begin({.read_only = true, .retry = {}});
    LOAM_CHECK(tx.ok(), "begin failed");
    auto record = tx->get(table, Key(key));
    if (record.code() == StatusCode::kNotFound) return -1;
    LOAM_CHECK(record.ok(), "get failed");
    return record->int64("balance");
  }

  /// Waits until no transaction is open, so that all messages that clients sent without waiting have arrived.
  static bool all_transactions_ended() {
    return testing::eventually([] { return cluster_->manager().statistics().core.open == 0; });
  }

  /// Number of snapshots that clients hold at the commit manager.
  static uint64_t read_only_snapshots() { return cluster_->manager().statistics().core.read_only_snapshots; }

  static Query sum_query() {
    Query query;
    query.aggregates = {{AggregateOp::kCountAll, 0}, {AggregateOp::kSum, 0}};
    return query;
  }
  struct Sum {
    int64_t count = 0;
    int64_t sum = 0;
  };
  static Sum sum_of(ScanStream& stream) {
    auto chunks = stream.collect();
    if (!chunks.ok()) std::fprintf(stderr, "%s\n", chunks.status().to_string().c_str());
    LOAM_CHECK(chunks.ok() && chunks->size() == 1 && (*chunks)[0]->rows() == 1, "a sum has one row");
    const ChunkView& view = (*chunks)[0]->view();
    return {view.get<int64_t>(0, 0), view.is_null(1, 0) ? 0 : view.get<int64_t>(1, 0)};
  }

  static inline std::unique_ptr<TestCluster> cluster_;
  std::unique_ptr<Client> client_;
  int tables_ = 0;
};

}  // namespace loam::client
