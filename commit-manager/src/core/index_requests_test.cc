// Indexes in the catalog [R29, index creation; R30, table creation and drop].
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using wire::CreateTable;
using wire::CreateTableReply;
using wire::DropTable;
using wire::DropTableReply;
using wire::FinishIndex;
using wire::FinishIndexReply;

CreateTable accounts(const std::string& name = "accounts") {
  return {name, TableKind::kTransactional,
          Schema::make({{"id", FieldType::kInt64, false}, {"balance", FieldType::kInt64, true}}).value()};
}

CreateTable index_of(TableId table, const std::string& name = "by_balance") {
  CreateTable create{name, TableKind::kNonTransactional, wire::index_node_schema(), {}};
  create.index.table = table;
  create.index.parts = {{1, true}, {0, false}};
  return create;
}

const wire::TableInfo* find(const wire::Catalog& catalog, const std::string& name) {
  for (const wire::TableInfo& table : catalog.tables) {
    if (table.name == name) return &table;
  }
  return nullptr;
}

TEST(IndexRequests, AnIndexIsATableThatIsFinishedOnce) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId table = h.call<CreateTableReply>(client, accounts())->table.id;
  const auto made = h.call<CreateTableReply>(client, index_of(table));
  ASSERT_TRUE(made.ok()) << made.error.to_string();
  EXPECT_EQ(made->table.index.state(), wire::IndexState::kBuilding);
  EXPECT_TRUE(h.call<CreateTableReply>(client, index_of(table))->existed)
      << "a repetition continues with the same index";
  const uint64_t version = h.core.catalog().version;
  const auto finished = h.call<FinishIndexReply>(client, FinishIndex{made->table.id});
  ASSERT_TRUE(finished.ok()) << finished.error.to_string();
  EXPECT_EQ(finished->catalog_version, version + 1);
  EXPECT_EQ(find(h.core.catalog(), "by_balance")->index.ready_since, version + 1)
      << "transactions that begin with this catalog read it, and none before";
  EXPECT_EQ(h.call<FinishIndexReply>(client, FinishIndex{made->table.id})->catalog_version, version + 1) << "again";
  EXPECT_EQ(find(h.core.catalog(), "by_balance")->index.ready_since, version + 1);
  EXPECT_EQ(h.call<FinishIndexReply>(client, FinishIndex{table}).error.code(), StatusCode::kNoSuchTable);
  EXPECT_EQ(h.call<FinishIndexReply>(client, FinishIndex{TableId(9'999)}).error.code(), StatusCode::kNoSuchTable);
  h.core.check_invariants();
}

TEST(IndexRequests, RefusesWhatIsNoIndex) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId table = h.call<CreateTableReply>(client, accounts())->table.id;
  CreateTable plain = accounts("plain");
  plain.kind = TableKind::kNonTransactional;
  const TableId other = h.call<CreateTableReply>(client, plain)->table.id;
  const auto code = [&](const CreateTable& create) { return h.call<CreateTableReply>(client, create).error.code(); };
  EXPECT_EQ(code(index_of(other)), StatusCode::kWrongTableKind);
  EXPECT_EQ(code(index_of(TableId(9'999))), StatusCode::kNoSuchTable);
  EXPECT_EQ(code(index_of(wire::kCounterTableId)), StatusCode::kWrongTableKind);
  const auto with = [&](auto&& change) {
    CreateTable create = index_of(table);
    change(create);
    return code(create);
  };
  EXPECT_EQ(with([](CreateTable& c) { c.index.parts.clear(); }), StatusCode::kInvalidArgument);
  EXPECT_EQ(with([](CreateTable& c) { c.index.parts.resize(wire::kMaxIndexParts + 1); }), StatusCode::kInvalidArgument);
  EXPECT_EQ(with([](CreateTable& c) { c.index.parts[0].field = 2; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(with([](CreateTable& c) { c.index.parts[0].field = 0; }), StatusCode::kInvalidArgument) << "comes twice";
  EXPECT_EQ(with([](CreateTable& c) { c.index.ready_since = 1; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(with([](CreateTable& c) { c.index.damaged = true; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(with([](CreateTable& c) { c.kind = TableKind::kTransactional; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(with([](CreateTable& c) { c.schema = accounts().schema; }), StatusCode::kInvalidArgument);
  ASSERT_TRUE(h.call<CreateTableReply>(client, index_of(table)).ok());
  EXPECT_EQ(with([](CreateTable& c) { c.index.unique = true; }), StatusCode::kAlreadyExists);
  EXPECT_EQ(with([](CreateTable& c) { c.index.parts.pop_back(); }), StatusCode::kAlreadyExists);
  EXPECT_EQ(with([](CreateTable& c) { c.index = {}; }), StatusCode::kAlreadyExists) << "a table of that name";
}

TEST(IndexRequests, IsDroppedWithItsTable) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  const PeerId client = h.client();
  const auto created = [&](const CreateTable& create) {
    h.post(client, create);
    const auto install = h.newest<wire::InstallTable>(node);
    h.deliver(node, CoreHarness::encoded(wire::InstallTableReply{}, install.sequence));
    return h.newest<CreateTableReply>(client)->table.id;
  };
  const TableId table = created(accounts());
  const TableId index = created(index_of(table));
  h.outbox.sent[node].clear();
  h.post(client, DropTable{"accounts"});
  EXPECT_EQ(find(h.core.catalog(), "accounts"), nullptr);
  EXPECT_EQ(find(h.core.catalog(), "by_balance"), nullptr);
  std::vector<TableId> removed;
  for (auto told = h.receive<wire::RemoveTable>(node); told.ok(); told = h.receive<wire::RemoveTable>(node)) {
    removed.push_back(told->table);
    h.deliver(node, CoreHarness::encoded(wire::RemoveTableReply{}, told.sequence));
    if (h.outbox.sent[node].empty()) break;
  }
  EXPECT_EQ(removed, (std::vector{index, table}));
  EXPECT_TRUE(h.newest<DropTableReply>(client).ok());
  h.core.check_invariants();
}

TEST(IndexRequests, ACreateWhoseTableIsDroppedMeanwhileFails) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  const PeerId client = h.client();
  const PeerId other = h.client();
  h.post(client, accounts());
  auto install = h.newest<wire::InstallTable>(node);
  h.deliver(node, CoreHarness::encoded(wire::InstallTableReply{}, install.sequence));
  const TableId table = h.newest<CreateTableReply>(client)->table.id;
  h.post(client, index_of(table));
  install = h.newest<wire::InstallTable>(node);
  h.post(other, DropTable{"accounts"});
  h.deliver(node, CoreHarness::encoded(wire::InstallTableReply{}, install.sequence));
  const auto failed = h.receive<CreateTableReply>(client);
  EXPECT_EQ(failed.error.code(), StatusCode::kNoSuchTable) << failed.error.to_string();
  EXPECT_EQ(find(h.core.catalog(), "by_balance"), nullptr);
  h.core.check_invariants();
}

TEST(IndexRequests, LossDropsUnfinishedIndex) {
  CoreHarness h;
  h.core.on_peer_disconnected(h.node("tcp://a:1"));
  h.run_for(2 * CoreHarness::kLeaseNs);
  const PeerId client = h.client();
  const TableId table = h.call<CreateTableReply>(client, accounts())->table.id;
  const TableId finished = h.call<CreateTableReply>(client, index_of(table, "finished"))->table.id;
  ASSERT_TRUE(h.call<FinishIndexReply>(client, FinishIndex{finished}).ok());
  const TableId building = h.call<CreateTableReply>(client, index_of(table, "building"))->table.id;
  h.node("tcp://a:1");
  ASSERT_EQ(h.core.nodes()[0].info.state, wire::NodeState::kLost);
  EXPECT_NE(find(h.core.catalog(), "building"), nullptr);
  EXPECT_EQ(h.call<FinishIndexReply>(client, FinishIndex{building}).error.code(), StatusCode::kUnavailable);
  h.core.accept_loss(NodeId(1), [](const Status&) {});
  EXPECT_EQ(find(h.core.catalog(), "building"), nullptr) << "half of its entries may be gone";
  EXPECT_NE(find(h.core.catalog(), "finished"), nullptr);
  EXPECT_EQ(h.call<FinishIndexReply>(client, FinishIndex{building}).error.code(), StatusCode::kNoSuchTable);
  h.core.check_invariants();
}

TEST(IndexRequests, LossDamagesReadyIndex) {
  RecordingStateStore durable;
  {
    CoreHarness h(CoreHarness::open_at_once(), &durable);
    h.core.on_peer_disconnected(h.node("tcp://a:1"));
    h.run_for(2 * CoreHarness::kLeaseNs);
    const PeerId client = h.client();
    const TableId table = h.call<CreateTableReply>(client, accounts())->table.id;
    const TableId before = h.call<CreateTableReply>(client, index_of(table, "before"))->table.id;
    const wire::CatalogVersion ready = h.call<FinishIndexReply>(client, FinishIndex{before})->catalog_version;
    EXPECT_EQ(h.call<wire::BeginReply>(client, wire::Begin{1, false})->catalog_version, ready);
    const PeerId node = h.node("tcp://a:1");
    h.core.accept_loss(NodeId(1), [](const Status&) {});
    EXPECT_EQ(find(h.core.catalog(), "before")->index.state(), wire::IndexState::kDamaged)
        << "before the node has heard of it";
    EXPECT_GT(h.call<wire::BeginReply>(client, wire::Begin{1, false})->catalog_version, ready)
        << "a transaction that begins now gets the new catalog";
    const auto told = h.receive<wire::AcceptLoss>(node);
    ASSERT_TRUE(told.ok());
    EXPECT_FALSE(durable.state.empty());
    h.deliver(node, CoreHarness::encoded(wire::AcceptLossReply{}, told.sequence));
    h.post(client, index_of(table, "since"));
    h.deliver(node, CoreHarness::encoded(wire::InstallTableReply{}, h.newest<wire::InstallTable>(node).sequence));
    const TableId since = h.newest<CreateTableReply>(client)->table.id;
    ASSERT_TRUE(h.call<FinishIndexReply>(client, FinishIndex{since}).ok());
    EXPECT_EQ(find(h.core.catalog(), "since")->index.state(), wire::IndexState::kReady);
    h.core.check_invariants();
  }
  CoreHarness h(CoreHarness::open_at_once(), &durable, durable.state);
  EXPECT_EQ(find(h.core.catalog(), "before")->index.state(), wire::IndexState::kDamaged);
  EXPECT_EQ(find(h.core.catalog(), "since")->index.state(), wire::IndexState::kReady);
}

TEST(IndexRequests, DropsAsUnfinishedOnlyWhileUnfinished) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId table = h.call<CreateTableReply>(client, accounts())->table.id;
  const TableId index = h.call<CreateTableReply>(client, index_of(table))->table.id;
  const auto drop = [&](TableId id) {
    return h.call<DropTableReply>(client, DropTable{"by_balance", id, true}).error.code();
  };
  ASSERT_TRUE(h.call<FinishIndexReply>(client, FinishIndex{index}).ok());
  EXPECT_EQ(drop(index), StatusCode::kConflict) << "the index was finished meanwhile";
  EXPECT_NE(find(h.core.catalog(), "by_balance"), nullptr);
  ASSERT_TRUE(h.call<DropTableReply>(client, DropTable{"by_balance"}).ok());
  const TableId again = h.call<CreateTableReply>(client, index_of(table))->table.id;
  EXPECT_EQ(drop(index), StatusCode::kOk) << "it is gone";
  EXPECT_NE(find(h.core.catalog(), "by_balance"), nullptr) << "and the one of its name is another one";
  EXPECT_EQ(drop(again), StatusCode::kOk);
  EXPECT_EQ(find(h.core.catalog(), "by_balance"), nullptr);
}

TEST(IndexRequests, IsKeptOverARestart) {
  RecordingStateStore durable;
  wire::IndexDefinition before;
  {
    CoreHarness h(CoreHarness::open_at_once(), &durable);
    const PeerId client = h.client();
    const TableId table = h.call<CreateTableReply>(client, accounts())->table.id;
    const TableId index = h.call<CreateTableReply>(client, index_of(table))->table.id;
    ASSERT_TRUE(h.call<FinishIndexReply>(client, FinishIndex{index}).ok());
    before = find(h.core.catalog(), "by_balance")->index;
  }
  CoreHarness h(CoreHarness::open_at_once(), &durable, durable.state);
  const wire::Catalog catalog = h.core.catalog();
  const wire::TableInfo* const after = find(catalog, "by_balance");
  ASSERT_NE(after, nullptr);
  EXPECT_EQ(after->index.table, before.table);
  EXPECT_EQ(after->index.parts, before.parts);
  EXPECT_EQ(after->index.ready_since, before.ready_since);
  EXPECT_LE(after->index.ready_since, catalog.version);
}

}  // namespace
}  // namespace loam::commit
