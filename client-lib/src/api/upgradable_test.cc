// Transactions that get their id at their first write [R12, R20, R29].
#include <atomic>
#include <vector>

#include <gtest/gtest.h>

#include <loam/client/client.h>

#include "client-lib/testing/index_test_fixture.h"
#include "common/testing/eventually.h"

namespace loam::client {
namespace {

using testing::eventually;

class UpgradableTest : public IndexTest {
 protected:
  using ClusterTest::balance;
  using IndexTest::balance;

  static TransactionOptions upgradable() { return {.read_only = false, .upgradable = true, .retry = {}}; }
  static auto statistics() { return cluster_->manager().statistics().core; }
  Status set(const Table& table, uint64_t key, int64_t balance) {
    return commit([&](Transaction& tx) { return tx.update(table, Key(key), {Value::int64(balance), Value::null()}); });
  }
};

TEST_F(UpgradableTest, ReaderTakesNoIdAndLeavesNoTrace) {
  const Table table = accounts();
  fill(table, 10, 1);
  const auto before = statistics();
  {
    auto tx = client_->begin(upgradable()).value();
    EXPECT_EQ(statistics().upgradable_snapshots, before.upgradable_snapshots + 1);
    EXPECT_FALSE(tx.read_only());
    EXPECT_EQ(tx.get(table, Key(3))->int64(0), 1);
    EXPECT_EQ(tx.id(), TransactionId());
    EXPECT_TRUE(tx.commit().ok());
    EXPECT_TRUE(tx.finished());
    auto dropped = client_->begin(upgradable()).value();
    auto aborted = client_->begin(upgradable()).value();
    EXPECT_TRUE(aborted.abort().ok());
  }
  EXPECT_TRUE(eventually([&] { return statistics().upgradable_snapshots == before.upgradable_snapshots; }));
  EXPECT_EQ(statistics().last_transaction, before.last_transaction) << "no id was drawn";
  EXPECT_EQ(statistics().upgrades, before.upgrades);
}

TEST_F(UpgradableTest, FirstWriteDrawsTheId) {
  const Table table = accounts();
  fill(table, 10, 1);
  const auto before = statistics();
  auto tx = client_->begin(upgradable()).value();
  EXPECT_EQ(tx.get(table, Key(3))->int64(0), 1);
  ASSERT_TRUE(tx.update(table, Key(3), {Value::int64(2), Value::null()}).ok());
  const TransactionId id = tx.id();
  EXPECT_NE(id, TransactionId());
  ASSERT_TRUE(tx.remove(table, Key(4)).ok());
  EXPECT_EQ(tx.id(), id) << "one id a transaction";
  EXPECT_EQ(tx.get(table, Key(3))->int64(0), 2) << "it sees its own write";
  ASSERT_TRUE(tx.commit().ok());
  EXPECT_EQ(statistics().upgrades, before.upgrades + 1);
  EXPECT_EQ(balance(table, 3), 2);
  EXPECT_EQ(balance(table, 4), -1);
  EXPECT_TRUE(eventually([&] { return statistics().upgradable_snapshots == before.upgradable_snapshots; }));
  EXPECT_TRUE(all_transactions_ended());
}

TEST_F(UpgradableTest, GetForUpdateIsAWrite) {
  const Table table = accounts();
  fill(table, 2, 1);
  auto tx = client_->begin(upgradable()).value();
  ASSERT_TRUE(tx.get_for_update(table, Key(0)).ok());
  EXPECT_NE(tx.id(), TransactionId());
  ASSERT_TRUE(set(table, 0, 7).ok());
  EXPECT_EQ(tx.commit().code(), StatusCode::kConflict);
}

/// The snapshot is that of the begin: writes that were committed before the id was drawn conflict.
TEST_F(UpgradableTest, KeepsTheSnapshotOfItsBegin) {
  const Table table = accounts();
  fill(table, 10, 1);
  auto tx = client_->begin(upgradable()).value();
  ASSERT_TRUE(set(table, 3, 5).ok());
  ASSERT_TRUE(tx.update(table, Key(4), {Value::int64(2), Value::null()}).ok());
  EXPECT_EQ(tx.get(table, Key(3))->int64(0), 1) << "also after the id was drawn";
  ASSERT_TRUE(tx.update(table, Key(3), {Value::int64(6), Value::null()}).ok());
  EXPECT_EQ(tx.commit().code(), StatusCode::kConflict);
  EXPECT_EQ(balance(table, 3), 5);
  EXPECT_EQ(balance(table, 4), 1) << "all writes were undone";
}

/// A tombstone that the snapshot does not see is kept, so that an insert over the removal conflicts (R20, garbage and
/// tombstones).
TEST_F(UpgradableTest, InsertConflictsWithAnUnseenRemoval) {
  const Table table = accounts();
  fill(table, 4, 1);
  auto tx = client_->begin(upgradable()).value();
  ASSERT_TRUE(commit([&](Transaction& other) { return other.remove(table, Key(2)); }).ok());
  // Later transactions see the removal, and many publications follow. For them the tombstone is garbage.
  const uint64_t published = statistics().publications;
  ASSERT_TRUE(eventually([&] { return set(table, 1, 7).ok() && statistics().publications > published + 20; }));
  ASSERT_TRUE(tx.insert(table, Key(2), {Value::int64(9), Value::null()}).ok());
  const Status status = tx.commit();
  EXPECT_FALSE(status.ok()) << "a transaction that it does not see has removed the record";
  EXPECT_EQ(balance(table, 2), -1);
}

/// The transaction maintains an index that was created between its begin and its first write (R29, index creation).
TEST_F(UpgradableTest, MaintainsAnIndexNewerThanItsSnapshot) {
  const Table table = accounts();
  fill(table, 4, 1);
  auto tx = client_->begin(upgradable()).value();
  const Index index = client_->create_index(index_name(), table, {{"balance"}}).value();
  EXPECT_FALSE(tx.get_many(index, std::vector<std::vector<Value>>{{Value::int64(1)}})[0].ok())
      << "it did not exist when the transaction began";
  ASSERT_TRUE(tx.update(table, Key(2), {Value::int64(8), Value::null()}).ok());
  ASSERT_TRUE(tx.insert(table, Key(9), {Value::int64(8), Value::null()}).ok());
  const Status status = tx.commit();
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(range(index, balance(8)), (Keys{2, 9}));
  EXPECT_EQ(range(index, balance(1)), (Keys{0, 1, 3}));
}

TEST_F(UpgradableTest, RunTransactionRetriesIt) {
  const Table table = accounts();
  fill(table, 1, 0);
  constexpr int kFibers = 8;
  constexpr int kRounds = 20;
  std::vector<Task> tasks;
  for (int i = 0; i < kFibers; ++i) {
    tasks.push_back(client_->spawn([&] {
      for (int round = 0; round < kRounds; ++round) {
        const Status status = client_->run_transaction(
            [&](Transaction& tx) -> Status {
              LOAM_ASSIGN_OR_RETURN(const Record record, tx.get(table, Key(0)));
              return tx.update(table, Key(0), {Value::int64(record.int64(0) + 1), Value::null()});
            },
            {.read_only = false, .upgradable = true, .retry = {.max_attempts = 10'000}});
        EXPECT_TRUE(status.ok()) << status.to_string();
      }
    }));
  }
  for (Task& task : tasks) task.join();
  EXPECT_EQ(balance(table, 0), kFibers * kRounds) << "no update is lost";
}

TEST_F(UpgradableTest, CannotAlsoBeReadOnly) {
  const auto both = client_->begin({.read_only = true, .upgradable = true, .retry = {}});
  EXPECT_EQ(both.code(), StatusCode::kInvalidArgument) << both.status().to_string();
}

}  // namespace
}  // namespace loam::client
