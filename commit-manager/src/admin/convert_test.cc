#include "commit-manager/src/admin/convert.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

/// The system's own, accounts with two indexes, and a table without.
wire::Catalog catalog() {
  wire::Catalog made;
  made.version = 9;
  for (const wire::TableInfo& info : wire::system_tables()) made.tables.push_back(info);
  const Schema schema =
      Schema::make({{"balance", FieldType::kInt64, false}, {"owner", FieldType::kText, true}}).value();
  const auto index = [](uint64_t id, std::string name, std::vector<wire::IndexPart> parts, bool unique,
                        wire::CatalogVersion ready_since) {
    return wire::TableInfo{TableId(id),
                           std::move(name),
                           TableKind::kNonTransactional,
                           wire::index_node_schema(),
                           {TableId(2000), std::move(parts), unique, ready_since}};
  };
  made.tables.push_back({TableId(2000), "accounts", TableKind::kTransactional, schema});
  made.tables.push_back(index(2001, "by_balance", {{0, true}, {1, false}}, false, 8));
  made.tables.push_back(index(2002, "by_owner", {{1, false}}, true, 0));
  made.tables.push_back({TableId(2003), "plain", TableKind::kNonTransactional, schema});
  return made;
}

void expect_indexes(const admin::Table& accounts) {
  ASSERT_EQ(accounts.indexes_size(), 2);
  const admin::Index& first = accounts.indexes(0);
  EXPECT_EQ(first.id(), 2001u);
  EXPECT_EQ(first.name(), "by_balance");
  EXPECT_FALSE(first.unique());
  EXPECT_TRUE(first.ready());
  ASSERT_EQ(first.fields_size(), 2);
  EXPECT_EQ(first.fields(0).name(), "balance");
  EXPECT_TRUE(first.fields(0).descending());
  EXPECT_EQ(first.fields(1).name(), "owner");
  EXPECT_FALSE(first.fields(1).descending());
  EXPECT_EQ(accounts.indexes(1).name(), "by_owner");
  EXPECT_TRUE(accounts.indexes(1).unique());
  EXPECT_FALSE(accounts.indexes(1).ready()) << "it is being built";
}

TEST(AdminConvert, ListsIndexesWithTheirTable) {
  admin::ListTablesReply reply;
  fill(catalog(), false, reply);
  EXPECT_EQ(reply.catalog_version(), 9u);
  ASSERT_EQ(reply.tables_size(), 2);
  EXPECT_EQ(reply.tables(0).name(), "accounts");
  expect_indexes(reply.tables(0));
  EXPECT_EQ(reply.tables(1).name(), "plain");
  EXPECT_EQ(reply.tables(1).indexes_size(), 0);
  reply.Clear();
  fill(catalog(), true, reply);
  EXPECT_EQ(reply.tables_size(), 3) << "with the system's own";
}

TEST(AdminConvert, DescribesATableWithItsIndexesAndNoIndex) {
  admin::Table table;
  ASSERT_TRUE(fill(catalog(), "accounts", table).ok());
  EXPECT_EQ(table.fields_size(), 2);
  expect_indexes(table);
  const Status index = fill(catalog(), "by_owner", table);
  EXPECT_EQ(index.code(), StatusCode::kNoSuchTable);
  EXPECT_EQ(index.message(), "by_owner is an index of table accounts, not a table");
  EXPECT_EQ(fill(catalog(), "nothing", table).code(), StatusCode::kNoSuchTable);
}

TEST(AdminConvert, CarriesEveryTypeBothWays) {
  std::vector<Field> fields;
  for (int kind = admin::INT16; kind < admin::DECIMAL; ++kind) {
    fields.push_back({"f" + std::to_string(kind), static_cast<FieldType::Kind>(kind), true});
  }
  fields.push_back({"price", FieldType::decimal(12, 2), false});
  wire::Catalog made = catalog();
  made.tables.push_back({TableId(2004), "types", TableKind::kTransactional, Schema::make(fields).value()});
  admin::Table table;
  ASSERT_TRUE(fill(made, "types", table).ok());
  admin::CreateTableRequest request;
  request.set_name("again");
  request.set_kind(admin::TRANSACTIONAL);
  *request.mutable_fields() = table.fields();
  const auto create = from_proto(request);
  ASSERT_TRUE(create.ok()) << create.status().to_string();
  EXPECT_EQ(create->schema.fields(), fields);
  admin::Field& last = *request.mutable_fields(request.fields_size() - 1);
  for (const auto& [digits, scale] : {std::pair(39u, 2u), {3u, 4u}, {0u, 0u}, {268u, 2u}}) {
    last.set_digits(digits);
    last.set_scale(scale);
    EXPECT_EQ(from_proto(request).code(), StatusCode::kInvalidArgument) << digits << " " << scale;
  }
  last.set_type(admin::INT64);
  EXPECT_NE(from_proto(request).status().message().find("which only decimals have"), std::string_view::npos);
}

std::map<std::string, uint64_t> numbers(const google::protobuf::RepeatedPtrField<loam::admin::Statistic>& statistics) {
  std::map<std::string, uint64_t> result;
  for (const loam::admin::Statistic& one : statistics) result[one.name()] = one.number();
  return result;
}

TEST(AdminConvert, TellsWhereTheCommitLogIsAndWhatRecoveryWaitsFor) {
  ManagerStatistics statistics;
  statistics.core.log_accepted = 12;
  statistics.core.log_flushed = 10;
  statistics.core.log_truncated_up_to = 7;
  statistics.core.log_bytes = 300;
  statistics.recovery.intents = 5;
  statistics.recovery.waiting = {{NodeId(2), 3}};
  admin::StatisticsReply reply;
  fill(statistics, reply);
  const auto core = numbers(reply.statistics());
  EXPECT_EQ(core.at("log_accepted"), 12u);
  EXPECT_EQ(core.at("log_flushed"), 10u);
  EXPECT_EQ(core.at("log_truncated_up_to"), 7u);
  EXPECT_EQ(core.at("log_bytes"), 300u);
  EXPECT_EQ(numbers(reply.recovery().statistics()).at("intents"), 5u);
  ASSERT_EQ(reply.recovery().waiting_size(), 1);
  EXPECT_EQ(reply.recovery().waiting(0).node(), 2u);
  EXPECT_EQ(reply.recovery().waiting(0).tasks(), 3u);
}

}  // namespace
}  // namespace loam::commit
