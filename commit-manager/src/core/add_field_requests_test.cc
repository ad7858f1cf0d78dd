// AddField: its refusals, its repetitions, and the two steps in which nodes and clients see the field (decision 0027).
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "commit-manager/src/catalog/durable_state.h"
#include "commit-manager/testing/core_harness.h"
#include "commit-manager/testing/durability_fixture.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using wire::AddField;
using wire::AddFieldReply;
using wire::CreateTable;
using wire::CreateTableReply;
using wire::DropTable;
using wire::DropTableReply;
using wire::InstallTable;
using wire::InstallTableReply;
using wire::RegisterNode;
using wire::RegisterNodeReply;

CreateTable table(const std::string& name) { return {name, TableKind::kTransactional, test_schema()}; }

Schema field(const std::string& name, FieldType type = FieldType::kText, bool nullable = true) {
  return Schema::make({{name, type, nullable}}).value();
}

/// Returns the schema of the table with this id, as the catalog shows it.
Schema schema_of(const wire::Catalog& catalog, TableId id) {
  const auto at = std::ranges::find(catalog.tables, id, &wire::TableInfo::id);
  return at == catalog.tables.end() ? Schema() : at->schema;
}

wire::TableInfo acknowledge_install(CoreHarness& h, PeerId node) {
  const auto request = h.receive<InstallTable>(node);
  EXPECT_TRUE(request.ok()) << request.error.to_string();
  h.deliver(node, CoreHarness::encoded(InstallTableReply{}, request.sequence));
  return request->table;
}

TEST(AddFieldRequests, ClientsSeeTheFieldWhenEveryNodeKnowsIt) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId id = h.call<CreateTableReply>(client, table("accounts"))->table.id;
  const PeerId node = h.node("tcp://a:1");
  const uint64_t version = h.core.catalog().version;
  h.post(client, AddField{id, field("note")});
  EXPECT_EQ(h.core.catalog().version, version);
  EXPECT_EQ(schema_of(h.core.catalog(), id), test_schema()) << "a node might not know the field yet";
  EXPECT_EQ(schema_of(h.core.catalog_for_recovery(), id).size(), 3u);
  const PeerId other = h.client();
  EXPECT_EQ(h.call<CreateTableReply>(other, table("accounts"))->table.schema.size(), 2u);
  const wire::TableInfo told = acknowledge_install(h, node);
  EXPECT_EQ(told.id, id);
  EXPECT_EQ(told.schema.added(), 1u);
  EXPECT_FALSE(h.receive<AddFieldReply>(client)->existed);
  EXPECT_EQ(h.core.catalog().version, version + 1);
  EXPECT_EQ(schema_of(h.core.catalog(), id), test_schema().add({"note", FieldType::kText, true}).value());
  EXPECT_TRUE(h.call<AddFieldReply>(other, AddField{id, field("note")})->existed) << "a repetition";
  // A program that was written before the change creates its table as ever.
  EXPECT_TRUE(h.call<CreateTableReply>(other, table("accounts"))->existed);
  h.core.check_invariants();
}

TEST(AddFieldRequests, EqualRequestsWaitForOneChange) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId id = h.call<CreateTableReply>(client, table("accounts"))->table.id;
  const PeerId node = h.node("tcp://a:1");
  const PeerId other = h.client();
  const PeerId third = h.client();
  h.post(client, AddField{id, field("note")});
  h.post(other, AddField{id, field("note")});
  EXPECT_TRUE(h.outbox.sent[other].empty());
  EXPECT_EQ(h.call<AddFieldReply>(third, AddField{id, field("more")}).error.code(), StatusCode::kOverloaded);
  acknowledge_install(h, node);
  EXPECT_FALSE(h.receive<AddFieldReply>(client)->existed);
  EXPECT_TRUE(h.receive<AddFieldReply>(other)->existed);
  EXPECT_TRUE(h.outbox.sent[node].empty()) << "one change";
}

