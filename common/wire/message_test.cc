#include "common/wire/message.h"

#include <array>
#include <random>

#include <gtest/gtest.h>

#include "common/wire/manager.h"
#include "common/wire/storage.h"

namespace loam::wire {
namespace {

Snapshot some_snapshot() {
  const std::array open = {Version(1003), Version(1007)};
  return Snapshot::make(Version(1000), Version(1010), open).value();
}

Schema some_schema() {
  return Schema::make({{"owner", FieldType::kText, false}, {"balance", FieldType::kInt64, true}}).value();
}

IndexDefinition some_index() { return {TableId(7), {{1, true}, {0, false}}, true, 12}; }

TableInfo some_table() { return {TableId(7), "accounts", TableKind::kTransactional, some_schema()}; }

Catalog some_catalog() {
  Catalog catalog;
  catalog.version = 12;
  catalog.tables = {some_table(), {TableId(8), "by_owner", TableKind::kNonTransactional, some_schema(), some_index()}};
  catalog.nodes = {{NodeId(1), Incarnation(3), "tcp://127.0.0.1:7401", "127.0.0.1:7411", NodeState::kLost}};
  catalog.shards.version = 11;
  catalog.shards.owners.assign(kVirtualShards, NodeId(1));
  return catalog;
}

/// Encodes a message, decodes it and encodes the result. Equal bytes mean that no field was lost. Also checks that
/// every truncation, and one additional byte, is kMalformed.
template <Message M>
void check_codec(const M& message) {
  SCOPED_TRACE(to_string(M::kOpcode));
  Buffer bytes;
  encode_message(message, 300, bytes);

  ByteReader reader(bytes);
  Envelope envelope;
  ASSERT_TRUE(decode_envelope(reader, envelope).ok());
  EXPECT_EQ(envelope.opcode, M::kOpcode);
  EXPECT_EQ(envelope.sequence, 300u);
  M decoded;
  const Status status = decode_body(reader, decoded);
  ASSERT_TRUE(status.ok()) << status.to_string();
  Buffer again;
  encode_message(decoded, 300, again);
  EXPECT_TRUE(equal(bytes, again));

  for (size_t size = 0; size < bytes.size(); ++size) {
    ByteReader cut(Bytes(bytes).first(size));
    Envelope cut_envelope;
    Status cut_status = decode_envelope(cut, cut_envelope);
    M cut_message;
    if (cut_status.ok()) cut_status = decode_body(cut, cut_message);
    EXPECT_TRUE(cut_status == StatusCode::kMalformed) << "cut to " << size << " of " << bytes.size();
  }
  bytes.push_back(std::byte{0});
  ByteReader longer(bytes);
  ASSERT_TRUE(decode_envelope(longer, envelope).ok());
  EXPECT_TRUE(decode_body(longer, decoded) == StatusCode::kMalformed);
}

template <Message M>
size_t encoded_size(const M& message) {
  Buffer bytes;
  encode_message(message, 300, bytes);
  return bytes.size();
}

/// Compares the encoded size of one int64 field with that of the whole row of 200 bytes.
TEST(Message, UnusedFieldsAreNotEncoded) {
  const Buffer row(200), field(8);
  const RecordId record{TableId(1024), Key(7)};
  const std::array<uint16_t, 1> one = {3};
  const FieldNumbers fields(one);
  const Snapshot snapshot = some_snapshot();
  Buffer encoded;
  ByteWriter writer(encoded);
  snapshot.encode(writer);
  const size_t read = encoded_size(Read{snapshot, {record}});
  EXPECT_EQ(read, 3 + encoded.size() + 1 + 10 + 2)
      << "envelope, snapshot, one record, and two bytes for the empty projection and the added fields";
  EXPECT_EQ(encoded_size(Read{snapshot, {record}, fields}), read + 2);
  EXPECT_EQ(encoded_size(ReadReply{{{StatusCode::kOk, Version(8), row}}}), 216u);
  EXPECT_EQ(encoded_size(ReadReply{{{StatusCode::kOk, Version(8), field}}}), 23u);
  const size_t write = encoded_size(Write{TransactionId(9), snapshot, {{WriteKind::kUpdate, record, row}}});
  EXPECT_EQ(encoded_size(Write{TransactionId(9), snapshot, {{WriteKind::kUpdateFields, record, field, fields}}}),
            write - 190);
}

TEST(Message, StorageMessagesRoundTripAndOtherBytesAreMalformed) {
  const Buffer row(33, std::byte{5});
  const RecordId record{TableId(300), Key(~0ull)};
  check_codec(Error{Status(StatusCode::kNoSuchTable, "no table 9")});
  check_codec(Error{Status(StatusCode::kOverloaded, "busy"), 5'000'000});
  check_codec(Attach{SessionId(4), 5, Incarnation(6), {7, 8}});
  check_codec(AttachReply{NodeId(2)});
  check_codec(Read{some_snapshot(), {record, {TableId(1), Key(2)}}});
  const std::array<uint16_t, 3> fields = {4, 1023, 0};
  check_codec(Read{some_snapshot(), {record}, FieldNumbers(fields)});
  check_codec(Read{some_snapshot(), {record}, {}, 7});
  check_codec(ReadReply{{{StatusCode::kOk, Version(8), row}, {StatusCode::kNotFound, {}, {}}}});
  check_codec(
      Write{TransactionId(9), some_snapshot(), {{WriteKind::kInsert, record, row}, {WriteKind::kRemove, record, {}}}});
  check_codec(
      Write{TransactionId(9),
            some_snapshot(),
            {{WriteKind::kUpdateFields, record, row, FieldNumbers(fields)}, {WriteKind::kUpdate, record, row}}});
  check_codec(WriteReply{{{StatusCode::kConflict, Version(1)}}, "field owner: wrong type"});
  check_codec(Revert{TransactionId(9), {record}});
  check_codec(RevertReply{{{StatusCode::kOk, {}}}});
  check_codec(PlainRead{{record}});
  check_codec(PlainRead{{record}, FieldNumbers(fields)});
  check_codec(PlainRead{{record}, {}, 255});
  check_codec(Write{TransactionId(9), some_snapshot(), {{WriteKind::kReplace, record, row, {}, 3}}});
  check_codec(PlainWrite{{{WriteKind::kInsert, {}, record, Version(), row, {}, 3}}});
  check_codec(PlainReadReply{{{StatusCode::kOk, Version(8), row}}});
  check_codec(PlainWrite{{{WriteKind::kUpdate, Reserve::kUndo, record, Version(77), row},
                          {WriteKind::kRemove, {}, record, Version(79), {}}}});
  check_codec(PlainWrite{{{WriteKind::kUpdateFields, {}, record, Version(77), row, FieldNumbers(fields)}}});
  check_codec(
      PlainWrite{{{WriteKind::kUpdateFields, {}, record, Version(77), row, FieldNumbers(fields)}},
                 {{TransactionId(9), Key(1), true, true, "tree key"}, {TransactionId(10), Key(2), false, false, ""}}});
  check_codec(PlainWriteReply{{{StatusCode::kConflict, Version(78)}}, ""});
  check_codec(Intents{SessionId(4), {SessionId(4), 5}});
  check_codec(IntentsReply{{{Intent::Kind::kRecord, TransactionId(9), TableId(300), Key(1)},
                            {Intent::Kind::kIndexRemove, TransactionId(9), TableId(301), Key(1), true, "tree key"}},
                           true,
                           {SessionId(4), 6},
                           3,
                           17});
  Scan scan;
  scan.table = TableId(7);
  scan.snapshot = some_snapshot();
  scan.map_version = 3;
  scan.shards = {1, 2, 1023};
  scan.credits = 8;
  scan.time_limit_ns = 9;
  scan.progress_interval_ns = 10;
  scan.explain = true;
  check_codec(scan);
  check_codec(ScanChunk{row});
  check_codec(ScanChunk{{}, 7, 1'000});
  check_codec(Ping{row});
  check_codec(Pong{row});
  check_codec(ScanDone{Status(), {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 11, "by column"});
  check_codec(ScanCredit{4});
  check_codec(ScanCancel{});
  check_codec(ScanProgress{{.pages = 3, .pages_total = 7, .busy_ns = 1}});
}

TEST(Message, ManagerMessagesRoundTripAndOtherBytesAreMalformed) {
  check_codec(OpenSession{"loam import", SessionId(3), 2, {7, 8}});
  check_codec(OpenSessionReply{SessionId(4), 2, "127.0.0.1:7410", some_catalog(), 1'000'000, {7, 8}});
  check_codec(RenewSession{17, {3, 9, 17}});
  check_codec(RenewSessionReply{12});
  check_codec(GetOutcomes{{TransactionId(5), TransactionId(1ull << 40)}});
  check_codec(GetOutcomesReply{{Outcome::kPending, Outcome::kCommitted}});
  check_codec(Begin{32, true, true, {18, 1ull << 40}});
  check_codec(BeginReply{TransactionId(1011), 17, 18, some_snapshot(), Version(900), Version(950), 12});
  check_codec(Complete{{{TransactionId(1003), true}, {TransactionId(1007), false}}});
  check_codec(CompleteReply{});
  check_codec(CompleteReply{{TransactionId(1003)}});
  check_codec(ReleaseSnapshots{{17, 18}});
  check_codec(GetCatalog{});
  check_codec(GetCatalogReply{some_catalog()});
  check_codec(CreateTable{"accounts", TableKind::kTransactional, some_schema()});
  check_codec(CreateTable{"by_owner", TableKind::kNonTransactional, some_schema(), some_index()});
  check_codec(CreateTableReply{some_table(), true, 13});
  check_codec(FinishIndex{TableId(8)});
  check_codec(FinishIndexReply{15});
  check_codec(DropTable{"accounts"});
  check_codec(DropTable{"by_balance", TableId(1'024), true});
  check_codec(DropTableReply{14});
  check_codec(RenameTable{"accounts", "ledger", TableId(1'024)});
  check_codec(RenameTableReply{16});
  check_codec(AddField{TableId(1'024), Schema::make({{"note", FieldType::kText, true}}).value()});
  check_codec(AddFieldReply{true, 17});
  check_codec(CloseSession{});
  check_codec(CloseSessionReply{});
  check_codec(
      RegisterNode{"tcp://127.0.0.1:7401", "127.0.0.1:7411", 1u << 30, Incarnation(6), 9, {{7, 8}, 3, 99, 12, 1'000}});
  const FenceSet fences{SessionId(9), {SessionId(4), SessionId(7)}};
  check_codec(RegisterNodeReply{NodeId(1),
                                Incarnation(2),
                                3,
                                some_catalog(),
                                {},
                                fences,
                                2'000'000'000,
                                true,
                                {{7, 8}, {{1, 98, 1}, {3, 99, 10}}, 12, 1'000}});
  check_codec(RenewNode{});
  check_codec(RenewNodeReply{12, 1'000});
  check_codec(Fence{fences});
  check_codec(FenceReply{});
  check_codec(AcceptLoss{});
  check_codec(AcceptLossReply{});
  check_codec(Publish{{}, 12, 1'000});
  check_codec(PublishReply{3, 17});
  check_codec(InstallTable{some_table(), some_catalog().shards});
  check_codec(InstallTableReply{});
  check_codec(RemoveTable{TableId(7)});
  check_codec(RemoveTableReply{});
}

TEST(Message, ListsReserveMemoryForReceivedElementsOnly) {
  constexpr uint64_t kAnnounced = 1u << 20;
  Buffer bytes;
  ByteWriter writer(bytes);
  writer.put(Opcode::kGetCatalogReply);
  writer.put_varint(1);
  writer.put_varint(12);  // version
  writer.put_varint(kAnnounced);
  bytes.resize(bytes.size() + kAnnounced);  // passes get_count(); no table has these bytes
  ByteReader reader(bytes);
  Envelope envelope;
  ASSERT_TRUE(decode_envelope(reader, envelope).ok());
  GetCatalogReply reply;
  EXPECT_TRUE(decode_body(reader, reply) == StatusCode::kMalformed);
  EXPECT_LE(reply.catalog.tables.capacity(), 64u);
}

TEST(Message, LongListsReuseTheirMemory) {
  RenewSession message{1, std::vector<uint64_t>(1'000, 7)};
  Buffer bytes;
  encode_message(message, 1, bytes);
  RenewSession reused;
  for (int i = 0; i < 2; ++i) {
    const size_t capacity = reused.held.capacity();
    ByteReader reader(bytes);
    Envelope envelope;
    ASSERT_TRUE(decode_envelope(reader, envelope).ok());
    ASSERT_TRUE(decode_body(reader, reused).ok());
    EXPECT_EQ(reused.held, message.held);
    EXPECT_TRUE(i == 0 || reused.held.capacity() == capacity);
  }
  reused.held.resize(2'000);
  ByteReader reader(bytes);
  Envelope envelope;
  ASSERT_TRUE(decode_envelope(reader, envelope).ok());
  ASSERT_TRUE(decode_body(reader, reused).ok());
  EXPECT_EQ(reused.held, message.held) << "a list in a reused message keeps old elements";
}

TEST(Message, UnknownOpcodeIsMalformed) {
  for (int opcode = 0; opcode < 256; ++opcode) {
    Buffer bytes;
    ByteWriter writer(bytes);
    writer.put(static_cast<uint8_t>(opcode));
    writer.put_varint(1);
    ByteReader reader(bytes);
    Envelope envelope;
    EXPECT_EQ(decode_envelope(reader, envelope).ok(), !to_string(static_cast<Opcode>(opcode)).empty()) << opcode;
  }
}

TEST(Message, RandomBytesNeverPassTheChecks) {
  const uint64_t seed = 20240711;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20'000; ++round) {
    Buffer bytes(random() % 64);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    // Only checks that the decoder neither reads beyond the bytes nor reserves much more memory than they have. The
    // address sanitizer reports both.
    Read read;
    ByteReader a(bytes);
    static_cast<void>(decode_body(a, read));
    Write write;
    ByteReader b(bytes);
    static_cast<void>(decode_body(b, write));
    Scan scan;
    ByteReader c(bytes);
    static_cast<void>(decode_body(c, scan));
    RegisterNodeReply registered;
    ByteReader d(bytes);
    static_cast<void>(decode_body(d, registered));
    ASSERT_LE(read.records.size(), 64u);
    ASSERT_LE(write.operations.size(), 64u);
  }
}

TEST(ShardMap, SpreadsKeysEvenlyAndIsPartOfTheProtocol) {
  std::vector<int> hits(kVirtualShards);
  for (uint64_t key = 0; key < 1'024'000; ++key) ++hits[shard_of(TableId(3), Key(key))];
  for (const int n : hits) {
    EXPECT_GT(n, 800);
    EXPECT_LT(n, 1200);
  }
  // If these numbers changed, clients of an older build would send requests to the wrong storage node.
  EXPECT_EQ(shard_of(TableId(1), Key(0)), 750);
  EXPECT_EQ(shard_of(TableId(1), Key(1)), 991);
  EXPECT_EQ(shard_of(TableId(1), Key(2)), 157);
  EXPECT_EQ(shard_of(TableId(1), Key(~0ull)), 582);
}

}  // namespace
}  // namespace loam::wire
