#include <algorithm>

#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using wire::CreateTable;
using wire::CreateTableReply;
using wire::DropTable;
using wire::DropTableReply;
using wire::InstallTable;
using wire::InstallTableReply;
using wire::OpenSession;
using wire::OpenSessionReply;
using wire::Publish;
using wire::RegisterNode;
using wire::RegisterNodeReply;
using wire::RemoveTable;
using wire::RemoveTableReply;

CreateTable accounts(FieldType type = FieldType::kInt64) {
  return {"accounts", TableKind::kTransactional, test_schema(type)};
}

/// Answers the oldest InstallTable or RemoveTable of a node.
template <class Request, class Reply>
TableId acknowledge(CoreHarness& h, PeerId node) {
  const auto request = h.receive<Request>(node);
  EXPECT_TRUE(request.ok()) << request.error.to_string();
  h.deliver(node, CoreHarness::encoded(Reply{}, request.sequence));
  if constexpr (requires { request->table.id; }) {
    return request->table.id;
  } else {
    return request->table;
  }
}

TEST(NodeRequests, RegistersWithCatalogAndPublication) {
  CoreHarness h((CoreOptions()));
  const PeerId peer = h.connect();
  EXPECT_FALSE(h.core.ready());
  const auto registered = h.call<RegisterNodeReply>(peer, RegisterNode{"tcp://127.0.0.1:7401", "127.0.0.1:7411", 99});
  ASSERT_TRUE(registered.ok()) << registered.error.to_string();
  EXPECT_EQ(registered->node, NodeId(1));
  EXPECT_EQ(registered->incarnation, Incarnation(1));
  EXPECT_EQ(registered->catalog.tables.size(), 1u);
  ASSERT_EQ(registered->catalog.nodes.size(), 1u);
  EXPECT_EQ(registered->catalog.nodes[0].admin_address, "127.0.0.1:7411");
  EXPECT_EQ(registered->publication.number, 1u);
  for (const NodeId owner : registered->catalog.shards.owners) ASSERT_EQ(owner, NodeId(1));
  EXPECT_TRUE(h.core.ready());
  EXPECT_EQ(h.core.nodes()[0].shards, wire::kVirtualShards);
  EXPECT_EQ(h.core.nodes()[0].capacity_bytes, 99u);
}

TEST(NodeRequests, DealsShardsOutOnceToTheFirstNodes) {
  CoreOptions options;
  options.initial_nodes = 3;
  CoreHarness h(options);
  const PeerId client = h.connect();
  const PeerId a = h.node("tcp://a:1");
  const PeerId b = h.node("tcp://b:1");
  EXPECT_EQ(h.call<OpenSessionReply>(client, OpenSession{"early"}).error.code(), StatusCode::kUnavailable);
  h.node("tcp://c:1");
  EXPECT_EQ(h.call<OpenSessionReply>(client, OpenSession{"early"}).error.code(), StatusCode::kUnavailable)
      << "two nodes do not know the map yet";
  acknowledge<InstallTable, InstallTableReply>(h, a);
  const auto install = h.receive<InstallTable>(b);
  ASSERT_TRUE(install.ok());
  EXPECT_EQ(install->table.id, wire::kCounterTableId);
  EXPECT_EQ(install->shards.version, h.core.catalog().shards.version);
  h.deliver(b, CoreHarness::encoded(InstallTableReply{}, install.sequence));
  EXPECT_TRUE(h.core.ready());
  EXPECT_TRUE(h.call<OpenSessionReply>(client, OpenSession{"now"}).ok());
  const wire::ShardMap before = h.core.catalog().shards;
  h.node("tcp://d:1");
  EXPECT_EQ(h.core.catalog().shards.owners, before.owners) << "records do not move: neither do shards";
  EXPECT_EQ(h.core.nodes()[3].shards, 0u);
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(h.core.nodes()[static_cast<size_t>(i)].shards, 1024 / 3.0, 1.0);
  h.core.check_invariants();
}

TEST(NodeRequests, ANewStartIsTheSameNodeWithoutItsRecords) {
  CoreHarness h((CoreOptions()));
  const PeerId first = h.node("tcp://a:1");
  const PeerId second = h.connect();
  const auto again = h.call<RegisterNodeReply>(second, RegisterNode{"tcp://a:1", "", 1});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->node, NodeId(1));
  EXPECT_EQ(again->incarnation, Incarnation(2));
  EXPECT_TRUE(again->memory_lost) << "its shards stay its own, their records are gone (R10)";
  EXPECT_TRUE(h.outbox.closed.contains(first)) << "its old connection is of no more use";
  ASSERT_EQ(h.core.nodes().size(), 1u);
  EXPECT_EQ(h.core.nodes()[0].shards, wire::kVirtualShards);
  EXPECT_EQ(h.core.nodes()[0].info.state, wire::NodeState::kLost);
  h.core.check_invariants();
}

