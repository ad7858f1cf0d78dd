// The examples of examples.h, as values that the encoders of the product turn into bytes. They follow each change of
// the formats without being edited.
#include "tests/fuzz/examples.h"

#include <array>

#include "common/schema/row.h"
#include "common/wire/system_tables.h"

namespace loam::fuzz {
namespace {

using namespace loam::wire;

constexpr uint64_t kSequence = 300;

template <Message M>
void give(const ExampleCallback& take, const M& message) {
  Buffer bytes;
  encode_message(message, kSequence, bytes);
  take(M::kOpcode, std::move(bytes));
}

TableInfo example_table(const ExampleIds& ids) {
  return {ids.table, "accounts", TableKind::kTransactional, example_schema()};
}

IndexDefinition example_index(const ExampleIds& ids) { return {ids.table, {{1, true}, {0, false}}, true}; }

Scan example_scan(const ExampleIds& ids) {
  Scan scan;
  scan.table = ids.table;
  scan.snapshot = example_snapshot();
  scan.map_version = 3;
  scan.shards = {1, 2, 1023};
  scan.credits = 8;
  scan.query = example_query();
  return scan;
}

/// A row with only the schema's second field.
Buffer example_part() {
  const Schema schema = Schema::make({example_schema().field(1)}).value();
  RowBuilder builder(schema);
  LOAM_CHECK(builder.set_int64(0, 90).ok(), "the value fits");
  const Bytes row = builder.finish().value();
  return Buffer(row.begin(), row.end());
}

}  // namespace

Snapshot example_snapshot() {
  const std::array open = {Version(1003), Version(1007)};
  return Snapshot::make(Version(1000), Version(1010), open).value();
}

Schema example_schema() {
  return Schema::make({{"owner", FieldType::kText, false}, {"balance", FieldType::kInt64, true}}).value();
}

Query example_query() {
  Query query;
  query.where.where(1, PredicateOp::kGreater, {Value::int64(60)});
  query.where.where(0, PredicateOp::kIn, {Value::text("Ada"), Value::text("Bo")});
  query.aggregates = {{AggregateOp::kCountAll, 0}, {AggregateOp::kSum, 1}};
  query.group_by = {0};
  return query;
}

Catalog example_catalog() {
  Catalog catalog;
  catalog.version = 12;
  catalog.tables = {example_table({})};
  catalog.nodes = {{NodeId(1), Incarnation(3), "tcp://127.0.0.1:7401", "127.0.0.1:7411", NodeState::kLive}};
  catalog.shards.version = 11;
  catalog.shards.owners.assign(8, NodeId(1));  // fewer than a real cluster has, because short seeds are better
  return catalog;
}

Publication example_publication() {
  Publication publication;
  publication.number = 5;
  publication.cm_epoch = 2;
  publication.later = example_snapshot();
  publication.floor = Version(900);
  publication.young_open = true;
  publication.old = {{Snapshot(Version(800)), true}};
  LOAM_CHECK(publication.check().ok(), "the example keeps the invariants");
  return publication;
}

Buffer example_row() {
  const Schema schema = example_schema();
  RowBuilder builder(schema);
  LOAM_CHECK(builder.set_text(0, "Ada").ok() && builder.set_int64(1, 100).ok(), "values fit");
  const Bytes row = builder.finish().value();
  return Buffer(row.begin(), row.end());
}

void client_to_node(const ExampleIds& ids, const ExampleCallback& take) {
  const Buffer row = example_row();
  const RecordId record{ids.table, Key(77)};
  give(take, Ping{row});
  give(take, Attach{ids.session, ids.manager_epoch, ids.incarnation, ids.cluster});
  give(take, Read{example_snapshot(), {record, {kCounterTableId, Key(2)}}});
  const std::array<uint16_t, 2> fields = {1, 0};
  give(take, Read{example_snapshot(), {record, {ids.table, Key(78)}}, FieldNumbers(fields)});
  give(take, Write{ids.transaction,
                   example_snapshot(),
                   {{WriteKind::kInsert, record, row}, {WriteKind::kRemove, {ids.table, Key(78)}, {}}}});
  const std::array<uint16_t, 1> balance = {1};
  const Buffer part = example_part();
  give(take,
       Write{ids.transaction, example_snapshot(), {{WriteKind::kUpdateFields, record, part, FieldNumbers(balance)}}});
  give(take, Revert{ids.transaction, {record}});
  give(take, PlainRead{{record, {kCounterTableId, Key(1)}}});
  give(take, PlainWrite{{{WriteKind::kUpdate, Reserve::kUndo, record, Version(77), row},
                         {WriteKind::kRemove, {}, {kCounterTableId, Key(2)}, Version(78), {}}}});
  give(take, PlainRead{{{kCounterTableId, Key(1)}}, FieldNumbers(std::span(fields).last(1))});
  give(take, PlainWrite{{{WriteKind::kUpdateFields, {}, record, Version(77), part, FieldNumbers(balance)}}});
  const IndexIntent gives{ids.transaction, Key(77), false, true, "Ada"};
  const IndexIntent takes{TransactionId(1007), Key(78), true, false, "Bo"};
  give(take,
       PlainWrite{{{WriteKind::kUpdateFields, {}, record, Version(77), part, FieldNumbers(balance)}}, {gives, takes}});
  give(take, Intents{ids.session, {ids.session, 7}});
  give(take, Intents{});
  give(take, example_scan(ids));
  give(take, ScanCredit{4});
  give(take, ScanCancel{});
}

void to_manager(const ExampleIds& ids, const ExampleCallback& take) {
  give(take, OpenSession{"loam import", ids.session, ids.manager_epoch, ids.cluster});
  give(take, RenewSession{17, {3, 9, 17}});
  give(take, GetOutcomes{{ids.transaction, TransactionId(1ull << 40)}});
  give(take, Begin{3, true, true, {18}});
  give(take, Complete{{{ids.transaction, true}, {TransactionId(1007), false}}});
  give(take, ReleaseSnapshots{{17, 18}});
  give(take, GetCatalog{});
  give(take, CreateTable{"accounts", TableKind::kTransactional, example_schema()});
  give(take, CreateTable{"by_balance", TableKind::kNonTransactional, index_node_schema(), example_index(ids)});
  give(take, FinishIndex{TableId(1025)});
  give(take, DropTable{"no such table"});
  give(take, RenameTable{"no such table", "another name", TableId(1024)});
  give(take, AddField{TableId(1u << 30), Schema::make({{"note", FieldType::kText, true}}).value()});
  give(take, CloseSession{});
  give(take, RegisterNode{"tcp://127.0.0.1:1", "127.0.0.1:7411", 1u << 30, ids.incarnation});
  const HistoryPoint of_another_cluster{{7, 8}, 2, 99, 12, 1'000};
  give(take, RegisterNode{"tcp://127.0.0.1:1", "127.0.0.1:7411", 1u << 30, ids.incarnation, 9, of_another_cluster});
  give(take, RenewNode{});
}

void from_servers(const ExampleIds& ids, const ExampleCallback& take) {
  const Buffer row = example_row();
  const FenceSet fences{SessionId(9), {SessionId(4), SessionId(7)}};
  give(take, Error{Status(StatusCode::kOverloaded, "busy"), 5'000'000});
  give(take, Pong{row});
  give(take, AttachReply{NodeId(2)});
  give(take, ReadReply{{{StatusCode::kOk, Version(8), row}, {StatusCode::kNotFound, {}, {}}}});
  give(take, WriteReply{{{StatusCode::kConflict, Version(1)}}, "field owner: wrong type"});
  give(take, RevertReply{{{StatusCode::kOk, {}}}});
  give(take, PlainReadReply{{{StatusCode::kOk, Version(8), row}}});
  give(take, PlainWriteReply{{{StatusCode::kConflict, Version(78)}}, ""});
  give(take, IntentsReply{{{Intent::Kind::kRecord, ids.transaction, ids.table, Key(77)},
                           {Intent::Kind::kIndexInsert, ids.transaction, TableId(1025), Key(77), true, "Ada"}},
                          true,
                          {ids.session, 8},
                          3,
                          17});
  give(take, ScanChunk{row});
  give(take, ScanChunk{{}, 3, 4'096});
  give(take, ScanDone{Status(), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 11, "by column"});
  give(take, ScanProgress{{.pages = 3, .pages_total = 7, .busy_ns = 1}});
  give(take,
       OpenSessionReply{ids.session, ids.manager_epoch, "127.0.0.1:7410", example_catalog(), 1'000'000, ids.cluster});
  give(take, RenewSessionReply{12});
  give(take, GetOutcomesReply{{Outcome::kPending, Outcome::kCommitted}});
  give(take, BeginReply{ids.transaction, 17, 18, example_snapshot(), Version(900), Version(950), 12});
  give(take, CompleteReply{});
  give(take, CompleteReply{{ids.transaction}});
  give(take, GetCatalogReply{example_catalog()});
  give(take, CreateTableReply{example_table(ids), true, 13});
  give(take, FinishIndexReply{15});
  give(take, DropTableReply{14});
  give(take, RenameTableReply{16});
  give(take, AddFieldReply{false, 17});
  give(take, CloseSessionReply{});
  give(take, RegisterNodeReply{NodeId(1),
                               Incarnation(2),
                               3,
                               example_catalog(),
                               example_publication(),
                               fences,
                               2'000'000'000,
                               true,
                               {ids.cluster, {{1, 98, 1}, {3, 99, 10}}, 12, 1'000}});
  give(take, RenewNodeReply{12, 1'000});
  give(take, Fence{fences});
  give(take, FenceReply{});
  give(take, AcceptLoss{});
  give(take, AcceptLossReply{});
  give(take, Publish{example_publication(), 12, 1'000});
  give(take, PublishReply{2, 5});
  give(take, InstallTable{example_table(ids), example_catalog().shards});
  give(take, InstallTableReply{});
  give(take, RemoveTable{ids.table});
  give(take, RemoveTableReply{});
}

}  // namespace loam::fuzz
