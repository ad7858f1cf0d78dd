// Client::rename_table against a cluster: handles, transactions, indexes and other clients.
#include <algorithm>
#include <string>
#include <vector>

#include "client-lib/testing/cluster_test_fixture.h"

namespace loam::client {
namespace {

class RenameTest : public ClusterTest {
 protected:
  static Schema schema() { return Schema::make({{"x", FieldType::kInt64, false}}).value(); }
  Table create(const std::string& name) {
    return client_->create_table(name, TableKind::kTransactional, schema()).value();
  }
  Status insert(const Table& table, uint64_t key, int64_t x) {
    return client_->run_transaction([&](Transaction& tx) { return tx.insert(table, Key(key), {Value::int64(x)}); });
  }
};

TEST_F(RenameTest, KeepsIdRecordsAndIndexes) {
  const auto other = cluster_->client();
  const Table old = create("rename.old");
  ASSERT_TRUE(insert(old, 1, 7).ok());
  const Index index = client_->create_index("rename.by_x", old, {{"x"}}, {.unique = true}).value();
  const Table known = other->open_table("rename.old").value();

  const auto renamed = client_->rename_table("rename.old", "rename.new");
  ASSERT_TRUE(renamed.ok()) << renamed.status().to_string();
  EXPECT_EQ(renamed->id(), old.id());
  EXPECT_EQ(renamed->name(), "rename.new");
  EXPECT_EQ(renamed->schema(), schema());
  EXPECT_EQ(other->open_table("rename.new")->id(), old.id());
  const auto gone = other->open_table("rename.old");
  EXPECT_EQ(gone.code(), StatusCode::kNoSuchTable);
  EXPECT_NE(gone.status().message().find("renamed"), std::string::npos) << gone.status().to_string();
  EXPECT_EQ(other->drop_table("rename.old").code(), StatusCode::kNoSuchTable);
  EXPECT_EQ(other->open_index("rename.by_x")->table().name(), "rename.new");

  // The handle of the other client has the old name, and works.
  auto tx = other->begin().value();
  EXPECT_EQ(tx.get(known, Key(1))->int64(0), 7);
  EXPECT_EQ(tx.get(index, {Value::int64(7)})->key(), Key(1));
  ASSERT_TRUE(tx.update(known, Key(1), {Value::int64(8)}).ok());
  ASSERT_TRUE(tx.commit().ok());
  auto reader = client_->begin({.read_only = true, .retry = {}}).value();
  EXPECT_EQ(reader.get(*renamed, Key(1))->int64(0), 8);
  EXPECT_EQ(reader.get(index, {Value::int64(8)})->key(), Key(1));
}

TEST_F(RenameTest, OpenTransactionsAndScansGoOn) {
  const auto other = cluster_->client();
  const Table table = create("rename.open");
  ASSERT_TRUE(insert(table, 1, 7).ok());
  auto tx = other->begin().value();
  ASSERT_TRUE(tx.update(table, Key(1), {Value::int64(8)}).ok());
  Query query;
  query.aggregates = {{AggregateOp::kSum, 0}};
  auto stream = other->scan(table, query).value();
  ASSERT_TRUE(client_->rename_table("rename.open", "rename.opened").ok());
  EXPECT_EQ(stream.collect().value()[0]->view().get<int64_t>(0, 0), 7);
  EXPECT_EQ(tx.get(table, Key(1))->int64(0), 8);
  EXPECT_TRUE(tx.commit().ok());
  const auto tables = client_->list_tables().value();
  EXPECT_EQ(std::ranges::count(tables, table.id(), &Table::id), 1);
}

TEST_F(RenameTest, TwoTablesCanChangeTheirNames) {
  const Table a = create("rename.a");
  const Table b = create("rename.b");
  ASSERT_TRUE(client_->rename_table("rename.a", "rename.c").ok());
  ASSERT_TRUE(client_->rename_table("rename.b", "rename.a").ok());
  ASSERT_TRUE(client_->rename_table("rename.c", "rename.b").ok());
  EXPECT_EQ(client_->open_table("rename.a")->id(), b.id());
  EXPECT_EQ(client_->open_table("rename.b")->id(), a.id());
}

TEST_F(RenameTest, RefusesOtherNames) {
  const Table table = create("rename.t");
  create("rename.taken");
  ASSERT_TRUE(client_->create_index("rename.i", table, {{"x"}}).ok());
  const auto code = [&](std::string_view name, std::string_view new_name) {
    return client_->rename_table(name, new_name).code();
  };
  EXPECT_EQ(code("rename.t", "rename.taken"), StatusCode::kAlreadyExists);
  EXPECT_EQ(code("rename.t", "rename.i"), StatusCode::kAlreadyExists);
  EXPECT_EQ(code("rename.t", "rename.t"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("rename.t", ""), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("rename.t", "a b"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("rename.t", "loam.t"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("loam.counters", "rename.counters"), StatusCode::kInvalidArgument);
  EXPECT_EQ(code("rename.nothing", "rename.u"), StatusCode::kNoSuchTable);
  EXPECT_EQ(code("rename.i", "rename.j"), StatusCode::kWrongTableKind);
  EXPECT_EQ(client_->open_table("rename.t")->id(), table.id());
}

}  // namespace
}  // namespace loam::client
