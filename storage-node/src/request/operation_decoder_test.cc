// The values that requests of point operations become, and malformed requests.
#include <cstddef>
#include <string>
#include <vector>

#include "common/testing/random_schema.h"
#include "storage-node/testing/operation_decoder_fixture.h"

namespace loam::storage {
namespace {

using wire::Intent;
using wire::Opcode;
using wire::WriteKind;

// ---- the decoded values --------------------------------------------------------------------------------------------

TEST_F(OperationDecoderTest, ReadBecomesOneGetForEachRecordInOrder) {
  const Version open[] = {Version(12)};
  const Snapshot snapshot = Snapshot::make(Version(11), Version(20), open).value();
  ASSERT_TRUE(decode(300, wire::Read{snapshot, {account(7), person(3), account(7)}}).ok());
  ASSERT_EQ(batch_.requests().size(), 1u);
  const RequestBatch::Request& request = batch_.requests()[0];
  EXPECT_EQ(request.reply, Opcode::kReadReply);
  EXPECT_EQ(request.sequence, 300u);
  EXPECT_EQ(request.projection, nullptr) << "whole rows";
  const auto operations = batch_.operations();
  ASSERT_EQ(operations.size(), 3u);
  for (const PointOperation& operation : operations) {
    EXPECT_EQ(operation.kind, PointKind::kGet);
    ASSERT_NE(operation.snapshot, nullptr);
    EXPECT_EQ(*operation.snapshot, snapshot);
  }
  EXPECT_EQ(operations[0].table, table(kAccounts));
  EXPECT_EQ(operations[0].key, Key(7));
  EXPECT_EQ(operations[1].table, table(kPeople));
  EXPECT_EQ(operations[1].key, Key(3));
  EXPECT_EQ(operations[2].key, Key(7)) << "a record may be named twice";
  EXPECT_TRUE(peer.sent.empty()) << "the reply follows the execution";
  EXPECT_TRUE(noted().empty());
}

TEST_F(OperationDecoderTest, RequestsOfABatchKeepTheirOwnSnapshots) {
  for (uint64_t base = 10; base < 40; ++base) {
    ASSERT_TRUE(decode(base, wire::Read{Snapshot(Version(base)), {account(base)}}).ok());
  }
  ASSERT_EQ(batch_.operations().size(), 30u);
  for (const PointOperation& operation : batch_.operations()) {
    EXPECT_EQ(*operation.snapshot, Snapshot(Version(operation.key.value)));
  }
}

TEST_F(OperationDecoderTest, PlainReadNeedsNoSnapshot) {
  ASSERT_TRUE(decode(4, wire::PlainRead{{counter(2), node(1)}}).ok());
  EXPECT_EQ(batch_.requests()[0].reply, Opcode::kPlainReadReply);
  const auto operations = batch_.operations();
  ASSERT_EQ(operations.size(), 2u);
  EXPECT_EQ(operations[0].kind, PointKind::kPlainGet);
  EXPECT_EQ(operations[0].table, table(kCounters));
  EXPECT_EQ(operations[0].key, Key(2));
  EXPECT_EQ(operations[0].snapshot, nullptr);
  EXPECT_EQ(operations[1].table, table(kIndex));
}

TEST_F(OperationDecoderTest, ReadOfNamedFieldsCarriesTheirProjection) {
  const std::vector<uint16_t> name = {1}, both = {1, 0}, value = {0};
  ASSERT_TRUE(decode(1, wire::Read{Snapshot(Version(10)), {person(1)}, FieldNumbers(name)}).ok());
  ASSERT_TRUE(decode(2, wire::Read{Snapshot(Version(10)), {person(1)}, FieldNumbers(both)}).ok());
  ASSERT_TRUE(decode(3, wire::PlainRead{{counter(1)}, FieldNumbers(value)}).ok());
  ASSERT_TRUE(decode(4, wire::Read{Snapshot(Version(10)), {person(1)}}).ok());
  const auto requests = batch_.requests();
  ASSERT_EQ(requests.size(), 4u);
  ASSERT_NE(requests[0].projection, nullptr);
  EXPECT_EQ(requests[0].projection->numbers(), FieldNumbers(name));
  EXPECT_EQ(requests[1].projection->numbers(), FieldNumbers(both));
  EXPECT_EQ(requests[2].projection->numbers(), FieldNumbers(value));
  EXPECT_EQ(requests[3].projection, nullptr);
  for (const PointOperation& operation : batch_.operations()) {
    EXPECT_EQ(operation.projection, nullptr) << "the reply selects the fields, not the execution";
  }
}

TEST_F(OperationDecoderTest, RevertNamesTheTransaction) {
  ASSERT_TRUE(decode(9, wire::Revert{TransactionId(11), {account(2), person(1)}}).ok());
  EXPECT_EQ(batch_.requests()[0].reply, Opcode::kRevertReply);
  const auto operations = batch_.operations();
  ASSERT_EQ(operations.size(), 2u);
  for (const PointOperation& operation : operations) {
    EXPECT_EQ(operation.kind, PointKind::kRevert);
    EXPECT_EQ(operation.transaction, TransactionId(11));
  }
  EXPECT_EQ(operations[0].key, Key(2));
  EXPECT_EQ(operations[1].table, table(kPeople));
  EXPECT_TRUE(noted().empty()) << "an undo needs no undo";
}

TEST_F(OperationDecoderTest, WriteBecomesConditionalWritesWithOneIntentEach) {
  const std::vector<uint16_t> numbers = {1};
  const Buffer whole = loam::testing::build_row(people_, {Value::int64(7), Value::text("Ada")});
  const Buffer part = loam::testing::build_row(loam::testing::projected_schema(people_, numbers), {Value::text("Eve")});
  ASSERT_TRUE(decode(8, wire::Write{TransactionId(12),
                                    Snapshot(Version(10)),
                                    {{WriteKind::kInsert, person(1), whole},
                                     {WriteKind::kUpdateFields, person(2), part, FieldNumbers(numbers)},
                                     {WriteKind::kUpdate, person(3), whole},
                                     {WriteKind::kRemove, person(4), {}}}})
                  .ok());
  EXPECT_EQ(batch_.requests()[0].reply, Opcode::kWriteReply);
  const auto operations = batch_.operations();
  ASSERT_EQ(operations.size(), 4u);
  const PointKind kinds[] = {PointKind::kInsert, PointKind::kUpdate, PointKind::kUpdate, PointKind::kRemove};
  const Bytes rows[] = {whole, part, whole, {}};
  std::vector<Intent> expected;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(operations[i].kind, kinds[i]) << i;
    EXPECT_TRUE(equal(operations[i].row, rows[i])) << i;
    EXPECT_EQ(operations[i].table, table(kPeople)) << i;
    EXPECT_EQ(operations[i].key, Key(i + 1)) << i;
    EXPECT_EQ(operations[i].transaction, TransactionId(12)) << i;
    EXPECT_EQ(*operations[i].snapshot, Snapshot(Version(10))) << i;
    EXPECT_EQ(batch_.items()[i].intents, 1u) << i;
    EXPECT_EQ(operations[i].projection != nullptr, i == 1) << i << ": only the update of named fields has them";
    expected.push_back({Intent::Kind::kRecord, TransactionId(12), kPeople, Key(i + 1)});
  }
  EXPECT_EQ(operations[1].projection->numbers(), FieldNumbers(numbers));
  EXPECT_EQ(noted(), expected);
}

TEST_F(OperationDecoderTest, PlainWriteNamesTheExpectedVersionExceptForInserts) {
  ASSERT_TRUE(decode(8, wire::PlainWrite{{{WriteKind::kInsert, {}, counter(1), Version(5), bytes_},
                                          {WriteKind::kUpdate, {}, counter(2), Version(6), bytes_},
                                          {WriteKind::kRemove, {}, counter(3), Version(7), {}}}})
                  .ok());
  EXPECT_EQ(batch_.requests()[0].reply, Opcode::kPlainWriteReply);
  const auto operations = batch_.operations();
  ASSERT_EQ(operations.size(), 3u);
  EXPECT_EQ(operations[0].kind, PointKind::kPlainPut);
  EXPECT_EQ(operations[0].expected, Version()) << "an insert expects no record";
  EXPECT_TRUE(equal(operations[0].row, bytes_));
  EXPECT_EQ(operations[1].kind, PointKind::kPlainPut);
  EXPECT_EQ(operations[1].expected, Version(6));
  EXPECT_EQ(operations[2].kind, PointKind::kPlainRemove);
  EXPECT_EQ(operations[2].expected, Version(7));
  EXPECT_EQ(operations[2].table, table(kCounters));
  for (const RequestBatch::Item& item : batch_.items()) EXPECT_EQ(item.intents, 0u);
  EXPECT_TRUE(noted().empty()) << "plain writes belong to no transaction";
}

TEST_F(OperationDecoderTest, TablesOfApplicationsGetNoReserve) {
  const auto granted = [&](TableId id, Reserve asked) {
    EXPECT_TRUE(decode(1, wire::PlainWrite{{{WriteKind::kInsert, asked, {id, Key(1)}, {}, bytes_}}}).ok());
    return batch_.operations().back().reserve;
  };
  for (const TableId id : {kIndex, kCounters}) {
    EXPECT_EQ(granted(id, Reserve::kWrite), Reserve::kWrite);
    EXPECT_EQ(granted(id, Reserve::kRemove), Reserve::kRemove);
    EXPECT_EQ(granted(id, Reserve::kUndo), Reserve::kUndo);
    EXPECT_EQ(granted(id, Reserve::kCompactor), Reserve::kUndo) << "clients never get the memory of the compactor";
  }
  EXPECT_EQ(granted(kOrdinary, Reserve::kUndo), Reserve::kWrite);
}

TEST_F(OperationDecoderTest, IndexChangesOfOneWriteBecomeIntents) {
  const std::vector<wire::IndexIntent> changes = {{TransactionId(14), Key(1), true, false, "one"},
                                                  {TransactionId(15), Key(2), false, true, "two"}};
  ASSERT_TRUE(decode(1, wire::PlainWrite{{{WriteKind::kInsert, {}, node(9), {}, bytes_}}, changes}).ok());
  ASSERT_EQ(batch_.operations().size(), 1u);
  EXPECT_EQ(batch_.items()[0].intents, 2u);
  EXPECT_EQ(noted(),
            (std::vector<Intent>{{Intent::Kind::kIndexRemove, TransactionId(14), kIndex, Key(1), false, "one"},
                                 {Intent::Kind::kIndexInsert, TransactionId(15), kIndex, Key(2), true, "two"}}));
}

// ---- malformed messages --------------------------------------------------------------------------------------------

TEST_F(OperationDecoderTest, EveryCutMessageIsMalformedAndAddsNothing) {
  const std::vector<uint16_t> numbers = {0};
  std::vector<Buffer> messages(5);
  wire::encode_message(wire::Read{Snapshot(Version(10)), {account(1)}, FieldNumbers(numbers)}, 1, messages[0]);
  wire::encode_message(insert(11, 1), 1, messages[1]);
  wire::encode_message(wire::Revert{TransactionId(11), {account(1)}}, 1, messages[2]);
  wire::encode_message(wire::PlainRead{{counter(1)}, FieldNumbers(numbers)}, 1, messages[3]);
  const std::vector<wire::IndexIntent> changes = {{TransactionId(14), Key(1), true, false, "one"}};
  wire::encode_message(wire::PlainWrite{{{WriteKind::kInsert, {}, node(1), {}, bytes_}}, changes}, 1, messages[4]);
  constexpr size_t kEnvelopeBytes = 2;
  for (Buffer& message : messages) {
    for (size_t size = kEnvelopeBytes; size < message.size(); ++size) {
      const Buffer cut(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_EQ(decode_bytes(cut).code(), StatusCode::kMalformed) << size << " of " << message.size() << " bytes";
    }
    message.push_back({});
    EXPECT_EQ(decode_bytes(message).code(), StatusCode::kMalformed) << "one byte too many";
  }
  EXPECT_TRUE(batch_.empty());
  EXPECT_TRUE(noted().empty());
  EXPECT_TRUE(peer.sent.empty()) << "the executor closes the connection";
}

TEST_F(OperationDecoderTest, UnknownKindsOfWritesAreMalformed) {
  for (const unsigned number : {0u, 6u, 255u}) {
    const auto kind = static_cast<WriteKind>(number);
    wire::Write write = insert(11, 1);
    write.operations.push_back({kind, account(2), bytes_});
    EXPECT_EQ(decode(1, write).to_string(), "kMalformed: kWrite: unknown kind of write");
    const wire::PlainWrite plain{{{WriteKind::kInsert, {}, counter(1), {}, bytes_}, {kind, {}, counter(2), {}, {}}}};
    EXPECT_EQ(decode(2, plain).to_string(), "kMalformed: kPlainWrite: unknown kind of write");
  }
  EXPECT_TRUE(batch_.empty()) << "the valid operation beside it is not executed";
  EXPECT_TRUE(noted().empty());
}

TEST_F(OperationDecoderTest, OtherMessagesAreMalformed) {
  EXPECT_EQ(decode(1, wire::Ping{}).to_string(), "kMalformed: a storage node does not take kPing from a client");
  EXPECT_EQ(decode(1, wire::ReadReply{}).to_string(),
            "kMalformed: a storage node does not take kReadReply from a client");
  EXPECT_TRUE(batch_.empty());
  EXPECT_TRUE(peer.sent.empty());
}

}  // namespace
}  // namespace loam::storage