TEST(AddFieldRequests, RefusesOtherChanges) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId id = h.call<CreateTableReply>(client, table("accounts"))->table.id;
  CreateTable index{"by_id", TableKind::kNonTransactional, wire::index_node_schema(), {}};
  index.index.table = id;
  index.index.parts = {{0, false}};
  const TableId tree = h.call<CreateTableReply>(client, index)->table.id;
  const uint64_t version = h.core.catalog().version;
  const auto refusal = [&](TableId of, const Schema& added) {
    return h.call<AddFieldReply>(client, AddField{of, added}).error;
  };
  EXPECT_EQ(refusal(id, field("note", FieldType::kText, false)).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal(id, field("balance", FieldType::kInt64)).code(), StatusCode::kAlreadyExists)
      << "it was there from the creation";
  EXPECT_EQ(refusal(id, test_schema()).code(), StatusCode::kInvalidArgument) << "two fields";
  EXPECT_EQ(refusal(tree, field("note")).code(), StatusCode::kWrongTableKind);
  EXPECT_EQ(refusal(wire::kCounterTableId, field("note")).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(refusal(TableId(999'999), field("note")).code(), StatusCode::kNoSuchTable);
  EXPECT_EQ(h.core.catalog().version, version);
  ASSERT_TRUE(h.call<AddFieldReply>(client, AddField{id, field("note")}).ok());
  EXPECT_EQ(refusal(id, field("note", FieldType::kBlob)).code(), StatusCode::kAlreadyExists);
  h.core.check_invariants();
}

TEST(AddFieldRequests, ADropEndsTheChange) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId id = h.call<CreateTableReply>(client, table("accounts"))->table.id;
  const PeerId node = h.node("tcp://a:1");
  const PeerId other = h.client();
  h.post(client, AddField{id, field("note")});
  h.post(other, DropTable{"accounts", id});
  EXPECT_EQ(h.receive<AddFieldReply>(client).error.code(), StatusCode::kNoSuchTable);
  acknowledge_install(h, node);
  h.core.check_invariants();
}

TEST(AddFieldRequests, ANodeThatRegistersMeanwhileGetsTheFieldWithItsCatalog) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId id = h.call<CreateTableReply>(client, table("accounts"))->table.id;
  const PeerId node = h.node("tcp://a:1");
  h.post(client, AddField{id, field("note")});
  h.core.on_peer_disconnected(node);
  const PeerId again = h.connect();
  const auto registered = h.call<RegisterNodeReply>(again, RegisterNode{"tcp://a:1", "", 1, Incarnation(1)});
  ASSERT_TRUE(registered.ok());
  EXPECT_EQ(schema_of(registered->catalog, id).added(), 1u);
  EXPECT_TRUE(h.outbox.sent[client].empty()) << "it serves by the old catalog until it has read that";
  acknowledge_install(h, again);
  EXPECT_TRUE(h.receive<AddFieldReply>(client).ok());
}

TEST_F(DurabilityTest, AnAddedFieldSurvivesARestart) {
  start();
  serve();
  h->post(client, table("accounts"));
  finish();
  acknowledge_tables();
  finish();
  const TableId id = h->receive<CreateTableReply>(client)->table.id;
  EXPECT_EQ(decode_state(disk.state)->format, kStateFormatWithoutAddedFields) << "earlier versions can read it";
  h->post(client, AddField{id, field("note")});
  EXPECT_TRUE(no_messages(node)) << "nodes hear of stored changes only";
  finish();
  EXPECT_FALSE(no_messages(node));
  EXPECT_EQ(schema_of(h->core.catalog(), id).size(), 2u);
  EXPECT_EQ(decode_state(disk.state)->format, kStateFormat);
  start();  // between the two steps: the change is never undone
  EXPECT_EQ(schema_of(h->core.catalog(), id).size(), 3u);
  EXPECT_EQ(schema_of(h->core.catalog(), id).added(), 1u);
  h->core.check_invariants();
}

}  // namespace
}  // namespace loam::commit
