// The whole commit manager over TCP and gRPC on loopback.
#include <thread>

#include "commit-manager/testing/manager_fixture.h"

namespace loam::commit {
namespace {

TEST_F(ManagerTest, TellsClientsTheAdministrationAddress) {
  start();
  auto client = connect();
  const auto opened = client->call<wire::OpenSessionReply>(wire::OpenSession{"test"});
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(opened->admin_address, manager->admin_address());
  ASSERT_TRUE(client->call<wire::BeginReply>(wire::Begin{1, false}).ok());
  const ManagerStatistics statistics = manager->statistics();
  EXPECT_EQ(statistics.core.sessions, 1u);
  EXPECT_EQ(statistics.core.open, 1u);
  EXPECT_GT(statistics.bytes_in, 0u);
  EXPECT_GT(statistics.uptime_ns, 0u);
  manager->stop();
  EXPECT_TRUE(client->until([&] { return client->closed().has_value(); }));
  EXPECT_EQ(manager->statistics().core.sessions, 0u);
  manager->stop();
}

TEST_F(ManagerTest, AdministersTables) {
  start();
  admin::CreateTableReply created;
  ASSERT_EQ(call(&Stub::CreateTable, accounts(), created), grpc::OK) << message;
  EXPECT_FALSE(created.existed());
  EXPECT_EQ(created.table().name(), "accounts");
  ASSERT_EQ(created.table().fields_size(), 2);
  EXPECT_EQ(created.table().fields(1).type(), admin::TEXT);
  EXPECT_TRUE(created.table().fields(1).nullable());
  ASSERT_EQ(call(&Stub::CreateTable, accounts(), created), grpc::OK);
  EXPECT_TRUE(created.existed());

  admin::CreateTableRequest other = accounts();
  other.mutable_fields(0)->set_type(admin::INT32);
  EXPECT_EQ(call(&Stub::CreateTable, other, created), grpc::ALREADY_EXISTS);
  EXPECT_NE(message.find("schema changes are refused"), std::string::npos) << message;

  admin::ListTablesReply tables;
  ASSERT_EQ(call(&Stub::ListTables, admin::ListTablesRequest(), tables), grpc::OK);
  ASSERT_EQ(tables.tables_size(), 1);
  admin::ListTablesRequest with_system;
  with_system.set_with_system(true);
  ASSERT_EQ(call(&Stub::ListTables, with_system, tables), grpc::OK);
  EXPECT_EQ(tables.tables_size(), 2);

  admin::DescribeTableRequest describe;
  admin::Table table;
  describe.set_name("accounts");
  ASSERT_EQ(call(&Stub::DescribeTable, describe, table), grpc::OK);
  EXPECT_EQ(table.kind(), admin::TRANSACTIONAL);
  describe.set_name("nothing");
  EXPECT_EQ(call(&Stub::DescribeTable, describe, table), grpc::NOT_FOUND);

  admin::RenameTableRequest rename;
  admin::RenameTableReply renamed;
  rename.set_name("nothing");
  rename.set_new_name("ledger");
  EXPECT_EQ(call(&Stub::RenameTable, rename, renamed), grpc::NOT_FOUND);
  rename.set_name("accounts");
  ASSERT_EQ(call(&Stub::RenameTable, rename, renamed), grpc::OK) << message;
  EXPECT_GT(renamed.catalog_version(), created.catalog_version());
  rename.set_name("ledger");
  rename.set_new_name("ledger");
  EXPECT_EQ(call(&Stub::RenameTable, rename, renamed), grpc::INVALID_ARGUMENT);
  rename.set_new_name("accounts");
  ASSERT_EQ(call(&Stub::RenameTable, rename, renamed), grpc::OK) << message;

  admin::DropTableRequest drop;
  admin::DropTableReply dropped;
  drop.set_name("loam.counters");
  EXPECT_EQ(call(&Stub::DropTable, drop, dropped), grpc::INVALID_ARGUMENT) << message;
  drop.set_name("accounts");
  ASSERT_EQ(call(&Stub::DropTable, drop, dropped), grpc::OK);
  EXPECT_GT(dropped.catalog_version(), created.catalog_version());
  EXPECT_EQ(call(&Stub::DropTable, drop, dropped), grpc::NOT_FOUND);
}

TEST_F(ManagerTest, RefusesBadDefinitions) {
  start();
  admin::CreateTableReply created;
  admin::CreateTableRequest bad = accounts();
  bad.set_kind(admin::TABLE_KIND_UNSPECIFIED);
  EXPECT_EQ(call(&Stub::CreateTable, bad, created), grpc::INVALID_ARGUMENT);
  bad = accounts();
  bad.mutable_fields(0)->set_type(admin::FIELD_TYPE_UNSPECIFIED);
  EXPECT_EQ(call(&Stub::CreateTable, bad, created), grpc::INVALID_ARGUMENT);
  bad = accounts();
  bad.mutable_fields(1)->set_name("id");
  EXPECT_EQ(call(&Stub::CreateTable, bad, created), grpc::INVALID_ARGUMENT) << "a name twice";
  bad = accounts();
  bad.set_name("loam.x");
  EXPECT_EQ(call(&Stub::CreateTable, bad, created), grpc::INVALID_ARGUMENT);
  bad = accounts();
  bad.clear_fields();
  EXPECT_EQ(call(&Stub::CreateTable, bad, created), grpc::INVALID_ARGUMENT);
}

TEST_F(ManagerTest, ReportsNodesHealthAndStatistics) {
  start(1);
  admin::HealthReply health;
  ASSERT_EQ(call(&Stub::Health, admin::HealthRequest(), health), grpc::OK);
  EXPECT_FALSE(health.ready());
  EXPECT_EQ(health.address(), manager->address());

  auto node = connect();
  ASSERT_TRUE(node->call<wire::RegisterNodeReply>(wire::RegisterNode{"tcp://n:1", "n:2", 77}).ok());
  ASSERT_EQ(call(&Stub::Health, admin::HealthRequest(), health), grpc::OK);
  EXPECT_TRUE(health.ready());
  EXPECT_EQ(health.nodes_live(), 1u);
  admin::ListNodesReply nodes;
  ASSERT_EQ(call(&Stub::ListNodes, admin::ListNodesRequest(), nodes), grpc::OK);
  ASSERT_EQ(nodes.nodes_size(), 1);
  EXPECT_TRUE(nodes.nodes(0).live());
  EXPECT_EQ(nodes.nodes(0).shards(), wire::kVirtualShards);
  EXPECT_EQ(nodes.nodes(0).admin_address(), "n:2");
  EXPECT_EQ(nodes.nodes(0).capacity_bytes(), 77u);

  {
    auto client = connect();
    ASSERT_TRUE(client->call<wire::OpenSessionReply>(wire::OpenSession{"dies"}).ok());
    ASSERT_TRUE(client->call<wire::BeginReply>(wire::Begin{2, false}).ok());
    client->connection()->close(Status(StatusCode::kCancelled, "gone"));
    ASSERT_TRUE(client->until([&] { return client->closed().has_value(); }));
  }
  admin::StatisticsReply statistics;
  const auto number = [&](std::string_view name) { return number_of(statistics, name); };
  ASSERT_TRUE(node->until([&] {
    return call(&Stub::Statistics, admin::StatisticsRequest(), statistics) == grpc::OK &&
           number("orphaned_transactions") == 2;
  }));
  EXPECT_EQ(number("begins"), 2u);
  EXPECT_EQ(number("sessions"), 0u);
  EXPECT_EQ(number("sessions_lost"), 1u);
  EXPECT_EQ(number("epoch"), 1u);
  EXPECT_GT(number("bytes_in"), 0u);
  ASSERT_EQ(statistics.orphans_size(), 2);
  EXPECT_EQ(statistics.orphans(1).id(), 2u);
}

TEST_F(ManagerTest, CreateTimesOutWithoutNodes) {
  start();
  auto node = connect();
  ASSERT_TRUE(node->call<wire::RegisterNodeReply>(wire::RegisterNode{"tcp://n:1", "", 1}).ok());
  admin::CreateTableReply created;
  EXPECT_EQ(call(&Stub::CreateTable, accounts(), created), grpc::DEADLINE_EXCEEDED) << message;
  uint64_t sequence = 0;
  ASSERT_TRUE(node->receive<wire::InstallTable>(&sequence).ok());
  node->reply(sequence, wire::InstallTableReply{});
  ASSERT_TRUE(node->until([&] { return call(&Stub::CreateTable, accounts(), created) == grpc::OK; }));
  EXPECT_TRUE(created.existed()) << "the change went on";
}

TEST_F(ManagerTest, StopsWhileACallWaits) {
  start();
  auto node = connect();
  ASSERT_TRUE(node->call<wire::RegisterNodeReply>(wire::RegisterNode{"tcp://n:1", "", 1}).ok());
  grpc::StatusCode code = grpc::OK;
  std::thread caller([&] {
    admin::CreateTableReply created;
    code = call(&Stub::CreateTable, accounts(), created);
  });
  ASSERT_TRUE(node->receive<wire::InstallTable>().ok());
  manager->stop();
  caller.join();
  EXPECT_NE(code, grpc::OK);
}

TEST_F(ManagerTest, StartNamesTheFault) {
  start();
  ManagerOptions options;
  options.listen = manager->address();
  options.admin_listen = "";
  auto second = CommitManager::start(options);
  EXPECT_EQ(second.code(), StatusCode::kUnavailable);
  const std::string port = manager->address().substr(manager->address().rfind(':') + 1);
  EXPECT_NE(second.status().message().find(port), std::string_view::npos) << second.status().to_string();
  options.listen = "tcp://127.0.0.1:0";
  options.admin_listen = manager->admin_address();
  second = CommitManager::start(options);
  EXPECT_EQ(second.code(), StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find(manager->admin_address()), std::string_view::npos);
  options.listen = "7400";
  EXPECT_EQ(CommitManager::start(options).code(), StatusCode::kInvalidArgument);
  options.listen = "tcp://127.0.0.1:0";
  options.admin_listen = "";
  options.core.publish_interval_ns = 1;
  EXPECT_EQ(CommitManager::start(options).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace loam::commit
