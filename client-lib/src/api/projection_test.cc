// Reads and updates of some fields against a cluster.
#include <array>
#include <string>
#include <vector>

#include "client-lib/testing/cluster_test_fixture.h"

namespace loam::client {
namespace {

class ProjectionTest : public ClusterTest {
 protected:
  static const Schema& schema() {
    static const Schema made = Schema::make({{"balance", FieldType::kInt64, false},
                                             {"note", FieldType::kText, true},
                                             {"visits", FieldType::kInt32, true},
                                             {"photo", FieldType::kBlob, false}})
                                   .value();
    return made;
  }
  static std::vector<Value> row(int64_t balance, std::string_view note) {
    return {Value::int64(balance), Value::text(note), Value::null(), Value::blob(as_bytes("jpeg"))};
  }

  Table people(TableKind kind = TableKind::kTransactional) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    return client_->create_table(std::string("projection.") + test->name() + std::to_string(tables_++), kind, schema())
        .value();
  }
  void put(const Table& table, uint64_t key, const std::vector<Value>& values) {
    const Status status = client_->run_transaction([&](Transaction& tx) { return tx.insert(table, Key(key), values); });
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  std::vector<Value> values(const Table& table, uint64_t key) {
    auto tx = client_->begin({.read_only = true, .retry = {}}).value();
    return values(tx.get(table, Key(key)).value());
  }
  static std::vector<Value> values(const Record& record) {
    std::vector<Value> all;
    for (size_t i = 0; i < record.table().schema().size(); ++i) all.push_back(record.value(i).value());
    return all;
  }
};

TEST_F(ProjectionTest, GetReturnsTheNamedFields) {
  const Table table = people();
  put(table, 1, row(10, "first"));
  put(table, 2, row(20, "second"));
  auto tx = client_->begin({.read_only = true, .retry = {}}).value();
  const Record record = tx.get(table, Key(1), {"note", "balance"}).value();
  EXPECT_EQ(values(record), (std::vector{Value::text("first"), Value::int64(10)}));
  EXPECT_EQ(record.int64("balance"), 10);
  EXPECT_EQ(record.version(), tx.get(table, Key(1))->version());
  EXPECT_EQ(record.key(), Key(1));
  EXPECT_EQ(record.value("photo").code(), StatusCode::kInvalidArgument);
  const Table notes = table.project({"note"}).value();
  const auto many = tx.get_many(notes, std::array{Key(2), Key(3), Key(1)});
  EXPECT_EQ(values(many[0].value()), (std::vector{Value::text("second")}));
  EXPECT_EQ(many[1].status().to_string(), "kNotFound: record 3 of table " + table.name() + " does not exist");
  EXPECT_EQ(many[2].value().text(0), "first");
  EXPECT_EQ(tx.get_async(notes, Key(2)).get()->text("note"), "second");
  const Status wrong = tx.get(table, Key(1), {"notes"}).status();
  EXPECT_EQ(wrong.to_string(), "kInvalidArgument: table " + table.name() +
                                   ": no field is named 'notes'; the fields are balance, note, visits, photo");
}

TEST_F(ProjectionTest, UpdateChangesTheNamedFields) {
  const Table table = people();
  put(table, 1, row(10, "first"));
  ASSERT_TRUE(client_
                  ->run_transaction([&](Transaction& tx) {
                    return tx.update(table, Key(1), {{"visits", Value::int32(3)}, {"note", Value::null()}});
                  })
                  .ok());
  EXPECT_EQ(values(table, 1),
            (std::vector{Value::int64(10), Value::null(), Value::int32(3), Value::blob(as_bytes("jpeg"))}));
  // A record of a projection is written back as one.
  ASSERT_TRUE(client_
                  ->run_transaction([&](Transaction& tx) -> Status {
                    LOAM_ASSIGN_OR_RETURN(Record record, tx.get(table, Key(1), {"balance"}));
                    LOAM_RETURN_IF_ERROR(record.set("balance", Value::int64(record.int64("balance") + 1)));
                    return tx.update(table, Key(1), record);
                  })
                  .ok());
  const Table notes = table.project({"note"}).value();
  ASSERT_TRUE(client_
                  ->run_transaction(
                      [&](Transaction& tx) { return tx.update(notes, Key(1), {Value::text(std::string(5'000, 'x'))}); })
                  .ok());
  EXPECT_EQ(values(table, 1), (std::vector{Value::int64(11), Value::text(std::string(5'000, 'x')), Value::int32(3),
                                           Value::blob(as_bytes("jpeg"))}));
}

TEST_F(ProjectionTest, UpdatesOfDifferentFieldsConflictLikeAny) {
  const Table table = people();
  put(table, 1, row(10, "first"));
  const auto other_client = cluster_->client();  // the client would foresee a conflict within itself
  auto one = other_client->begin().value();
  auto two = client_->begin().value();
  ASSERT_TRUE(one.update(table, Key(1), {{"balance", Value::int64(1)}}).ok());
  ASSERT_TRUE(two.update(table, Key(1), {{"note", Value::text("two")}}).ok());
  ASSERT_TRUE(one.commit().ok());
  EXPECT_EQ(two.commit().code(), StatusCode::kConflict);
  EXPECT_EQ(values(table, 1), row(1, "first"));
}

TEST_F(ProjectionTest, FailedCommitUndoesFieldUpdates) {
  const Table table = people();
  for (uint64_t key = 0; key < 20; ++key) put(table, key, row(100, "kept"));
  auto late = client_->begin().value();
  ASSERT_TRUE(cluster_->client()->run_transaction([&](Transaction& tx) { return tx.remove(table, Key(13)); }).ok());
  for (uint64_t key = 0; key < 20; ++key) {
    ASSERT_TRUE(late.update(table, Key(key), {{"balance", Value::int64(-1)}}).ok());
  }
  EXPECT_EQ(late.commit().code(), StatusCode::kConflict);
  EXPECT_EQ(client_->statistics().local_conflicts, 0u) << "the conflict was foreseen, and no update was undone";
  for (uint64_t key = 0; key < 20; ++key) {
    if (key == 13) continue;
    EXPECT_EQ(values(table, key), row(100, "kept"));
  }
  const Status missing = client_->run_transaction(
      [&](Transaction& tx) { return tx.update(table, Key(13), {{"balance", Value::int64(-1)}}); });
  EXPECT_EQ(missing.to_string(), "kNotFound: record 13 of table " + table.name() + " does not exist");
}

TEST_F(ProjectionTest, ReadsItsOwnUpdatesOverTheSnapshot) {
  const Table table = people();
  put(table, 1, row(10, "first"));
  auto tx = client_->begin().value();
  const uint64_t before = client_->statistics().round_trips;
  ASSERT_TRUE(tx.update(table, Key(1), {{"balance", Value::int64(11)}}).ok());
  EXPECT_EQ(tx.get(table, Key(1), {"balance"})->int64(0), 11);
  EXPECT_EQ(client_->statistics().round_trips, before) << "the own write has all requested fields";
  // Another transaction changes the record meanwhile. The other fields are those of the snapshot.
  ASSERT_TRUE(client_
                  ->run_transaction([&](Transaction& other) {
                    return other.update(table, Key(1), {{"note", Value::text("later")}, {"balance", Value::int64(7)}});
                  })
                  .ok());
  const Record whole = tx.get(table, Key(1)).value();
  EXPECT_EQ(values(whole), row(11, "first"));
  EXPECT_EQ(whole.version(), Version()) << "it is its own write";
  auto pending = tx.get_async(table, Key(1));
  ASSERT_TRUE(tx.update(table, Key(1), {{"note", Value::text("mine")}}).ok());
  EXPECT_EQ(values(pending.get().value()), row(11, "first")) << "as it was when the read was started";
  const auto many = tx.get_many(table.project({"note", "photo", "balance"}).value(), std::array{Key(1), Key(1)});
  EXPECT_EQ(values(many[1].value()),
            (std::vector{Value::text("mine"), Value::blob(as_bytes("jpeg")), Value::int64(11)}));
  ASSERT_TRUE(tx.update(table, Key(2), {{"note", Value::text("missing")}}).ok());
  EXPECT_EQ(tx.get(table, Key(2)).code(), StatusCode::kNotFound);
  EXPECT_FALSE(tx.commit().ok()) << "one of its records has changed, and one does not exist";
}

TEST_F(ProjectionTest, GetForUpdateOfSomeFieldsProtectsTheRecord) {
  const Table table = people();
  put(table, 1, row(10, "first"));
  auto guard = client_->begin().value();
  EXPECT_EQ(guard.get_for_update(table.project({"balance"}).value(), Key(1))->int64(0), 10);
  ASSERT_TRUE(cluster_->client()
                  ->run_transaction(
                      [&](Transaction& tx) { return tx.update(table, Key(1), {{"note", Value::text("changed")}}); })
                  .ok());
  EXPECT_EQ(guard.commit().code(), StatusCode::kConflict);
  auto again = client_->begin().value();
  ASSERT_TRUE(again.get_for_update(table.project({"balance"}).value(), Key(1)).ok());
  ASSERT_TRUE(again.commit().ok());
  EXPECT_EQ(values(table, 1), row(10, "changed")) << "it wrote back the fields that it had read";
}

TEST_F(ProjectionTest, CallsThatNeedTheWholeTableRejectProjections) {
  const Table table = people();
  put(table, 1, row(10, "first"));
  const Table notes = table.project({"note"}).value();
  auto tx = client_->begin().value();
  EXPECT_EQ(tx.insert(notes, Key(2), {Value::text("x")}).to_string(),
            "kInvalidArgument: table " + table.name() + ": an insert needs the whole table, not a projection of it");
  EXPECT_EQ(tx.scan(notes, sum_query()).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->scan(notes, sum_query()).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(tx.remove(notes, Key(1)).ok()) << "a removal removes the whole record";
  ASSERT_TRUE(tx.commit().ok());
  const Table plain = people(TableKind::kNonTransactional);
  auto handle = client_->plain(plain.project({"note"}).value()).value();
  EXPECT_EQ(handle.insert(Key(1), {Value::text("x")}).code(), StatusCode::kInvalidArgument);
}

TEST_F(ProjectionTest, RowThatGetsTooLargeFailsTheCommit) {
  const Table table = people();
  put(table, 1, {Value::int64(1), Value::null(), Value::null(), Value::blob(Buffer(kMaxRowBytes / 2))});
  const Status status = client_->run_transaction([&](Transaction& tx) {
    return tx.update(table, Key(1), {{"note", Value::text(std::string(kMaxRowBytes / 2, 'x'))}});
  });
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("record 1 of table " + table.name()), std::string::npos) << status.to_string();
  EXPECT_NE(status.message().find("would have more than the 1048576 bytes"), std::string::npos) << status.to_string();
}

TEST_F(ProjectionTest, PlainTablesUpdateFieldsByExactVersion) {
  const Table table = people(TableKind::kNonTransactional);
  PlainTable whole = client_->plain(table).value();
  const Version first = whole.insert(Key(1), Record::make(table, row(10, "first")).value()).value();
  const Version second = whole.update(Key(1), first, {{"balance", Value::int64(11)}}).value();
  EXPECT_EQ(whole.update(Key(1), first, {{"balance", Value::int64(12)}}).code(), StatusCode::kConflict);
  EXPECT_EQ(whole.update(Key(2), first, {{"balance", Value::int64(12)}}).code(), StatusCode::kConflict);
  EXPECT_EQ(whole.update(Key(2), Version(), {{"balance", Value::int64(12)}}).code(), StatusCode::kConflict);
  PlainTable notes = client_->plain(table.project({"note"}).value()).value();
  const Record note = notes.get(Key(1)).value();
  EXPECT_EQ(note.version(), second);
  EXPECT_EQ(values(note), (std::vector{Value::text("first")}));
  ASSERT_TRUE(notes.update(Key(1), second, {Value::text("longer than before")}).ok());
  EXPECT_EQ(values(whole.get(Key(1)).value()), row(11, "longer than before"));
  EXPECT_EQ(values(whole.get(Key(1), {"visits", "balance"}).value()), (std::vector{Value::null(), Value::int64(11)}));
  EXPECT_EQ(whole.get(Key(1), {"weight"}).code(), StatusCode::kInvalidArgument);
}

/// Each fiber increments its own field of the same records, by updates of this field alone. No increment is lost, and
/// none overwrites another fiber's field.
TEST_F(ProjectionTest, ConcurrentCountersInOneRecordLoseNothing) {
  std::vector<Field> fields = {{"text", FieldType::kText, false}};
  constexpr int kFibers = 4;
  constexpr int kRounds = 25;
  for (int i = 0; i < kFibers; ++i) fields.push_back({"c" + std::to_string(i), FieldType::kInt64, false});
  const Table table =
      client_->create_table("projection.counters", TableKind::kTransactional, Schema::make(fields).value()).value();
  put(table, 1, {Value::text(""), Value::int64(0), Value::int64(0), Value::int64(0), Value::int64(0)});
  std::vector<Task> tasks;
  for (int i = 0; i < kFibers; ++i) {
    tasks.push_back(client_->spawn([&, i] {
      const std::string mine = "c" + std::to_string(i);
      const Table counter = table.project({mine, "text"}).value();
      for (int round = 0; round < kRounds; ++round) {
        const Status status = client_->run_transaction(
            [&](Transaction& tx) -> Status {
              LOAM_ASSIGN_OR_RETURN(const Record record, tx.get(counter, Key(1)));
              return tx.update(
                  counter, Key(1),
                  {Value::int64(record.int64(0) + 1), Value::text(std::string(static_cast<size_t>(round * i), 'x'))});
            },
            {.read_only = false, .retry = {.max_attempts = 10'000}});
        EXPECT_TRUE(status.ok()) << status.to_string();
      }
    }));
  }
  for (Task& task : tasks) task.join();
  const std::vector<Value> end = values(table, 1);
  for (size_t i = 1; i < end.size(); ++i) EXPECT_EQ(end[i], Value::int64(kRounds));
}

}  // namespace
}  // namespace loam::client
