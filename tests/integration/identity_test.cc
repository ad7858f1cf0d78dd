// A commit manager with an empty folder or an older copy of its folder, in a cluster with running storage nodes (R10,
// cluster identity and incarnations): the nodes and clients refuse it, no record is lost, and work continues when the
// commit manager with the current folder is back.
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include <loam/client/client.h>
#include <loam/commit/manager.h>
#include <loam/storage/node.h>

#include "client-lib/testing/cluster_test_fixture.h"
#include "common/testing/eventually.h"

namespace loam::client {
namespace {

namespace fs = std::filesystem;
using testing::eventually;

constexpr int64_t kRecords = 50;

class WrongManagerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("loam-identity-test-" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directory(root_);
    start_manager("right");
    for (int i = 0; i < 2; ++i) {
      auto node = storage::StorageNode::start(small_node(manager_->address()), [this](const Status& status) {
        const std::lock_guard lock(mutex_);
        ended_ = status;
      });
      ASSERT_TRUE(node.ok()) << node.status().to_string();
      nodes_.push_back(std::move(node).value());
    }
    client_ = Client::connect(manager_->address()).value();
    table_ =
        client_->create_table("t", TableKind::kTransactional, Schema::make({{"n", FieldType::kInt64, false}}).value())
            .value();
    const Status loaded = client_->run_transaction([&](Transaction& tx) {
      for (int64_t i = 1; i <= kRecords; ++i) {
        LOAM_RETURN_IF_ERROR(tx.insert(*table_, Key(static_cast<uint64_t>(i)), {Value::int64(i)}));
      }
      return ok_status();
    });
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  }
  void TearDown() override {
    client_.reset();
    for (auto& node : nodes_) node->stop();
    manager_.reset();
    fs::remove_all(root_);
  }

  /// Starts the commit manager at the address of the previous one.
  void start_manager(const std::string& folder) {
    commit::ManagerOptions options;
    options.listen = manager_ == nullptr ? "tcp://127.0.0.1:0" : manager_->address();
    options.admin_listen = "";
    options.data = (root_ / folder).string();
    options.core.initial_nodes = 2;
    options.core.client_lease_ns = options.core.node_lease_ns = 500'000'000;
    if (manager_ != nullptr) manager_->stop();
    manager_.reset();
    auto started = commit::CommitManager::start(options);
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    manager_ = std::move(started).value();
  }

  /// Each node refuses the commit manager, and the commit manager refuses each node, for this reason.
  void expect_refused(const std::string& reason) {
    for (const auto& node : nodes_) {
      EXPECT_TRUE(eventually([&] {
        const storage::NodeStatistics now = node->statistics();
        return now.manager_refusal.find(reason) != std::string::npos && !now.lease_holds;
      })) << node->statistics().manager_refusal;
    }
    EXPECT_TRUE(eventually([&] { return manager_->statistics().core.refused_nodes.size() == nodes_.size(); }));
    const uint64_t sessions = manager_->statistics().core.sessions_opened;
    EXPECT_EQ(read(1).code(), StatusCode::kWrongCluster) << read(1).status().to_string();
    EXPECT_EQ(manager_->statistics().core.sessions_opened, sessions);
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(ended_.ok()) << ended_.to_string();
  }

  Result<int64_t> read(uint64_t key) {
    int64_t value = 0;
    const Status status = client_->run_transaction(
        [&](Transaction& tx) -> Status {
          LOAM_ASSIGN_OR_RETURN(const Record record, tx.get(*table_, Key(key)));
          value = record.int64(0);
          return ok_status();
        },
        {.read_only = true, .retry = {.max_attempts = 1}});
    return status.ok() ? Result<int64_t>(value) : Result<int64_t>(status);
  }

  void expect_everything_is_back() {
    ASSERT_TRUE(eventually([&] { return read(1).ok(); })) << read(1).status().to_string();
    for (int64_t i = 1; i <= kRecords; ++i) {
      const auto value = read(static_cast<uint64_t>(i));
      ASSERT_TRUE(value.ok()) << i << ": " << value.status().to_string();
      EXPECT_EQ(*value, i);
    }
    EXPECT_TRUE(
        client_->run_transaction([&](Transaction& tx) { return tx.update(*table_, Key(1), {Value::int64(1)}); }).ok());
    for (const auto& node : nodes_) EXPECT_TRUE(node->statistics().manager_refusal.empty());
  }

  fs::path root_;
  std::unique_ptr<commit::CommitManager> manager_;
  std::vector<std::unique_ptr<storage::StorageNode>> nodes_;
  std::unique_ptr<Client> client_;
  std::optional<Table> table_;
  std::mutex mutex_;
  Status ended_;  // guarded by mutex_
};

TEST_F(WrongManagerTest, OnAnEmptyFolder) {
  const std::string right = manager_->statistics().core.cluster;
  start_manager("empty");
  expect_refused(right);
  start_manager("right");
  expect_everything_is_back();
}

TEST_F(WrongManagerTest, OnAnOlderCopyOfItsFolder) {
  manager_->stop();
  fs::copy(root_ / "right", root_ / "copy", fs::copy_options::recursive);
  start_manager("right");
  expect_everything_is_back();
  start_manager("copy");
  expect_refused("by another start of the commit manager");
  EXPECT_NE(manager_->statistics().core.not_serving.find("does not contain"), std::string::npos);
  start_manager("right");
  expect_everything_is_back();
}

/// The copy is of the epoch that runs, but without its last states.
TEST_F(WrongManagerTest, OnACopyThatWasMadeWhileItRan) {
  fs::copy(root_ / "right", root_ / "copy", fs::copy_options::recursive);
  const Schema schema = Schema::make({{"n", FieldType::kInt64, false}}).value();
  ASSERT_TRUE(client_->create_table("later", TableKind::kTransactional, schema).ok());
  ASSERT_TRUE(
      client_->run_transaction([&](Transaction& tx) { return tx.update(*table_, Key(1), {Value::int64(1)}); }).ok());
  // The nodes learn this within one publish interval of the transaction's end.
  const uint64_t before = manager_->statistics().core.publications;
  ASSERT_TRUE(eventually([&] { return read(1).ok() && manager_->statistics().core.publications > before + 1; }));
  start_manager("copy");
  expect_refused("its state is not the newest");
  start_manager("right");
  expect_everything_is_back();
  EXPECT_TRUE(client_->open_table("later").ok());
}

}  // namespace
}  // namespace loam::client
