// RenameTable: its refusals, its repetitions, and what storage nodes, other requests and a restart see of it.
#include <algorithm>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"
#include "commit-manager/testing/durability_fixture.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using wire::CreateTable;
using wire::CreateTableReply;
using wire::DropTable;
using wire::DropTableReply;
using wire::InstallTable;
using wire::InstallTableReply;
using wire::RegisterNode;
using wire::RegisterNodeReply;
using wire::RemoveTable;
using wire::RemoveTableReply;
using wire::RenameTable;
using wire::RenameTableReply;

CreateTable table(const std::string& name) { return {name, TableKind::kTransactional, test_schema()}; }

/// Returns the name of the table with this id, as clients see it; empty if there is none.
std::string name_of(const wire::Catalog& catalog, TableId id) {
  const auto at = std::ranges::find(catalog.tables, id, &wire::TableInfo::id);
  return at == catalog.tables.end() ? std::string() : at->name;
}

/// Acknowledges the oldest InstallTable of a node. Returns the table that it names.
wire::TableInfo acknowledge_install(CoreHarness& h, PeerId node) {
  const auto request = h.receive<InstallTable>(node);
  EXPECT_TRUE(request.ok()) << request.error.to_string();
  h.deliver(node, CoreHarness::encoded(InstallTableReply{}, request.sequence));
  return request->table;
}

TEST(RenameRequests, KeepsTheTableAndTellsTheNodes) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId id = h.call<CreateTableReply>(client, table("accounts"))->table.id;
  const PeerId node = h.node("tcp://a:1");
  const uint64_t version = h.core.catalog().version;
  h.post(client, RenameTable{"accounts", "ledger", id});
  EXPECT_EQ(h.core.catalog().version, version + 1);
  EXPECT_EQ(name_of(h.core.catalog(), id), "ledger") << "clients see the new name at once";
  EXPECT_TRUE(h.outbox.sent[client].empty()) << "the node still reports the old name";
  const wire::TableInfo told = acknowledge_install(h, node);
  EXPECT_EQ(told.id, id);
  EXPECT_EQ(told.name, "ledger");
  EXPECT_EQ(h.receive<RenameTableReply>(client)->catalog_version, version + 1);
  // The old name is free. A table that gets it is another one.
  h.post(client, table("accounts"));
  EXPECT_NE(acknowledge_install(h, node).id, id);
  EXPECT_FALSE(h.receive<CreateTableReply>(client)->existed);
  h.core.check_invariants();
}

TEST(RenameRequests, RefusesNamesThatAreTakenOrImpossible) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId id = h.call<CreateTableReply>(client, table("accounts"))->table.id;
  ASSERT_TRUE(h.call<CreateTableReply>(client, table("ledger")).ok());
  CreateTable index{"by_x", TableKind::kNonTransactional, wire::index_node_schema(), {}};
  index.index.table = id;
  index.index.parts = {{0, false}};
  ASSERT_TRUE(h.call<CreateTableReply>(client, index).ok());
  const uint64_t version = h.core.catalog().version;
  const auto refusal = [&](const std::string& name, const std::string& new_name) {
    return h.call<RenameTableReply>(client, RenameTable{name, new_name}).error;
  };
  EXPECT_EQ(refusal("accounts", "ledger").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(refusal("accounts", "by_x").code(), StatusCode::kAlreadyExists) << "tables and indexes share their names";
  EXPECT_NE(refusal("accounts", "by_x").message().find("an index named by_x"), std::string::npos);
  EXPECT_EQ(refusal("accounts", "accounts").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal("accounts", "loam.mine").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal("accounts", "9").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal("accounts", std::string(wire::kMaxTableNameBytes + 1, 'n')).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal("loam.counters", "mine").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal("by_x", "by_y").code(), StatusCode::kWrongTableKind);
  EXPECT_EQ(refusal("nothing", "mine").code(), StatusCode::kNoSuchTable);
  EXPECT_NE(refusal("nothing", "mine").message().find("renamed"), std::string::npos) << "the message says what to do";
  EXPECT_EQ(refusal(std::string(1'000, 'n'), "mine").code(), StatusCode::kNoSuchTable);
  EXPECT_EQ(h.core.catalog().version, version) << "a refusal changes nothing";
  h.core.check_invariants();
}

TEST(RenameRequests, APendingTableHasItsNameAndCannotBeRenamed) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  const PeerId creator = h.client();
  const PeerId client = h.client();
  h.post(creator, table("accounts"));
  acknowledge_install(h, node);
  ASSERT_TRUE(h.receive<CreateTableReply>(creator).ok());
  h.post(creator, table("ledger"));
  EXPECT_EQ(h.call<RenameTableReply>(client, RenameTable{"ledger", "x"}).error.code(), StatusCode::kNoSuchTable);
  EXPECT_EQ(h.call<RenameTableReply>(client, RenameTable{"accounts", "ledger"}).error.code(),
            StatusCode::kAlreadyExists);
  acknowledge_install(h, node);
  EXPECT_EQ(h.receive<CreateTableReply>(creator)->table.name, "ledger");
}

TEST(RenameRequests, ARepeatedRequestIsAnsweredLikeTheFirst) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId id = h.call<CreateTableReply>(client, table("accounts"))->table.id;
  const PeerId node = h.node("tcp://a:1");
  const PeerId again = h.client();
  h.post(client, RenameTable{"accounts", "ledger", id});
  h.post(again, RenameTable{"accounts", "ledger", id});
  EXPECT_TRUE(h.outbox.sent[again].empty()) << "it waits for the node, too";
  acknowledge_install(h, node);
  EXPECT_TRUE(h.receive<RenameTableReply>(client).ok());
  EXPECT_TRUE(h.receive<RenameTableReply>(again).ok());
  EXPECT_TRUE(h.call<RenameTableReply>(again, RenameTable{"accounts", "ledger", id}).ok()) << "after its end";
  EXPECT_EQ(h.call<RenameTableReply>(again, RenameTable{"accounts", "other", id}).error.code(),
            StatusCode::kNoSuchTable)
      << "somebody else has renamed it";
  // A repetition must not rename a later table of the old name.
  h.post(client, table("accounts"));
  const TableId next = acknowledge_install(h, node).id;
  ASSERT_TRUE(h.receive<CreateTableReply>(client).ok());
  EXPECT_TRUE(h.call<RenameTableReply>(again, RenameTable{"accounts", "ledger", id}).ok());
  EXPECT_EQ(name_of(h.core.catalog(), next), "accounts");
}

TEST(RenameRequests, ADropByTheOldNameDropsNothing) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId id = h.call<CreateTableReply>(client, table("accounts"))->table.id;
  ASSERT_TRUE(h.call<RenameTableReply>(client, RenameTable{"accounts", "ledger", id}).ok());
  const auto dropped = h.call<DropTableReply>(client, DropTable{"accounts", id});
  EXPECT_EQ(dropped.error.code(), StatusCode::kNoSuchTable) << "its client has looked the name up before the rename";
  EXPECT_NE(dropped.error.message().find("ledger"), std::string::npos) << dropped.error.to_string();
  EXPECT_EQ(name_of(h.core.catalog(), id), "ledger");
  EXPECT_TRUE(h.call<DropTableReply>(client, DropTable{"ledger", id}).ok());
}

