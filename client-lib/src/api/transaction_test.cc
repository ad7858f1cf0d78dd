#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <loam/client/transaction.h>

#include "client-lib/testing/cluster_test_fixture.h"

namespace loam::client {
namespace {

using TransactionTest = ClusterTest;

TEST_F(TransactionTest, CommittedWritesAreSeenByAll) {
  const Table table = accounts();
  const Status status = client_->run_transaction([&](Transaction& tx) -> Status {
    LOAM_RETURN_IF_ERROR(tx.insert(table, Key(1), {Value::int64(10), Value::text("first")}));
    return tx.insert(table, Key(2), {Value::int64(20), Value::null()});
  });
  ASSERT_TRUE(status.ok()) << status.to_string();
  const auto other = cluster_->client();
  auto tx = other->begin().value();
  const auto records = tx.get_many(table, std::array{Key(2), Key(3), Key(1)});
  EXPECT_EQ(records[0].value().int64("balance"), 20);
  EXPECT_TRUE(records[0].value().is_null("note"));
  EXPECT_EQ(records[1].status().to_string(), "kNotFound: record 3 of table " + table.name() + " does not exist");
  EXPECT_EQ(records[2].value().text("note"), "first");
  EXPECT_EQ(records[2].value().key(), Key(1));
  EXPECT_GT(records[2].value().version(), Version());
  EXPECT_TRUE(tx.commit().ok());
}

TEST_F(TransactionTest, ReadsItsOwnWrites) {
  const Table table = accounts();
  fill(table, 3, 100);
  auto tx = client_->begin().value();
  ASSERT_TRUE(tx.insert(table, Key(7), {Value::int64(7), Value::null()}).ok());
  ASSERT_TRUE(tx.update(table, Key(0), {Value::int64(1), Value::null()}).ok());
  ASSERT_TRUE(tx.remove(table, Key(1)).ok());
  EXPECT_EQ(tx.get(table, Key(7))->int64("balance"), 7);
  EXPECT_EQ(tx.get(table, Key(0))->int64("balance"), 1);
  EXPECT_EQ(tx.get(table, Key(1)).code(), StatusCode::kNotFound);
  EXPECT_EQ(tx.get_async(table, Key(7)).get()->int64("balance"), 7);
  const auto many = tx.get_many(table, std::array{Key(0), Key(1), Key(2), Key(7)});
  EXPECT_EQ(many[0].value().int64("balance"), 1);
  EXPECT_EQ(many[1].code(), StatusCode::kNotFound);
  EXPECT_EQ(many[2].value().int64("balance"), 100);
  EXPECT_EQ(many[3].value().int64("balance"), 7);
  EXPECT_EQ(balance(table, 0), 100) << "seen by others before the commit";
  EXPECT_EQ(balance(table, 7), -1);
  ASSERT_TRUE(tx.commit().ok());
  EXPECT_EQ(balance(table, 0), 1);
  EXPECT_EQ(balance(table, 1), -1);
  EXPECT_EQ(balance(table, 7), 7);
}

TEST_F(TransactionTest, SnapshotStaysTheSame) {
  const Table table = accounts();
  fill(table, 2, 100);
  auto reader = client_->begin({.read_only = true, .retry = {}}).value();
  EXPECT_EQ(reader.get(table, Key(0))->int64("balance"), 100);
  ASSERT_TRUE(client_
                  ->run_transaction([&](Transaction& tx) -> Status {
                    LOAM_RETURN_IF_ERROR(tx.update(table, Key(0), {Value::int64(1), Value::null()}));
                    return tx.remove(table, Key(1));
                  })
                  .ok());
  EXPECT_EQ(reader.get(table, Key(0))->int64("balance"), 100);
  EXPECT_EQ(reader.get(table, Key(1))->int64("balance"), 100);
  auto stream = reader.scan(table, sum_query()).value();
  EXPECT_EQ(sum_of(stream).sum, 200);
  EXPECT_TRUE(reader.commit().ok());
}

TEST_F(TransactionTest, ConflictUndoesEverything) {
  const Table table = accounts();
  fill(table, 40, 100);
  auto late = client_->begin().value();
  // The conflict is with another client. The client would foresee a conflict within itself, and undo no write.
  ASSERT_TRUE(cluster_->client()
                  ->run_transaction(
                      [&](Transaction& tx) { return tx.update(table, Key(17), {Value::int64(1), Value::null()}); })
                  .ok());
  for (uint64_t key = 0; key < 40; ++key) {
    ASSERT_TRUE(late.update(table, Key(key), {Value::int64(-1), Value::null()}).ok());
  }
  ASSERT_TRUE(late.insert(table, Key(1'000), {Value::int64(-1), Value::null()}).ok());
  const Status status = late.commit();
  EXPECT_EQ(status.code(), StatusCode::kConflict);
  EXPECT_NE(status.message().find("record 17 of table " + table.name()), std::string::npos) << status.to_string();
  EXPECT_EQ(late.commit().code(), StatusCode::kInvalidArgument) << "finished";
  for (uint64_t key = 0; key < 40; ++key) EXPECT_EQ(balance(table, key), key == 17 ? 1 : 100);
  EXPECT_EQ(balance(table, 1'000), -1);
  // The records are not claimed any more.
  ASSERT_TRUE(client_
                  ->run_transaction(
                      [&](Transaction& tx) -> Status {
                        for (uint64_t key = 0; key < 40; ++key) {
                          LOAM_RETURN_IF_ERROR(tx.update(table, Key(key), {Value::int64(5), Value::null()}));
                        }
                        return tx.insert(table, Key(1'000), {Value::int64(5), Value::null()});
                      },
                      {.read_only = false, .retry = {.max_attempts = 1}})
                  .ok());
  EXPECT_EQ(client_->statistics().conflicts, 1u);
  EXPECT_EQ(client_->statistics().local_conflicts, 0u);
}

/// Fibers that all increment one record, and optionally each one other records, too.
class HotRecordTest : public ClusterTest {
 protected:
  static constexpr uint64_t kFibers = 32;
  static constexpr int64_t kEach = 10;

  void add_from_everywhere(const Table& table, const TransactionOptions& options) {
    client_->run([&] {
      std::vector<Task> tasks;
      tasks.reserve(kFibers);
      for (uint64_t i = 0; i < kFibers; ++i) {
        tasks.push_back(client_->spawn([&, i] {
          for (int64_t n = 0; n < kEach; ++n) {
            const Status added = client_->run_transaction(
                [&](Transaction& tx) -> Status {
                  for (const Key key : {Key(0), Key(1 + i)}) {
                    LOAM_ASSIGN_OR_RETURN(const Record record, tx.get(table, key));
                    LOAM_RETURN_IF_ERROR(
                        tx.update(table, key, {{"balance", Value::int64(record.int64("balance") + 1)}}));
                  }
                  return ok_status();
                },
                options);
            EXPECT_TRUE(added.ok()) << added.to_string();
          }
        }));
      }
      for (Task& task : tasks) task.join();
    });
    EXPECT_EQ(balance(table, 0), static_cast<int64_t>(kFibers) * kEach);
    for (uint64_t i = 0; i < kFibers; ++i) EXPECT_EQ(balance(table, 1 + i), kEach);
  }
};

TEST_F(HotRecordTest, NamedHotRecordNeverConflicts) {
  const Table table = accounts();
  fill(table, 1 + kFibers, 0);
  add_from_everywhere(table, {.contended = {{table, Key(0)}}});
  EXPECT_EQ(client_->statistics().conflicts, 0u);
  EXPECT_EQ(client_->statistics().retries, 0u);
}

TEST_F(HotRecordTest, LoserOfALocalConflictQueues) {
  const Table table = accounts();
  fill(table, 1 + kFibers, 0);
  add_from_everywhere(table, {});
  const ClientStatistics after = client_->statistics();
  EXPECT_GT(after.local_conflicts, 0u);
  EXPECT_LT(after.retries, 2 * kFibers * kEach) << "few fibers lose often";
}

TEST_F(TransactionTest, DuplicateAndMissingKeysAreNamed) {
  const Table table = accounts();
  fill(table, 1, 100);
  const auto attempt = [&](auto write) {
    return client_
        ->run_transaction([&](Transaction& tx) -> Status {
          LOAM_RETURN_IF_ERROR(tx.insert(table, Key(50), {Value::int64(1), Value::null()}));
          return write(tx);
        })
        .to_string();
  };
  const std::string name = " of table " + table.name();
  EXPECT_EQ(attempt([&](Transaction& tx) { return tx.insert(table, Key(0), {Value::int64(1), Value::null()}); }),
            "kAlreadyExists: record 0" + name + " exists already");
  EXPECT_EQ(attempt([&](Transaction& tx) { return tx.update(table, Key(9), {Value::int64(1), Value::null()}); }),
            "kNotFound: record 9" + name + " does not exist");
  EXPECT_EQ(attempt([&](Transaction& tx) { return tx.remove(table, Key(9)); }),
            "kNotFound: record 9" + name + " does not exist");
  EXPECT_EQ(balance(table, 0), 100);
  EXPECT_EQ(balance(table, 50), -1) << "the valid half was undone";
}

TEST_F(TransactionTest, RejectsValuesThatTheSchemaForbidsAtOnce) {
  const Table table = accounts();
  const Table plain = accounts(TableKind::kNonTransactional);
  auto tx = client_->begin().value();
  const std::string large(kMaxRowBytes, 'x');
  EXPECT_EQ(tx.insert(table, Key(1), {Value::int32(1), Value::null()}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tx.insert(table, Key(1), {Value::null(), Value::null()}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tx.insert(table, Key(1), {Value::int64(1)}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tx.insert(table, Key(1), {Value::int64(1), Value::text(large)}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tx.insert(plain, Key(1), {Value::int64(1), Value::null()}).code(), StatusCode::kWrongTableKind);
  EXPECT_EQ(tx.get(plain, Key(1)).code(), StatusCode::kWrongTableKind);
  EXPECT_EQ(tx.scan(plain, sum_query()).code(), StatusCode::kWrongTableKind);
  const Table other = accounts();
  EXPECT_EQ(tx.insert(table, Key(1), Record::make(other, {Value::int64(1), Value::null()}).value()).code(),
            StatusCode::kInvalidArgument);
  // The transaction stays usable.
  EXPECT_TRUE(tx.insert(table, Key(1), {Value::int64(1), Value::null()}).ok());
  EXPECT_TRUE(tx.commit().ok());
  EXPECT_EQ(balance(table, 1), 1);

  auto reader = client_->begin({.read_only = true, .retry = {}}).value();
  EXPECT_EQ(reader.insert(table, Key(2), {Value::int64(1), Value::null()}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(reader.remove(table, Key(1)).code(), StatusCode::kInvalidArgument);
}

TEST_F(TransactionTest, AbortLeavesNoTrace) {
  const Table table = accounts();
  fill(table, 1, 100);
  {
    auto tx = client_->begin().value();
    ASSERT_TRUE(tx.update(table, Key(0), {Value::int64(1), Value::null()}).ok());
    EXPECT_TRUE(tx.abort().ok());
    EXPECT_TRUE(tx.abort().ok());
    EXPECT_EQ(tx.get(table, Key(0)).code(), StatusCode::kInvalidArgument);
    auto forgotten = client_->begin().value();
    ASSERT_TRUE(forgotten.update(table, Key(0), {Value::int64(2), Value::null()}).ok());
  }
  EXPECT_EQ(balance(table, 0), 100);
  EXPECT_TRUE(all_transactions_ended()) << "an id stays open";
}

TEST_F(TransactionTest, LargeRowsAndManyRecords) {
  const Table table = accounts();
  // Ten rows of nearly the largest size, so that each read needs several replies of a node.
  const std::string large(kMaxRowBytes - 64, 'y');
  ASSERT_TRUE(client_
                  ->run_transaction([&](Transaction& tx) -> Status {
                    for (uint64_t key = 0; key < 10; ++key) {
                      LOAM_RETURN_IF_ERROR(tx.insert(table, Key(key), {Value::int64(1), Value::text(large)}));
                    }
                    return ok_status();
                  })
                  .ok());
  std::vector<Key> keys;
  for (uint64_t key = 0; key < 10; ++key) keys.push_back(Key(key));
  auto tx = client_->begin().value();
  for (const auto& record : tx.get_many(table, keys)) {
    ASSERT_TRUE(record.ok()) << record.status().to_string();
    EXPECT_EQ(record.value().text("note"), large);
  }
  ASSERT_TRUE(tx.abort().ok());

  const Table many = accounts();
  fill(many, 20'000, 3);
  keys.clear();
  for (uint64_t key = 0; key < 20'000; ++key) keys.push_back(Key(key));
  auto reader = client_->begin({.read_only = true, .retry = {}}).value();
  int64_t sum = 0;
  for (const auto& record : reader.get_many(many, keys)) sum += record.value().int64(0);
  EXPECT_EQ(sum, 60'000);
}

TEST_F(TransactionTest, DroppedTablesAreReported) {
  const Table table = accounts();
  fill(table, 1, 1);
  auto tx = client_->begin().value();
  ASSERT_TRUE(client_->drop_table(table.name()).ok());
  EXPECT_EQ(tx.get(table, Key(0)).code(), StatusCode::kNoSuchTable);
  ASSERT_TRUE(tx.update(table, Key(0), {Value::int64(1), Value::null()}).ok());
  const Status status = tx.commit();
  EXPECT_EQ(status.code(), StatusCode::kNoSuchTable);
  EXPECT_NE(status.message().find(table.name()), std::string::npos) << status.to_string();
  EXPECT_EQ(client_->scan(table, sum_query())->next().code(), StatusCode::kNoSuchTable);
  EXPECT_EQ(client_->open_table(table.name()).code(), StatusCode::kNoSuchTable);
}

// Many fibers of two clients make transfers while scans run. Every scan sees the same sum.
TEST_F(TransactionTest, TransfersKeepTheSum) {
  constexpr uint64_t kAccounts = 50;
  constexpr int kFibers = 16, kTransfers = 40;
  const Table table = accounts();
  fill(table, kAccounts, 1'000);
  const auto other = cluster_->client();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::atomic<int> failures{0};
  std::vector<Task> tasks;
  const auto transfer = [&](Client& client, uint64_t number) {
    std::mt19937_64 random(seed + number);
    for (int i = 0; i < kTransfers; ++i) {
      const Key from(random() % kAccounts), to(random() % kAccounts);
      if (from == to) continue;
      const auto amount = static_cast<int64_t>(random() % 50);
      const Status status = client.run_transaction(
          [&](Transaction& tx) -> Status {
            auto a = tx.get_async(table, from);
            auto b = tx.get_async(table, to);
            LOAM_ASSIGN_OR_RETURN(Record source, a.get());
            LOAM_ASSIGN_OR_RETURN(Record target, b.get());
            LOAM_RETURN_IF_ERROR(source.set(0, Value::int64(source.int64(0) - amount)));
            LOAM_RETURN_IF_ERROR(target.set(0, Value::int64(target.int64(0) + amount)));
            LOAM_RETURN_IF_ERROR(tx.update(table, from, source));
            return tx.update(table, to, target);
          },
          {.read_only = false, .retry = {.max_attempts = 1'000}});
      if (!status.ok()) {
        ++failures;
        ADD_FAILURE() << status.to_string();
      }
    }
  };
  for (uint64_t i = 0; i < kFibers; ++i) {
    Client& client = i % 2 == 0 ? *client_ : *other;
    tasks.push_back(client.spawn([&, i] { transfer(client, i); }));
  }
  int scans = 0;
  const auto running = [&] { return !std::all_of(tasks.begin(), tasks.end(), [](Task& t) { return t.done(); }); };
  do {
    auto stream = client_->scan(table, sum_query()).value();
    const Sum sum = sum_of(stream);
    ASSERT_EQ(sum.count, static_cast<int64_t>(kAccounts));
    ASSERT_EQ(sum.sum, static_cast<int64_t>(kAccounts) * 1'000) << "scan " << scans;
    ++scans;
  } while (running());
  for (Task& task : tasks) task.join();
  EXPECT_EQ(failures, 0);
  const ClientStatistics mine = client_->statistics(), others = other->statistics();
  EXPECT_GT(mine.conflicts + others.conflicts, 0u) << "no contention, so the test proves nothing";
  EXPECT_EQ(mine.begun, mine.committed + mine.aborted);
  EXPECT_LT(mine.frames_out, mine.messages_out) << "fibers' messages travel together";
  std::printf("%d scans, %lu + %lu committed, %lu + %lu conflicts\n", scans, mine.committed, others.committed,
              mine.conflicts, others.conflicts);
}

// Many fibers increment one record. The final value proves that no update was lost.
TEST_F(TransactionTest, NoUpdateIsLost) {
  const Table table = accounts();
  fill(table, 1, 0);
  std::vector<Task> tasks;
  std::atomic<int64_t> done{0};
  for (int fiber = 0; fiber < 8; ++fiber) {
    tasks.push_back(client_->spawn([&] {
      for (int i = 0; i < 20; ++i) {
        const Status status = client_->run_transaction(
            [&](Transaction& tx) -> Status {
              LOAM_ASSIGN_OR_RETURN(Record record, tx.get(table, Key(0)));
              LOAM_RETURN_IF_ERROR(record.set(0, Value::int64(record.int64(0) + 1)));
              return tx.update(table, Key(0), record);
            },
            {.read_only = false, .retry = {.max_attempts = 1'000}});
        if (status.ok()) ++done;
      }
    }));
  }
  for (Task& task : tasks) task.join();
  EXPECT_EQ(done, 160);
  EXPECT_EQ(balance(table, 0), 160);
}

// Each of two doctors may leave while the other one stays. Snapshot isolation lets both leave; get_for_update() does
// not.
TEST_F(TransactionTest, WriteSkewIsPossibleUnlessReadForUpdate) {
  for (const bool for_update : {false, true}) {
    const Table table = accounts();
    fill(table, 2, 1);
    const auto other_client = cluster_->client();
    auto a = client_->begin().value();
    auto b = other_client->begin().value();
    const auto leave = [&](Transaction& tx, uint64_t mine) -> Status {
      const Key other(1 - mine);
      LOAM_ASSIGN_OR_RETURN(const Record stays, for_update ? tx.get_for_update(table, other) : tx.get(table, other));
      if (stays.int64(0) == 0) return {StatusCode::kCancelled, "the other has left"};
      LOAM_RETURN_IF_ERROR(tx.update(table, Key(mine), {Value::int64(0), Value::null()}));
      return tx.commit();
    };
    const Status first = leave(a, 0), second = leave(b, 1);
    EXPECT_TRUE(first.ok()) << first.to_string();
    EXPECT_EQ(second.code(), for_update ? StatusCode::kConflict : StatusCode::kOk);
    EXPECT_EQ(balance(table, 0) + balance(table, 1), for_update ? 1 : 0);
  }
}

TEST_F(TransactionTest, RunTransactionRetriesConflictsOnly) {
  const Table table = accounts();
  fill(table, 1, 0);
  int calls = 0;
  const Status refused = client_->run_transaction([&](Transaction&) -> Status {
    ++calls;
    return {StatusCode::kInvalidArgument, "the application says no"};
  });
  EXPECT_EQ(refused.to_string(), "kInvalidArgument: the application says no");
  EXPECT_EQ(calls, 1);
  calls = 0;
  const Status conflict = client_->run_transaction(
      [&](Transaction&) -> Status {
        ++calls;
        return {StatusCode::kConflict, "always"};
      },
      {.read_only = false, .retry = {.max_attempts = 5, .initial_backoff_ns = 1'000, .max_backoff_ns = 10'000}});
  EXPECT_EQ(conflict.code(), StatusCode::kConflict);
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(client_->statistics().retries, 4u);
  EXPECT_TRUE(all_transactions_ended());
}

TEST_F(TransactionTest, NothingIsLeftOpen) {
  const Table table = accounts();
  fill(table, 10, 1);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(client_
                    ->run_transaction(
                        [&](Transaction& tx) { return tx.update(table, Key(1), {Value::int64(i), Value::null()}); })
                    .ok());
  }
  client_.reset();  // waits for background fibers
  EXPECT_EQ(cluster_->manager().statistics().core.open, 0u);
  EXPECT_EQ(read_only_snapshots(), 0u);
}

}  // namespace
}  // namespace loam::client