TEST(NodeRequests, ARegistrationWhoseReplyWasLostIsTheSameStart) {
  CoreHarness h((CoreOptions()));
  RegisterNode request{"tcp://a:1", "", 1};
  request.start = 77;
  const PeerId first = h.connect();
  h.post(first, request);  // deals the shards out; the reply is not read
  const PeerId second = h.connect();
  const auto again = h.call<RegisterNodeReply>(second, request);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->incarnation, Incarnation(1));
  EXPECT_FALSE(again->memory_lost) << "it has had no time to lose anything";
  EXPECT_EQ(h.core.nodes()[0].info.state, wire::NodeState::kLive);
  EXPECT_TRUE(h.outbox.closed.contains(first));

  request.start = 78;
  const auto other = h.call<RegisterNodeReply>(h.connect(), request);
  EXPECT_EQ(other->incarnation, Incarnation(2)) << "another process";
  EXPECT_TRUE(other->memory_lost);
  EXPECT_EQ(h.call<RegisterNodeReply>(h.connect(), request)->incarnation, Incarnation(2));
  EXPECT_EQ(h.core.nodes()[0].info.state, wire::NodeState::kLost) << "registering again does not undo a loss";
  request.start = 0;
  EXPECT_EQ(h.call<RegisterNodeReply>(h.connect(), request)->incarnation, Incarnation(3)) << "who draws nothing is new";
  h.core.check_invariants();
}

TEST(NodeRequests, AStartIsKnownAgainAfterARestart) {
  RecordingStateStore durable;
  RegisterNode request{"tcp://a:1", "", 1};
  request.start = 77;
  {
    CoreHarness before({}, &durable);
    before.post(before.connect(), request);
  }
  CoreHarness after({}, &durable, durable.state);
  const auto again = after.call<RegisterNodeReply>(after.connect(), request);
  ASSERT_TRUE(again.ok()) << again.error.to_string();
  EXPECT_EQ(again->incarnation, Incarnation(1));
  EXPECT_FALSE(again->memory_lost);
}

