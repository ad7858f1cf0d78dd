// Client::add_field against a cluster: old and new records, handles of different ages, indexes and scans.
#include <algorithm>
#include <string>
#include <vector>

#include "client-lib/testing/cluster_test_fixture.h"

namespace loam::client {
namespace {

class AddFieldTest : public ClusterTest {
 protected:
  Table create(TableKind kind = TableKind::kTransactional) {
    const Schema schema = Schema::make({{"n", FieldType::kInt64, false}, {"note", FieldType::kText, true}}).value();
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    return client_->create_table(std::string("add_field.") + test->name(), kind, schema).value();
  }
  static std::vector<Value> old_row(int64_t n) { return {Value::int64(n), Value::text("old")}; }
  Status insert(const Table& table, uint64_t key, const std::vector<Value>& values) {
    return client_->run_transaction([&](Transaction& tx) { return tx.insert(table, Key(key), values); });
  }
  static std::vector<Value> values(const Record& record) {
    std::vector<Value> all;
    for (size_t i = 0; i < record.table().schema().size(); ++i) all.push_back(record.value(i).value());
    return all;
  }
  std::vector<Value> read(const Table& table, uint64_t key) {
    return values(client_->begin({.read_only = true, .retry = {}})->get(table, Key(key)).value());
  }
};

TEST_F(AddFieldTest, OldRecordsReadNull) {
  const auto other = cluster_->client();
  const Table old = create();
  for (uint64_t key = 0; key < 50; ++key) ASSERT_TRUE(insert(old, key, old_row(static_cast<int64_t>(key))).ok());
  const Table known = other->open_table(old.name()).value();
  const auto added = client_->add_field(old, {"day", FieldType::kDate, true});
  ASSERT_TRUE(added.ok()) << added.status().to_string();
  const Table& table = *added;
  EXPECT_EQ(table.id(), old.id());
  ASSERT_EQ(table.schema().size(), 3u);
  EXPECT_EQ(table.schema().field(2).name, "day");
  EXPECT_EQ(read(table, 7), (std::vector{Value::int64(7), Value::text("old"), Value::null()}));
  ASSERT_TRUE(insert(table, 100, {Value::int64(100), Value::null(), Value::date(5)}).ok());
  EXPECT_EQ(read(table, 100), (std::vector{Value::int64(100), Value::null(), Value::date(5)}));

  // A handle of another client, from before.
  auto tx = other->begin().value();
  EXPECT_EQ(values(tx.get(known, Key(100)).value()), (std::vector{Value::int64(100), Value::null()}));
  ASSERT_TRUE(tx.update(known, Key(100), {Value::int64(101), Value::text("older")}).ok());
  ASSERT_TRUE(tx.insert(known, Key(101), {Value::int64(1), Value::null()}).ok());
  ASSERT_TRUE(tx.commit().ok());
  EXPECT_EQ(read(table, 100), (std::vector{Value::int64(101), Value::text("older"), Value::date(5)}))
      << "the older handle does not erase the field";
  EXPECT_EQ(read(table, 101), (std::vector{Value::int64(1), Value::null(), Value::null()}));
  EXPECT_EQ(other->open_table(old.name())->schema().size(), 3u);

  // A program from before the change creates the table again, and gets the fields that it knows.
  const Table again = other->create_table(old.name(), TableKind::kTransactional, old.schema()).value();
  EXPECT_EQ(again.id(), old.id());
  EXPECT_EQ(again.schema().size(), 2u);
  EXPECT_EQ(client_->add_field(old, {"day", FieldType::kDate, true})->schema().size(), 3u) << "a repetition";
}

TEST_F(AddFieldTest, ScansAndIndexesSeeTheField) {
  const Table old = create();
  for (uint64_t key = 0; key < 300; ++key) ASSERT_TRUE(insert(old, key, old_row(1)).ok());
  const Table table = client_->add_field(old, {"m", FieldType::kInt32, true}).value();
  for (uint64_t key = 0; key < 300; key += 3) {
    ASSERT_TRUE(client_
                    ->run_transaction(
                        [&](Transaction& tx) { return tx.update(table, Key(key), {FieldValue{"m", Value::int32(2)}}); })
                    .ok());
  }
  Query query;
  query.aggregates = {
      {AggregateOp::kCountAll, 0}, {AggregateOp::kSum, 0}, {AggregateOp::kCount, 2}, {AggregateOp::kSum, 2}};
  const auto chunks = client_->scan(table, query)->collect().value();
  for (const auto& [column, expected] : {std::pair<size_t, int64_t>{0, 300}, {1, 300}, {2, 100}, {3, 200}}) {
    EXPECT_EQ(chunks[0]->view().get<int64_t>(column, 0), expected) << column;
  }
  const Index index = client_->create_index(table.name() + ".m", table, {{"m"}}).value();
  const auto found = [&](const Value& value) {
    auto tx = client_->begin({.read_only = true, .retry = {}}).value();
    const IndexBound bound{{value}, true};
    return tx.range(index, {.from = bound, .to = bound})->size();
  };
  EXPECT_EQ(found(Value::int32(2)), 100u);
  EXPECT_EQ(found(Value::null()), 200u);
  // An insert through the old handle has the key NULL; an update through it leaves the key.
  ASSERT_TRUE(insert(old, 1'000, old_row(1)).ok());
  ASSERT_TRUE(client_->run_transaction([&](Transaction& tx) { return tx.update(old, Key(0), old_row(9)); }).ok());
  EXPECT_EQ(found(Value::int32(2)), 100u);
  EXPECT_EQ(found(Value::null()), 201u);
  EXPECT_EQ(read(table, 0), (std::vector{Value::int64(9), Value::text("old"), Value::int32(2)}));
}

TEST_F(AddFieldTest, OneTransactionMixesHandlesOfDifferentAges) {
  const Table old = create();
  for (uint64_t key = 1; key <= 6; ++key) ASSERT_TRUE(insert(old, key, old_row(1)).ok());
  const Table table = client_->add_field(old, {"m", FieldType::kInt32, true}).value();
  ASSERT_TRUE(insert(table, 7, {Value::int64(1), Value::null(), Value::int32(7)}).ok());
  auto tx = client_->begin().value();
  // 1: insert by the old handle, field by the new one.
  ASSERT_TRUE(tx.insert(old, Key(10), old_row(10)).ok());
  ASSERT_TRUE(tx.update(table, Key(10), {FieldValue{"m", Value::int32(10)}}).ok());
  // 2: update of the whole row by the old handle, field by the new one.
  ASSERT_TRUE(tx.update(old, Key(1), old_row(2)).ok());
  ASSERT_TRUE(tx.update(table, Key(1), {FieldValue{"m", Value::int32(1)}}).ok());
  // 3: the other way round.
  ASSERT_TRUE(tx.update(table, Key(2), {Value::int64(1), Value::text("new"), Value::int32(2)}).ok());
  ASSERT_TRUE(tx.update(old, Key(2), old_row(3)).ok());
  // 4: removed and inserted again through the old handle: the field becomes NULL.
  ASSERT_TRUE(tx.remove(table, Key(7)).ok());
  ASSERT_TRUE(tx.insert(old, Key(7), old_row(7)).ok());
  // 5: an update through the old handle alone.
  ASSERT_TRUE(tx.update(old, Key(3), old_row(4)).ok());
  const std::vector<std::pair<uint64_t, std::vector<Value>>> expected = {
      {10, {Value::int64(10), Value::text("old"), Value::int32(10)}},
      {1, {Value::int64(2), Value::text("old"), Value::int32(1)}},
      {2, {Value::int64(3), Value::text("old"), Value::int32(2)}},
      {7, {Value::int64(7), Value::text("old"), Value::null()}},
      {3, {Value::int64(4), Value::text("old"), Value::null()}}};
  for (const auto& [key, row] : expected) {
    EXPECT_EQ(values(tx.get(table, Key(key)).value()), row) << key << ", before the commit";
    EXPECT_EQ(values(tx.get(old, Key(key)).value()), (std::vector{row[0], row[1]})) << key;
  }
  ASSERT_TRUE(tx.commit().ok());
  for (const auto& [key, row] : expected) EXPECT_EQ(read(table, key), row) << key;
}

TEST_F(AddFieldTest, OpenTransactionsAndPlainTablesGoOn) {
  const Table old = create();
  ASSERT_TRUE(insert(old, 1, old_row(1)).ok());
  const auto other = cluster_->client();
  const Table known = other->open_table(old.name()).value();
  auto tx = other->begin().value();
  ASSERT_TRUE(tx.update(known, Key(1), old_row(2)).ok());
  const Table table = client_->add_field(old, {"m", FieldType::kInt32, true}).value();
  EXPECT_EQ(values(tx.get(known, Key(1)).value()), old_row(2));
  ASSERT_TRUE(tx.commit().ok());
  EXPECT_EQ(read(table, 1), (std::vector{Value::int64(2), Value::text("old"), Value::null()}));

  const Table plain = client_
                          ->create_table("add_field.plain", TableKind::kNonTransactional,
                                         Schema::make({{"n", FieldType::kInt64, false}}).value())
                          .value();
  PlainTable before = client_->plain(plain).value();
  const Version inserted = before.insert(Key(1), {Value::int64(1)}).value();
  PlainTable after = client_->plain(client_->add_field(plain, {"m", FieldType::kInt32, true}).value()).value();
  const Version second = after.update(Key(1), inserted, {Value::int64(1), Value::int32(5)}).value();
  const Version third = before.update(Key(1), second, {Value::int64(2)}).value();
  const Record now = after.get(Key(1)).value();
  EXPECT_EQ(now.version(), third);
  EXPECT_EQ(values(now), (std::vector{Value::int64(2), Value::int32(5)}));
}

TEST_F(AddFieldTest, RefusesOtherChanges) {
  const Table table = create();
  EXPECT_EQ(client_->add_field(table, {"m", FieldType::kInt32, false}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->add_field(table, {"", FieldType::kInt32, true}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->add_field(table, {"note", FieldType::kText, true}).code(), StatusCode::kAlreadyExists);
  ASSERT_TRUE(client_->drop_table(table.name()).ok());
  EXPECT_EQ(client_->add_field(table, {"m", FieldType::kInt32, true}).code(), StatusCode::kNoSuchTable);
}

}  // namespace
}  // namespace loam::client
