#include "commit-manager/src/catalog/catalog_store.h"

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/src/catalog/durable_state.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

Schema schema() { return Schema::make({{"id", FieldType::kInt64, false}}).value(); }

wire::CreateTable request(const std::string& name) { return {name, TableKind::kTransactional, schema()}; }

TEST(CatalogStore, ChecksNames) {
  const CoreOptions options;
  const CatalogStore catalog(options);
  for (const char* good : {"a", "_x", "Order_Line-2.idx", "z9"}) {
    EXPECT_TRUE(catalog.check(request(good)).ok()) << good;
  }
  EXPECT_TRUE(catalog.check(request(std::string(wire::kMaxTableNameBytes, 'n'))).ok());
  for (const std::string& bad : {std::string(), std::string("9a"), std::string("a b"), std::string("a/b"),
                                 std::string("a\0b", 3), std::string("grün"), std::string("-a"), std::string(".a"),
                                 std::string("loam.mine"), std::string(wire::kMaxTableNameBytes + 1, 'n')}) {
    EXPECT_EQ(catalog.check(request(bad)).code(), StatusCode::kInvalidArgument) << bad;
  }
}

TEST(CatalogStore, ChecksKindAndSchema) {
  const CoreOptions options;
  const CatalogStore catalog(options);
  wire::CreateTable wrong = request("t");
  wrong.kind = TableKind{9};
  EXPECT_EQ(catalog.check(wrong).code(), StatusCode::kInvalidArgument);
  wrong = request("t");
  wrong.schema = Schema();
  EXPECT_EQ(catalog.check(wrong).code(), StatusCode::kInvalidArgument);
}

TEST(CatalogStore, LimitsTablesAndBytes) {
  CoreOptions options;
  options.max_tables = 3;
  CatalogStore catalog(options);
  ASSERT_TRUE(catalog.add(request("a")).ok());
  ASSERT_TRUE(catalog.add(request("b")).ok());
  EXPECT_EQ(catalog.add(request("c")).code(), StatusCode::kOverloaded);
  catalog.remove("a");
  EXPECT_TRUE(catalog.add(request("c")).ok());
  catalog.check_invariants();

  CoreOptions small;
  small.max_catalog_bytes = 150;
  CatalogStore tight(small);
  EXPECT_TRUE(tight.add(request("a")).ok());
  EXPECT_EQ(tight.add(request(std::string(128, 'b'))).code(), StatusCode::kOverloaded);
  tight.check_invariants();
}

TEST(CatalogStore, RenamesTables) {
  CoreOptions options;
  options.max_catalog_bytes = 150;
  CatalogStore catalog(options);
  const TableId id = catalog.add(request("b")).value().id;
  catalog.activate("b");
  const uint64_t revision = catalog.node_catalog_revision();
  const wire::CatalogVersion version = catalog.version();
  ASSERT_TRUE(catalog.check({"b", "a_longer_name"}).ok());
  EXPECT_EQ(catalog.rename("b", "a_longer_name").id, id);
  EXPECT_EQ(catalog.find("b"), nullptr);
  ASSERT_NE(catalog.find("a_longer_name"), nullptr);
  EXPECT_EQ(catalog.find(id), catalog.find("a_longer_name"));
  EXPECT_EQ(catalog.version(), version + 1);
  EXPECT_GT(catalog.node_catalog_revision(), revision) << "a node that registers now gets the new name";
  catalog.check_invariants();
  EXPECT_EQ(catalog.check({"a_longer_name", std::string(128, 'c')}).code(), StatusCode::kOverloaded);
  EXPECT_TRUE(catalog.check({"a_longer_name", "c"}).ok()) << "a shorter name always has room";
}

TEST(CatalogStore, NeverReusesIds) {
  const CoreOptions options;
  CatalogStore catalog(options);
  const TableId first = catalog.add(request("a")).value().id;
  catalog.remove("a");
  EXPECT_EQ(catalog.add(request("a")).value().id.value, first.value + 1);
}

TEST(CatalogStore, PendingTablesAreForNodesOnly) {
  const CoreOptions options;
  CatalogStore catalog(options);
  const wire::CatalogVersion version = catalog.version();
  ASSERT_TRUE(catalog.add(request("a")).ok());
  EXPECT_EQ(catalog.version(), version);
  EXPECT_EQ(catalog.catalog(false).tables.size(), 1u);
  EXPECT_EQ(catalog.catalog(true).tables.size(), 2u);
  catalog.activate("a");
  EXPECT_EQ(catalog.version(), version + 1);
  EXPECT_EQ(catalog.catalog(false).tables.size(), 2u);
  EXPECT_EQ(catalog.catalog(false).version, version + 1);
}

/// A state stores the tables of users. Loam's own tables come from the running version.
TEST(CatalogStore, DoesNotRestoreObsoleteSystemTable) {
  std::ifstream file(LOAM_TEST_DATA "/state_of_format_4", std::ios::binary);  // written when there were two of them
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto state = decode_state(as_bytes(text));
  ASSERT_TRUE(state.ok()) << state.status().to_string();
  const CoreOptions options;
  CatalogStore catalog(options);
  catalog.restore(*state);
  std::vector<std::string> names;
  for (const wire::TableInfo& table : catalog.catalog(true).tables) names.push_back(table.name);
  EXPECT_EQ(names, (std::vector<std::string>{"accounts", "accounts_by_balance", std::string(wire::kCounterTableName)}));
  EXPECT_FALSE(catalog.known_table(TableId(1)));
  DurableState saved;
  catalog.save(saved);
  EXPECT_EQ(saved.tables.size(), 2u);
  catalog.check_invariants();
}

TEST(CatalogStore, FullCatalogFitsIntoOneMessage) {
  // All limits at once: tables of kMaxCatalogBytes, kMaxNodes nodes with long addresses, the shard map.
  const CoreOptions options;
  CatalogStore catalog(options);
  for (size_t i = 0; i < kMaxNodes; ++i) {
    std::string address = std::to_string(i);
    address.resize(kMaxAddressBytes, 'a');
    ASSERT_TRUE(catalog.register_node({address, std::string(kMaxAddressBytes, 'b'), 1}).ok());
  }
  std::vector<Field> fields;
  for (size_t i = 0; i < kMaxFields; ++i) {
    fields.push_back({"f" + std::to_string(i) + std::string(240, 'f'), FieldType::kInt64, false});
  }
  wire::CreateTable wide{"", TableKind::kTransactional, Schema::make(fields).value()};
  size_t added = 0;
  for (;; ++added) {
    wide.name = "t" + std::to_string(added);
    if (!catalog.add(wide).ok()) break;
    catalog.activate(wide.name);
  }
  EXPECT_GT(added, 20u);
  Buffer encoded;
  wire::encode_message(wire::GetCatalogReply{catalog.catalog(false)}, 1, encoded);
  EXPECT_LT(encoded.size(), size_t{16} << 20)
      << "the largest message of a transport (common/net/transport/transport.h)";
}

}  // namespace
}  // namespace loam::commit