TEST(NodeRequests, RefusesBadRegistrations) {
  CoreHarness h;
  EXPECT_EQ(h.call<RegisterNodeReply>(h.connect(), RegisterNode{"", "", 1}).error.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(
      h.call<RegisterNodeReply>(h.connect(), RegisterNode{std::string(kMaxAddressBytes + 1, 'a'), "", 1}).error.code(),
      StatusCode::kInvalidArgument);
  const PeerId client = h.client();
  EXPECT_EQ(h.call<RegisterNodeReply>(client, RegisterNode{"tcp://a:1", "", 1}).error.code(), StatusCode::kMalformed);
  for (size_t i = 0; i < kMaxNodes; ++i) h.node("tcp://a:" + std::to_string(i));
  EXPECT_EQ(h.call<RegisterNodeReply>(h.connect(), RegisterNode{"tcp://b:1", "", 1}).error.code(),
            StatusCode::kOverloaded);
  EXPECT_TRUE(h.call<RegisterNodeReply>(h.connect(), RegisterNode{"tcp://a:1", "", 1}).ok()) << "known already";
}

TEST(NodeRequests, CreateWaitsForEveryLiveNode) {
  CoreHarness h;
  const PeerId a = h.node("tcp://a:1");
  const PeerId b = h.node("tcp://b:1");
  const PeerId client = h.client();
  const PeerId other = h.client();
  h.post(client, accounts());
  h.post(other, accounts());
  const PeerId late = h.connect();
  const auto registered = h.call<RegisterNodeReply>(late, RegisterNode{"tcp://c:1", "", 1});
  EXPECT_EQ(registered->catalog.tables.size(), 2u) << "a node that registers meanwhile has the table";
  EXPECT_EQ(h.core.catalog().tables.size(), 1u) << "clients do not see it yet";
  acknowledge<InstallTable, InstallTableReply>(h, a);
  EXPECT_TRUE(h.outbox.sent[client].empty());
  const uint64_t version = h.core.catalog().version;
  acknowledge<InstallTable, InstallTableReply>(h, b);
  const auto created = h.receive<CreateTableReply>(client);
  ASSERT_TRUE(created.ok()) << created.error.to_string();
  EXPECT_EQ(created->table.id, wire::kFirstUserTableId);
  EXPECT_FALSE(created->existed);
  EXPECT_EQ(created->catalog_version, version + 1);
  const auto joined = h.receive<CreateTableReply>(other);
  EXPECT_TRUE(joined->existed);
  EXPECT_EQ(joined->table.id, created->table.id) << "same name, schema and kind: the same table";
  EXPECT_EQ(h.core.catalog().tables.size(), 2u);
  EXPECT_TRUE(h.call<CreateTableReply>(other, accounts())->existed);
  EXPECT_TRUE(h.outbox.sent[late].empty());
}

TEST(NodeRequests, ANodeThatDiesDoesNotHangTheCreate) {
  CoreHarness h;
  const PeerId a = h.node("tcp://a:1");
  const PeerId b = h.node("tcp://b:1");
  const PeerId client = h.client();
  h.post(client, accounts());
  acknowledge<InstallTable, InstallTableReply>(h, a);
  h.core.on_peer_disconnected(b);
  EXPECT_TRUE(h.outbox.sent[client].empty()) << "its lease still runs, it may serve requests for the table";
  for (int i = 0; i < 5; ++i) {
    h.post(a, wire::RenewNode{});
    h.post(client, wire::RenewSession{});
    h.run_for(CoreHarness::kLeaseNs / 4);
  }
  EXPECT_TRUE(h.newest<CreateTableReply>(client).ok());
  h.outbox.stuck.insert(a);  // cannot be told
  h.post(client, CreateTable{"second", TableKind::kTransactional, test_schema()});
  EXPECT_TRUE(h.outbox.closed.contains(a));
  EXPECT_TRUE(h.outbox.sent[client].empty());
  const PeerId back = h.connect();
  const auto registered = h.call<RegisterNodeReply>(back, RegisterNode{"tcp://a:1", "", 1, Incarnation(1)});
  ASSERT_TRUE(registered.ok());
  EXPECT_EQ(registered->catalog.tables.size(), 3u) << "the registration brings it the tables";
  EXPECT_TRUE(h.outbox.sent[client].empty()) << "it serves by the old ones until it has read that";
  acknowledge<InstallTable, InstallTableReply>(h, back);
  EXPECT_TRUE(h.receive<CreateTableReply>(client).ok());
  h.core.check_invariants();
}

TEST(NodeRequests, AnotherDefinitionIsRefused) {
  CoreHarness h;
  const PeerId client = h.client();
  ASSERT_TRUE(h.call<CreateTableReply>(client, accounts()).ok());
  const auto type = h.call<CreateTableReply>(client, accounts(FieldType::kInt32));
  EXPECT_EQ(type.error.code(), StatusCode::kAlreadyExists);
  EXPECT_NE(type.error.message().find("field 2 is 'balance int64 null', asked for 'balance int32 null'"),
            std::string_view::npos)
      << type.error.to_string();
  EXPECT_NE(type.error.message().find("schema changes are refused"), std::string_view::npos);
  CreateTable kind = accounts();
  kind.kind = TableKind::kNonTransactional;
  EXPECT_EQ(h.call<CreateTableReply>(client, kind).error.code(), StatusCode::kAlreadyExists);
  CreateTable longer = accounts();
  longer.schema =
      Schema::make(
          {{"id", FieldType::kInt64, false}, {"balance", FieldType::kInt64, true}, {"note", FieldType::kText, true}})
          .value();
  EXPECT_EQ(h.call<CreateTableReply>(client, longer).error.code(), StatusCode::kAlreadyExists);
}

TEST(NodeRequests, UndoesCreationThatANodeRefuses) {
  CoreHarness h;
  const PeerId a = h.node("tcp://a:1");
  const PeerId b = h.node("tcp://b:1");
  const PeerId client = h.client();
  h.post(client, accounts());
  acknowledge<InstallTable, InstallTableReply>(h, a);
  const auto install = h.receive<InstallTable>(b);
  h.deliver(b, CoreHarness::encoded(wire::Error{Status(StatusCode::kNoSpace, "memory is full")}, install.sequence));
  EXPECT_EQ(h.receive<CreateTableReply>(client).error.code(), StatusCode::kNoSpace);
  const TableId gone = acknowledge<RemoveTable, RemoveTableReply>(h, a);
  EXPECT_EQ(gone, install->table.id);
  acknowledge<RemoveTable, RemoveTableReply>(h, b);
  EXPECT_EQ(h.core.statistics().pending_changes, 0u);
  h.post(client, accounts());
  EXPECT_NE((acknowledge<InstallTable, InstallTableReply>(h, a)), gone) << "ids are never reused";
}

TEST(NodeRequests, DropTellsTheNodesAndWaits) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId id = h.call<CreateTableReply>(client, accounts())->table.id;
  const PeerId node = h.node("tcp://a:1");
  const uint64_t version = h.core.catalog().version;
  h.post(client, DropTable{"accounts"});
  EXPECT_EQ(h.core.catalog().version, version + 1);
  EXPECT_EQ(h.core.catalog().tables.size(), 1u);
  EXPECT_TRUE(h.outbox.sent[client].empty());
  EXPECT_EQ((acknowledge<RemoveTable, RemoveTableReply>(h, node)), id);
  EXPECT_TRUE(h.receive<DropTableReply>(client).ok());
  EXPECT_EQ(h.call<DropTableReply>(client, DropTable{"accounts"}).error.code(), StatusCode::kNoSuchTable);
  h.post(client, accounts(FieldType::kInt32));
  EXPECT_GT((acknowledge<InstallTable, InstallTableReply>(h, node)), id) << "ids are never reused";
  EXPECT_FALSE(h.receive<CreateTableReply>(client)->existed);
}

