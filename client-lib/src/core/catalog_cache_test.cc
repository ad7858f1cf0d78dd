#include "client-lib/src/core/catalog_cache.h"

#include <utility>

#include <gtest/gtest.h>

#include "common/wire/system_tables.h"

namespace loam::client {
namespace {

wire::Catalog catalog(uint64_t version, std::vector<std::string> names) {
  wire::Catalog made;
  made.version = version;
  for (const wire::TableInfo& info : wire::system_tables()) made.tables.push_back(info);
  uint64_t id = wire::kFirstUserTableId.value;
  for (const std::string& name : names) {
    made.tables.push_back(
        {TableId(id++), name, TableKind::kTransactional, Schema::make({{"x", FieldType::kInt64, false}}).value()});
  }
  made.nodes.push_back({NodeId(1), Incarnation(1), "tcp://127.0.0.1:1", ""});
  made.shards.version = version;
  made.shards.owners.assign(wire::kVirtualShards, NodeId(1));
  return made;
}

TEST(CatalogCache, KeepsTheNewest) {
  CatalogCache cache;
  ASSERT_TRUE(cache.install(catalog(5, {"b", "a"}), 1).ok());
  ASSERT_TRUE(cache.install(catalog(4, {"old"}), 1).ok());
  ASSERT_EQ(cache.tables().size(), 2u);
  EXPECT_EQ(cache.tables()[0].name(), "a");
  EXPECT_FALSE(cache.find("old").has_value());
  EXPECT_TRUE(cache.find("loam.counters").has_value());
  EXPECT_EQ(cache.find(TableId(1024))->name(), "b");
  EXPECT_NE(cache.node(NodeId(1)), nullptr);
  EXPECT_EQ(cache.node(NodeId(2)), nullptr);
}

TEST(CatalogCache, HandlesOutliveVersions) {
  CatalogCache cache;
  ASSERT_TRUE(cache.install(catalog(1, {"a"}), 1).ok());
  const Table before = *cache.find("a");
  ASSERT_TRUE(cache.install(catalog(2, {"a", "b"}), 1).ok());
  EXPECT_EQ(before.description(), cache.find("a")->description());
  wire::Catalog renewed = catalog(3, {"a"});
  renewed.tables.back().id = TableId(2000);  // dropped and created again
  ASSERT_TRUE(cache.install(renewed, 1).ok());
  EXPECT_EQ(cache.find("a")->id(), TableId(2000));
  EXPECT_EQ(before.id(), TableId(1024));
}

TEST(CatalogCache, KnowsWhenItIsStale) {
  CatalogCache cache;
  ASSERT_TRUE(cache.install(catalog(5, {}), 1).ok());
  cache.observe_version(5);
  EXPECT_FALSE(cache.stale());
  cache.observe_version(7);
  EXPECT_TRUE(cache.stale());
  ASSERT_TRUE(cache.install(catalog(6, {}), 1).ok());
  EXPECT_TRUE(cache.stale());
  ASSERT_TRUE(cache.install(catalog(7, {}), 1).ok());
  EXPECT_FALSE(cache.stale());
}

// Reads of a tree rely on the schema of the node table, so the catalog must be checked.
TEST(CatalogCache, RejectsIndexesOutsideOfNodeTables) {
  const auto with_index = [](const Schema& schema, TableKind kind) {
    wire::Catalog made = catalog(2, {"a", "by.a"});
    made.tables.back().schema = schema;
    made.tables.back().kind = kind;
    made.tables.back().index.table = TableId(1024);
    made.tables.back().index.parts = {{0, false}};
    return made;
  };
  CatalogCache cache;
  const Schema other = Schema::make({{"x", FieldType::kInt64, false}}).value();
  EXPECT_EQ(cache.install(with_index(other, TableKind::kNonTransactional), 1).code(), StatusCode::kMalformed);
  EXPECT_EQ(cache.install(with_index(wire::index_node_schema(), TableKind::kTransactional), 1).code(),
            StatusCode::kMalformed);
  EXPECT_TRUE(cache.install(with_index(wire::index_node_schema(), TableKind::kNonTransactional), 1).ok());
}

TEST(CatalogCache, RejectsContradictions) {
  CatalogCache cache;
  ASSERT_TRUE(cache.install(catalog(1, {"a"}), 1).ok());
  wire::Catalog few_shards = catalog(2, {});
  few_shards.shards.owners.pop_back();
  wire::Catalog strange_owner = catalog(2, {});
  strange_owner.shards.owners[7] = NodeId(9);
  wire::Catalog same_id = catalog(2, {"a", "b"});
  same_id.tables.back().id = TableId(1024);
  for (const wire::Catalog& bad : {few_shards, strange_owner, same_id, catalog(2, {"a", "a"})}) {
    EXPECT_EQ(cache.install(bad, 1).code(), StatusCode::kMalformed);
    EXPECT_EQ(cache.catalog()->version, 1u);
  }
}

TEST(CatalogCache, ChecksNames) {
  EXPECT_TRUE(check_table_name("accounts").ok());
  EXPECT_TRUE(check_table_name(std::string(wire::kMaxTableNameBytes, 'x')).ok());
  for (const std::string& name : {std::string(), std::string("loam.counters"), std::string("loam.mine"),
                                  std::string(wire::kMaxTableNameBytes + 1, 'x')}) {
    EXPECT_EQ(check_table_name(name).code(), StatusCode::kInvalidArgument) << name;
  }
}

}  // namespace
}  // namespace loam::client
