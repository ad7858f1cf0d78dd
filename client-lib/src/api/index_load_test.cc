// Indexes under long readers and large commits, on a real cluster.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <loam/bdtree/index_entries.h>
#include <loam/client/client.h>

#include "client-lib/src/api/client_impl.h"
#include "client-lib/testing/index_test_fixture.h"

namespace loam::client {
namespace {

class IndexLoadTest : public IndexTest {
 protected:
  /// Number of toggles. Without merged entries number 256 is refused.
  static constexpr int kToggles = 1'000;

  /// Returns the bytes of all entries in the index's tree.
  size_t entry_bytes(const Index& index) {
    return client_->run([&]() -> size_t {
      const auto tree = client_->impl().trees().open(client_->impl().engine().current_session(), index.id());
      EXPECT_TRUE(tree.ok()) << tree.status().to_string();
      const auto held = (*tree)->tree->range("", "", SIZE_MAX);
      EXPECT_TRUE(held.ok()) << held.status().to_string();
      size_t bytes = 0;
      for (const bdtree::Entry& entry : *held) bytes += entry.payload.size();
      return bytes;
    });
  }
  Status set(const Table& table, uint64_t key, int64_t balance) {
    return commit([&](Transaction& tx) { return tx.update(table, Key(key), {{"balance", Value::int64(balance)}}); });
  }
};

// Entries that an older snapshot might see are not collected. Without merging, the 129th insert of a value is
// refused.
TEST_F(IndexLoadTest, LongReaderDoesNotBlockATogglingValue) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"balance"}}).value();
  ASSERT_TRUE(put(table, 77, 0).ok());
  auto reader = client_->begin({.read_only = true});
  auto writer = client_->begin();  // its id stays open, so the base of no later snapshot passes it
  client_->run([&] {
    for (int i = 1; i <= kToggles; ++i) {
      const Status status = set(table, 77, i % 2);
      ASSERT_TRUE(status.ok()) << "toggle " << i << ": " << status.to_string();
      if (i % 250 != 0) continue;
      EXPECT_EQ(keys(reader->range(index, balance(0))), Keys{77});
      EXPECT_EQ(keys(reader->range(index, balance(1))), Keys{});
    }
  });
  EXPECT_EQ(range(index, balance(0)), Keys{77});
  EXPECT_EQ(range(index, balance(1)), Keys{});
  EXPECT_LE(entry_bytes(index), 64u) << "two values with a few entries of some bytes";
  EXPECT_TRUE(writer->abort().ok());
  EXPECT_TRUE(reader->commit().ok());
}

TEST_F(IndexLoadTest, LongReaderDoesNotBlockAUniqueValueOfTwoRecords) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"balance"}}, {.unique = true}).value();
  ASSERT_TRUE(put(table, 1, 0).ok());
  ASSERT_TRUE(put(table, 2, 1).ok());
  auto reader = client_->begin({.read_only = true});
  client_->run([&] {
    for (int i = 1; i <= 1'000; ++i) {
      const Status status = commit([&](Transaction& tx) -> Status {
        LOAM_RETURN_IF_ERROR(tx.update(table, Key(1), {{"balance", Value::int64(i % 2)}}));
        return tx.update(table, Key(2), {{"balance", Value::int64(1 - i % 2)}});
      });
      ASSERT_TRUE(status.ok()) << "turn " << i << ": " << status.to_string();
    }
  });
  EXPECT_EQ(reader->get(index, {Value::int64(0)})->key(), Key(1));
  EXPECT_EQ(reader->get(index, {Value::int64(1)})->key(), Key(2));
  EXPECT_EQ(client_->begin()->get(index, {Value::int64(0)})->key(), Key(1));
  EXPECT_EQ(put(table, 3, 0).code(), StatusCode::kAlreadyExists);
  EXPECT_LE(entry_bytes(index), 128u);
  EXPECT_TRUE(reader->commit().ok());
}

// A commit must not take all fibers for its index changes, because other transactions could not begin.
TEST_F(IndexLoadTest, LargeCommitLeavesFibersToOthers) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"balance"}}).value();
  std::atomic<bool> stop{false};
  std::atomic<int> begun{0}, refused{0};
  std::thread beginner([&] {
    while (!stop) {
      const auto tx = client_->begin();  // destroyed unfinished
      ++(tx.ok() ? begun : refused);
    }
  });
  constexpr uint64_t kRows = 8'000;  // more than a client has fibers
  const Status status = commit([&](Transaction& tx) -> Status {
    for (uint64_t i = 0; i < kRows; ++i) {
      const auto value = static_cast<int64_t>(i * 7'919 % 8'009);
      LOAM_RETURN_IF_ERROR(tx.insert(table, Key(i), {Value::int64(value), Value::null()}));
    }
    return ok_status();
  });
  stop = true;
  beginner.join();
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(refused, 0);
  EXPECT_GT(begun, 0);
  EXPECT_EQ(range(index, {}).size(), kRows);
  EXPECT_TRUE(all_transactions_ended());
  client_->run([&] { EXPECT_EQ(client_->impl().trees().peak_fibers(), kMaxLeafBatchesInFlight - 1); });
}

TEST_F(IndexLoadTest, ManyLargeCommitsShareABoundedNumberOfFibers) {
  const Table table = accounts();
  const Index index = client_->create_index(index_name(), table, {{"balance"}}).value();
  constexpr uint64_t kCommits = 12;  // with kMaxLeafBatchesInFlight each they would take more
  constexpr uint64_t kRows = 400;
  static_assert(kCommits * (kMaxLeafBatchesInFlight - 1) > kMaxIndexFibers);
  std::vector<Task> tasks;
  for (uint64_t c = 0; c < kCommits; ++c) {
    tasks.push_back(client_->spawn([&, c] {
      const Status status = commit([&](Transaction& tx) -> Status {
        for (uint64_t i = 0; i < kRows; ++i) {
          const auto value = static_cast<int64_t>(i * kCommits + c);
          LOAM_RETURN_IF_ERROR(tx.insert(table, Key(c * kRows + i), {Value::int64(value), Value::null()}));
        }
        return ok_status();
      });
      EXPECT_TRUE(status.ok()) << status.to_string();
    }));
  }
  for (Task& task : tasks) task.join();
  EXPECT_EQ(range(index, {}).size(), kCommits * kRows);
  client_->run([&] { EXPECT_LE(client_->impl().trees().peak_fibers(), kMaxIndexFibers); });
}

}  // namespace
}  // namespace loam::client