TEST(NodeRequests, ARepeatedDropSparesTheNextTableOfThatName) {
  CoreHarness h;
  const PeerId client = h.client();
  const TableId id = h.call<CreateTableReply>(client, accounts())->table.id;
  const PeerId node = h.node("tcp://a:1");
  const PeerId again = h.client();
  h.post(client, DropTable{"accounts", id});
  h.post(again, DropTable{"accounts", id});
  EXPECT_TRUE(h.outbox.sent[again].empty()) << "the node still serves the table (R30)";
  acknowledge<RemoveTable, RemoveTableReply>(h, node);
  EXPECT_TRUE(h.receive<DropTableReply>(client).ok());
  EXPECT_TRUE(h.receive<DropTableReply>(again).ok());
  h.post(client, accounts());
  const TableId next = acknowledge<InstallTable, InstallTableReply>(h, node);
  ASSERT_TRUE(h.receive<CreateTableReply>(client).ok());
  EXPECT_TRUE(h.call<DropTableReply>(again, DropTable{"accounts", id}).ok());
  const wire::Catalog catalog = h.core.catalog();
  EXPECT_EQ(std::ranges::count(catalog.tables, next, &wire::TableInfo::id), 1) << "it stays";
}

TEST(NodeRequests, ADropWaitsForANodeThatHasRegisteredAnew) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  const PeerId client = h.client();
  h.post(client, accounts());
  acknowledge<InstallTable, InstallTableReply>(h, node);
  ASSERT_TRUE(h.receive<CreateTableReply>(client).ok());
  h.post(client, DropTable{"accounts"});
  h.core.on_peer_disconnected(node);  // and the message with it
  const PeerId again = h.connect();
  const auto registered = h.call<RegisterNodeReply>(again, RegisterNode{"tcp://a:1", "", 1, Incarnation(1)});
  ASSERT_TRUE(registered.ok());
  EXPECT_EQ(registered->catalog.tables.size(), 1u);
  EXPECT_TRUE(h.outbox.sent[client].empty()) << "its lease never ended: it serves the table until it has read that";
  acknowledge<RemoveTable, RemoveTableReply>(h, again);
  EXPECT_TRUE(h.receive<DropTableReply>(client).ok());
}

TEST(NodeRequests, DropsRepliesForEndedSession) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  const PeerId client = h.client();
  h.post(client, accounts());
  h.core.on_peer_disconnected(client);
  for (int i = 0; i < 5; ++i) {
    h.post(node, wire::RenewNode{});
    h.run_for(CoreHarness::kLeaseNs / 4);
  }
  EXPECT_EQ(h.core.statistics().sessions, 0u);
  while (h.outbox.sent[node].front()[0] != static_cast<std::byte>(wire::Opcode::kInstallTable)) {
    h.outbox.sent[node].pop_front();
  }
  acknowledge<InstallTable, InstallTableReply>(h, node);
  EXPECT_TRUE(h.outbox.sent[client].empty());
  EXPECT_EQ(h.core.catalog().tables.size(), 2u);
}