// A node that has lost the message about a rename gets the catalog again. If the table is dropped meanwhile, a repeated
// message about its name must not bring the table back (R30, table creation and drop).
TEST(RenameRequests, ADropEndsPendingRenames) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId id = h.call<CreateTableReply>(client, table("accounts"))->table.id;
  const PeerId node = h.node("tcp://a:1");
  const PeerId other = h.client();
  h.post(client, RenameTable{"accounts", "ledger", id});
  h.post(other, DropTable{"ledger", id});
  EXPECT_TRUE(h.receive<RenameTableReply>(client).ok());
  h.core.on_peer_disconnected(node);
  const PeerId again = h.connect();
  const auto registered = h.call<RegisterNodeReply>(again, RegisterNode{"tcp://a:1", "", 1, Incarnation(1)});
  ASSERT_TRUE(registered.ok());
  EXPECT_EQ(name_of(registered->catalog, id), "");
  const auto remove = h.receive<RemoveTable>(again);
  ASSERT_TRUE(remove.ok()) << "the first message behind the catalog";
  h.deliver(again, CoreHarness::encoded(RemoveTableReply{}, remove.sequence));
  EXPECT_TRUE(h.receive<DropTableReply>(other).ok());
  EXPECT_TRUE(h.outbox.sent[again].empty());
}

TEST(RenameRequests, ANodeWithoutMemoryForTheTableDoesNotFailTheRename) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId id = h.call<CreateTableReply>(client, table("accounts"))->table.id;
  const PeerId node = h.node("tcp://a:1");
  h.post(client, RenameTable{"accounts", "ledger", id});
  const auto request = h.receive<InstallTable>(node);
  h.deliver(node, CoreHarness::encoded(wire::Error{Status(StatusCode::kNoSpace, "full")}, request.sequence));
  EXPECT_TRUE(h.receive<RenameTableReply>(client).ok());
  EXPECT_EQ(name_of(h.core.catalog(), id), "ledger");
}

TEST(RenameRequests, OperatorsRename) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId id = h.call<CreateTableReply>(client, table("accounts"))->table.id;
  std::optional<StatusCode> renamed;
  h.core.rename_table({"accounts", "ledger", {}},
                      [&](const Result<RenameTableReply>& result) { renamed = result.code(); });
  EXPECT_EQ(renamed, StatusCode::kOk);
  EXPECT_EQ(name_of(h.core.catalog(), id), "ledger");
}

TEST_F(DurabilityTest, ARenameIsShownWhenItIsStoredAndSurvivesARestart) {
  start();
  serve();
  h->post(client, table("accounts"));
  finish();
  acknowledge_tables();
  finish();
  const TableId id = h->receive<CreateTableReply>(client)->table.id;
  h->post(client, RenameTable{"accounts", "ledger", id});
  EXPECT_EQ(name_of(h->core.catalog(), id), "accounts") << "a crash could undo the rename";
  EXPECT_TRUE(no_messages(node));
  start();
  EXPECT_EQ(name_of(h->core.catalog(), id), "accounts") << "a crash has undone it";
  node = h->node("tcp://a:1", Incarnation(1));
  finish();
  client = h->client();
  finish();
  h->post(client, RenameTable{"accounts", "ledger", id});
  finish();
  EXPECT_EQ(name_of(h->core.catalog(), id), "ledger");
  EXPECT_TRUE(no_messages(client)) << "the node reports the old name";
  start();
  EXPECT_EQ(name_of(h->core.catalog(), id), "ledger");
  h->core.check_invariants();
}

}  // namespace
}  // namespace loam::commit
