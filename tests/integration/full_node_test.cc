// A storage node that is full: what makes room goes through, indexes and all, and so do reads (R6).
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <loam/client/client.h>
#include <loam/commit/manager.h>
#include <loam/storage/node.h>

#include "common/testing/patience.h"

namespace loam::client {
namespace {

class FullNodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    data_ = std::filesystem::temp_directory_path() / ("loam-full-node-test-" + std::to_string(::getpid()));
    std::filesystem::remove_all(data_);
    commit::ManagerOptions manager;
    manager.admin_listen = "";
    manager.listen = "tcp://127.0.0.1:0";
    manager.data = data_;
    manager_ = commit::CommitManager::start(manager).value();
    storage::NodeOptions node;
    node.manager = manager_->address();
    node.admin_listen = "";
    node.memory_bytes = uint64_t{16} << 20;
    node.page_bytes = uint64_t{256} << 10;
    node.huge_pages = false;
    node_ = storage::StorageNode::start(node).value();
    client_ = Client::connect(manager_->address()).value();
  }
  void TearDown() override {
    client_.reset();
    node_->stop();
    manager_->stop();
    std::filesystem::remove_all(data_);
  }

  std::filesystem::path data_;
  std::unique_ptr<commit::CommitManager> manager_;
  std::unique_ptr<storage::StorageNode> node_;
  std::unique_ptr<Client> client_;
};

TEST_F(FullNodeTest, RecordsWithIndexesAreReadAndRemoved) {
  constexpr uint64_t kBatch = 32;
  const Table table = client_
                          ->create_table("people", TableKind::kTransactional,
                                         Schema::make({{"name", FieldType::kText, false},
                                                       {"number", FieldType::kInt64, false},
                                                       {"note", FieldType::kBlob, false}})
                                             .value())
                          .value();
  const Index by_name = client_->create_index("by_name", table, {{"name"}}).value();
  const Index by_number =
      client_->create_index("by_number", table, {{"number"}}, {.unique = true, .on_progress = {}}).value();
  const Buffer note(300);
  // Scattered over the leaves.
  const auto name = [](uint64_t key) { return "name " + std::to_string(key * 7'919 % 100'003); };
  const auto insert = [&](uint64_t first) {
    return client_->run_transaction([&](Transaction& tx) {
      for (uint64_t key = first; key < first + kBatch; ++key) {
        LOAM_RETURN_IF_ERROR(tx.insert(
            table, Key(key), {Value::text(name(key)), Value::int64(static_cast<int64_t>(key)), Value::blob(note)}));
      }
      return ok_status();
    });
  };
  uint64_t records = 0;
  // Garbage collection may make some room yet: full is what stays so.
  for (int refused = 0; refused < 20;) {
    const Status status = insert(records);
    ASSERT_TRUE(status.ok() || status == StatusCode::kNoSpace) << status.to_string();
    status.ok() ? records += kBatch : ++refused;
  }
  ASSERT_GT(records, 1'000u);

  const auto found = client_->begin({.read_only = true, .retry = {}})->range(by_name, {});
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->size(), records);

  for (uint64_t first = 0; first < records; first += kBatch) {
    const Status removed = client_->run_transaction([&](Transaction& tx) {
      for (uint64_t key = first; key < first + kBatch; ++key) LOAM_RETURN_IF_ERROR(tx.remove(table, Key(key)));
      return ok_status();
    });
    ASSERT_TRUE(removed.ok()) << "after " << first << " of " << records << ": " << removed.to_string();
  }
  const auto left = client_->begin({.read_only = true, .retry = {}})->range(by_number, {});
  ASSERT_TRUE(left.ok()) << left.status().to_string();
  EXPECT_TRUE(left->empty());
  EXPECT_TRUE(testing::eventually([&] { return insert(records).ok(); })) << "there is room again";
}

}  // namespace
}  // namespace loam::client