TEST(NodeRequests, ARepeatedCreateIsAnsweredOnce) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  const PeerId client = h.client();
  const Buffer create = CoreHarness::encoded(accounts(), 100);
  h.deliver(client, create);
  h.deliver(client, create);
  acknowledge<InstallTable, InstallTableReply>(h, node);
  EXPECT_EQ(h.outbox.sent[client].size(), 1u);
  h.deliver(client, create);
  EXPECT_EQ(h.outbox.sent[client].size(), 2u);
  EXPECT_FALSE(h.receive<CreateTableReply>(client)->existed);
  EXPECT_FALSE(h.receive<CreateTableReply>(client)->existed);
}

TEST(NodeRequests, LimitsPendingChanges) {
  CoreHarness h;
  h.node("tcp://a:1");
  const PeerId client = h.client();
  for (size_t i = 0; i < kMaxPendingChanges; ++i) {
    h.post(client, CreateTable{"t" + std::to_string(i), TableKind::kTransactional, test_schema()});
  }
  EXPECT_TRUE(h.outbox.sent[client].empty());
  EXPECT_EQ(h.call<CreateTableReply>(client, accounts()).error.code(), StatusCode::kOverloaded);
}

TEST(NodeRequests, PublishesChangesAfterAnInterval) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  const PeerId client = h.client();
  h.core.on_timer(h.now_ns);  // what the registration left
  h.outbox.sent[node].clear();
  const uint64_t interval_ns = CoreOptions().publish_interval_ns;
  EXPECT_GT(h.core.next_deadline_ns(), h.now_ns + interval_ns) << "nothing has changed: leases are looked at, later";
  ASSERT_TRUE(h.call<wire::BeginReply>(client, wire::Begin{2, false}).ok());
  ASSERT_TRUE(h.call<wire::CompleteReply>(client, wire::Complete{{{TransactionId(1), true}}}).ok());
  EXPECT_EQ(h.core.next_deadline_ns(), h.now_ns + interval_ns);
  h.core.on_timer(h.now_ns);
  EXPECT_TRUE(h.outbox.sent[node].empty()) << "too early";
  h.now_ns = h.core.next_deadline_ns();
  h.core.on_timer(h.now_ns);
  const auto publish = h.receive<Publish>(node);
  ASSERT_TRUE(publish.ok());
  EXPECT_EQ(publish.sequence, publish->publication.number);
  EXPECT_EQ(publish->publication.later, Snapshot(Version(1)));
  EXPECT_TRUE(publish->publication.young_open);
  EXPECT_EQ(publish->publication.floor, Version(0));
  const uint64_t aged_ns = h.now_ns + CoreOptions().young_ns;
  while (h.core.next_deadline_ns() < aged_ns) {
    h.now_ns = h.core.next_deadline_ns();
    h.core.on_timer(h.now_ns);
    ASSERT_TRUE(h.outbox.sent[node].empty()) << "the young one has not aged yet";
  }
  h.now_ns = aged_ns;
  h.core.on_timer(h.now_ns);
  EXPECT_EQ(h.receive<Publish>(node)->publication.old.size(), 1u);
  h.now_ns = h.core.next_deadline_ns();
  h.core.on_timer(h.now_ns);
  EXPECT_TRUE(h.outbox.sent[node].empty()) << "there is nothing to say any more";
}

TEST(NodeRequests, AFullNodeGetsTheNextPublication) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  h.outbox.stuck.insert(node);
  h.core.on_timer(h.now_ns);
  EXPECT_EQ(h.core.statistics().publications_skipped, 1u);
  EXPECT_FALSE(h.outbox.closed.contains(node));
  h.outbox.stuck.clear();
  ASSERT_EQ(h.core.next_deadline_ns(), h.now_ns + CoreOptions().publish_interval_ns) << "it is tried again";
  h.now_ns = h.core.next_deadline_ns();
  h.core.on_timer(h.now_ns);
  EXPECT_TRUE(h.receive<Publish>(node).ok());
}

TEST(NodeRequests, AdministrationUsesTheSameMachine) {
  CoreHarness h;
  const PeerId node = h.node("tcp://a:1");
  std::optional<Result<CreateTableReply>> created;
  h.core.create_table(accounts(), [&](Result<CreateTableReply> result) { created = std::move(result); });
  EXPECT_FALSE(created.has_value());
  acknowledge<InstallTable, InstallTableReply>(h, node);
  ASSERT_TRUE(created.has_value());
  EXPECT_TRUE(created->ok());
  std::optional<Result<DropTableReply>> dropped;
  h.core.drop_table(DropTable{"nothing"}, [&](Result<DropTableReply> result) { dropped = std::move(result); });
  ASSERT_TRUE(dropped.has_value());
  EXPECT_EQ(dropped->code(), StatusCode::kNoSuchTable);
}

}  // namespace
}  // namespace loam::commit
