// Requests of point operations that the decoder refuses as a whole, and operations that it refuses one by one.
#include <string>
#include <vector>

#include "storage-node/testing/operation_decoder_fixture.h"

namespace loam::storage {
namespace {

using wire::Intent;
using wire::WriteKind;

using Codes = std::vector<StatusCode>;

// ---- requests that are refused as a whole --------------------------------------------------------------------------

TEST_F(OperationDecoderTest, RequestsHaveAtMostMaxOperations) {
  const std::string expected =
      "kInvalidArgument: 4097 operations in one request, more than 4096; send several requests";
  const Snapshot snapshot(Version(10));
  std::vector records(wire::kMaxOperations, account(1));
  ASSERT_TRUE(decode(1, wire::Read{snapshot, records}).ok());
  ASSERT_TRUE(decode(2, wire::Revert{TransactionId(11), records}).ok());
  EXPECT_EQ(batch_.operations().size(), 2 * wire::kMaxOperations) << "exactly at the limit";
  records.push_back(account(2));
  EXPECT_EQ(refusal(wire::Read{snapshot, records}), expected);
  EXPECT_EQ(refusal(wire::Revert{TransactionId(11), records}), expected);
  EXPECT_EQ(refusal(wire::PlainRead{records}), expected);
  wire::Write write = insert(11, 1);
  write.operations.resize(wire::kMaxOperations + 1, write.operations[0]);
  EXPECT_EQ(refusal(write), expected);
  wire::PlainWrite plain{{{WriteKind::kInsert, {}, node(1), {}, bytes_}}};
  plain.intents.resize(wire::kMaxOperations + 1, {TransactionId(11), Key(1), false, false, "k"});
  EXPECT_EQ(refusal(plain), expected) << "index changes have the same limit";
  plain.intents.clear();
  plain.operations.resize(wire::kMaxOperations + 1, plain.operations[0]);
  EXPECT_EQ(refusal(plain), expected);
  EXPECT_TRUE(noted().empty());
}

TEST_F(OperationDecoderTest, OldSnapshotsAreRefused) {
  registry->publish(*epoch_thread, publication(2, 50));
  const std::string expected =
      "kSnapshotTooOld: versions that this snapshot sees may have been collected; begin a new transaction";
  EXPECT_EQ(refusal(wire::Read{Snapshot(Version(49)), {account(1)}}), expected);
  wire::Write write = insert(51, 1);
  write.snapshot = Snapshot(Version(49));
  EXPECT_EQ(refusal(write), expected);
  EXPECT_TRUE(noted().empty());
  write.snapshot = Snapshot(Version(50));
  ASSERT_TRUE(decode(1, write).ok());
  EXPECT_EQ(codes(), Codes{StatusCode::kOk});
}

TEST_F(OperationDecoderTest, WritesOfCompleteTransactionsAreRefused) {
  EXPECT_EQ(refusal(insert(10, 1)), "kInvalidArgument: transaction 10 is already complete");
  const wire::IndexIntent open{TransactionId(11), Key(1), false, false, "k"};
  const wire::IndexIntent complete{TransactionId(9), Key(1), false, false, "k"};
  EXPECT_EQ(refusal(wire::PlainWrite{{{WriteKind::kInsert, {}, node(1), {}, bytes_}}, {open, complete}}),
            "kInvalidArgument: transaction 9 is already complete");
  EXPECT_TRUE(noted().empty()) << "the intent of the open transaction is not kept either";
  ASSERT_TRUE(decode(1, insert(11, 1)).ok());
  EXPECT_EQ(codes(), Codes{StatusCode::kOk});
}

TEST_F(OperationDecoderTest, IndexChangesNeedOneWriteAndShortKeys) {
  const wire::PlainWrite::Operation write{WriteKind::kInsert, {}, node(1), {}, bytes_};
  const std::string longest(kMaxIntentKeyBytes, 'k');
  const std::string too_long = longest + "k";
  const wire::IndexIntent fits{TransactionId(11), Key(1), false, false, longest};
  const wire::IndexIntent large{TransactionId(11), Key(1), false, false, too_long};
  EXPECT_EQ(
      refusal(wire::PlainWrite{{write, write}, {fits}}),
      "kInvalidArgument: a request with index changes must have exactly one write, not 2; send a request for each");
  EXPECT_EQ(
      refusal(wire::PlainWrite{{}, {fits}}),
      "kInvalidArgument: a request with index changes must have exactly one write, not 0; send a request for each");
  EXPECT_EQ(refusal(wire::PlainWrite{{write}, {fits, large}}),
            "kInvalidArgument: an index change has a key of 1025 bytes, more than 1024");
  EXPECT_TRUE(noted().empty());
  ASSERT_TRUE(decode(1, wire::PlainWrite{{write}, {fits}}).ok());
  EXPECT_EQ(codes(), Codes{StatusCode::kOk});
  ASSERT_EQ(noted().size(), 1u);
  EXPECT_EQ(noted()[0].key, longest);
}

TEST_F(OperationDecoderTest, NamedFieldsMustBeFieldsOfOneTable) {
  const std::vector<uint16_t> id = {0}, unknown = {2}, twice = {0, 0};
  const Snapshot snapshot(Version(10));
  EXPECT_EQ(refusal(wire::Read{snapshot, {person(1), account(1)}, FieldNumbers(id)}),
            "kInvalidArgument: a read that names fields must be of one table; send a request for each");
  EXPECT_EQ(refusal(wire::Read{snapshot, {person(1)}, FieldNumbers(unknown)}),
            "kInvalidArgument: table people, fields: none has number 2, they count from 0 to 1");
  EXPECT_EQ(refusal(wire::Read{snapshot, {person(1)}, FieldNumbers(twice)}),
            "kInvalidArgument: table people, fields: 'id' is named twice");
  EXPECT_EQ(refusal(wire::PlainRead{{counter(1)}, FieldNumbers(unknown)}),
            "kInvalidArgument: table loam.counters, fields: none has number 2, they count from 0 to 0");
  ASSERT_TRUE(decode(1, wire::Read{snapshot, {{kUnknown, Key(1)}}, FieldNumbers(unknown)}).ok());
  EXPECT_EQ(codes(), Codes{StatusCode::kNoSuchTable}) << "each record gets the code, as without fields";
}

// ---- operations that are refused one by one ------------------------------------------------------------------------

TEST_F(OperationDecoderTest, EachOperationGetsItsOwnCode) {
  const wire::RecordId foreign = account(1), own = account(2);
  for (const wire::RecordId& record : {own, counter(1)}) {
    ASSERT_NE(wire::shard_of(record.table, record.key), wire::shard_of(foreign.table, foreign.key));
  }
  view_.owns_all = false;
  view_.owned.set();
  view_.owned.reset(wire::shard_of(foreign.table, foreign.key));
  const std::vector<wire::RecordId> records = {{kUnknown, Key(1)}, counter(1), foreign, own};
  const Codes expected = {StatusCode::kNoSuchTable, StatusCode::kWrongTableKind, StatusCode::kWrongShard,
                          StatusCode::kOk};
  ASSERT_TRUE(decode(1, wire::Read{Snapshot(Version(10)), records}).ok());
  EXPECT_EQ(codes(), expected);
  wire::Write write = insert(11, 1);
  write.operations.clear();
  for (const wire::RecordId& record : records) write.operations.push_back({WriteKind::kInsert, record, bytes_});
  ASSERT_TRUE(decode(2, write).ok());
  EXPECT_EQ(codes(), expected);
  EXPECT_EQ(noted(), (std::vector<Intent>{{Intent::Kind::kRecord, TransactionId(11), kAccounts, own.key}}))
      << "operations that are not executed have no intents";
  ASSERT_TRUE(decode(3, wire::PlainRead{{{kUnknown, Key(1)}, own, counter(1)}}).ok());
  EXPECT_EQ(codes(), (Codes{StatusCode::kNoSuchTable, StatusCode::kWrongTableKind, StatusCode::kOk}));
  ASSERT_EQ(batch_.operations().size(), 3u);
  for (const PointOperation& operation : batch_.operations().first(2)) EXPECT_EQ(operation.key, own.key);
  EXPECT_TRUE(peer.sent.empty()) << "the codes are part of the replies";
}

TEST_F(OperationDecoderTest, RevertInADroppedTableCountsAsDone) {
  ASSERT_TRUE(decode(1, wire::Revert{TransactionId(11), {{kUnknown, Key(1)}, counter(1), account(1)}}).ok());
  EXPECT_EQ(codes(), (Codes{StatusCode::kOk, StatusCode::kWrongTableKind, StatusCode::kOk}));
  EXPECT_EQ(batch_.operations().size(), 1u) << "there is nothing to revert in the dropped table";
}

TEST_F(OperationDecoderTest, DeferredTablesAreEmptyAndTakeNoWrites) {
  const wire::RecordId record{kDeferred, Key(1)}, plain{kDeferredPlain, Key(1)};
  const std::vector<uint16_t> numbers = {0};
  ASSERT_TRUE(decode(1, wire::Read{Snapshot(Version(10)), {record, plain}, {}}).ok());
  EXPECT_EQ(codes(), (Codes{StatusCode::kNotFound, StatusCode::kWrongTableKind}));
  ASSERT_TRUE(decode(2, wire::PlainRead{{plain}, FieldNumbers(numbers)}).ok());
  EXPECT_EQ(codes(), Codes{StatusCode::kNotFound});
  wire::Write write = insert(11, 1);
  write.operations[0].record = record;
  ASSERT_TRUE(decode(3, write).ok());
  EXPECT_EQ(codes(), Codes{StatusCode::kNoSpace});
  ASSERT_TRUE(decode(4, wire::PlainWrite{{{WriteKind::kInsert, {}, plain, {}, bytes_}}}).ok());
  EXPECT_EQ(codes(), Codes{StatusCode::kNoSpace});
  ASSERT_TRUE(decode(5, wire::Revert{TransactionId(11), {record}}).ok());
  EXPECT_EQ(codes(), Codes{StatusCode::kOk}) << "there is nothing to undo";
  EXPECT_TRUE(batch_.operations().empty());
  EXPECT_TRUE(noted().empty());
}

TEST_F(OperationDecoderTest, RowsThatDoNotFitTheSchemaAreRefusedAndTheFirstIsExplained) {
  const Buffer short_row(3);
  const std::vector<uint16_t> twice = {0, 0};
  wire::Write write = insert(11, 1);
  write.operations.push_back({WriteKind::kUpdate, account(2), short_row});
  write.operations.push_back({WriteKind::kUpdateFields, person(3), bytes_, FieldNumbers(twice)});
  write.operations.push_back({WriteKind::kRemove, account(4), short_row});
  ASSERT_TRUE(decode(1, write).ok());
  EXPECT_EQ(codes(),
            (Codes{StatusCode::kOk, StatusCode::kInvalidArgument, StatusCode::kInvalidArgument, StatusCode::kOk}))
      << "a remove needs no row";
  const std::string expected = "operation 1 on table accounts: row: 3 bytes, the schema's fixed part alone has 8";
  EXPECT_EQ(batch_.requests()[0].detail, expected);
  EXPECT_EQ(noted().size(), 2u);

  ASSERT_TRUE(decode(2, wire::PlainWrite{{{WriteKind::kUpdateFields, {}, counter(1), {}, bytes_, {}}}}).ok());
  EXPECT_EQ(codes(), Codes{StatusCode::kInvalidArgument});
  EXPECT_EQ(batch_.requests()[1].detail, "operation 0 on table loam.counters: fields: none is named");
}

TEST_F(OperationDecoderTest, IndexChangesAreRefusedForATableThatIsNoIndex) {
  const std::vector<wire::IndexIntent> changes = {{TransactionId(14), Key(1), true, false, "one"}};
  ASSERT_TRUE(decode(1, wire::PlainWrite{{{WriteKind::kInsert, {}, counter(9), {}, bytes_}}, changes}).ok());
  EXPECT_EQ(codes(), Codes{StatusCode::kInvalidArgument});
  EXPECT_EQ(batch_.requests()[0].detail,
            "operation 0 on table loam.counters: the table is no index, so its writes must not carry index changes");
  EXPECT_TRUE(batch_.operations().empty());
  EXPECT_TRUE(noted().empty());
}

TEST_F(OperationDecoderTest, WritesWithoutRoomForTheirIntentsAreNotExecuted) {
  peer.attach(std::make_shared<NodeSession>(SessionId(6), small_pool_));
  constexpr size_t kRoom = sizeof(IntentBlock::data) / IntentBlock::kIntentHeaderBytes;
  wire::Write write = insert(11, 0);
  for (uint64_t key = 1; key < kRoom + 2; ++key) {
    write.operations.push_back({WriteKind::kInsert, account(key), bytes_});
  }
  ASSERT_TRUE(decode(1, write).ok());
  Codes expected(kRoom, StatusCode::kOk);
  expected.resize(kRoom + 2, StatusCode::kOverloaded);
  EXPECT_EQ(codes(), expected);
  EXPECT_EQ(batch_.operations().size(), kRoom);
  EXPECT_EQ(noted().size(), kRoom);
  EXPECT_EQ(counters_.intents_refused.read(), 2u);

  const wire::IndexIntent change{TransactionId(11), Key(1), false, false, "k"};
  ASSERT_TRUE(decode(2, wire::PlainWrite{{{WriteKind::kInsert, {}, node(1), {}, bytes_}}, {change}}).ok());
  EXPECT_EQ(codes(), Codes{StatusCode::kOverloaded});
  EXPECT_EQ(counters_.intents_refused.read(), 3u);
  ASSERT_TRUE(decode(3, wire::Read{Snapshot(Version(10)), {account(1)}}).ok());
  EXPECT_EQ(codes(), Codes{StatusCode::kOk}) << "reads need no intents";
}

TEST_F(OperationDecoderTest, IndexChangesAreNotedAllOrNone) {
  peer.attach(std::make_shared<NodeSession>(SessionId(6), small_pool_));
  const std::string key(kMaxIntentKeyBytes, 'k');  // a block holds three such intents
  const std::vector<wire::IndexIntent> changes(4, {TransactionId(11), Key(1), false, false, key});
  ASSERT_TRUE(decode(1, wire::PlainWrite{{{WriteKind::kInsert, {}, node(1), {}, bytes_}}, changes}).ok());
  EXPECT_EQ(codes(), Codes{StatusCode::kOverloaded});
  EXPECT_TRUE(batch_.operations().empty());
  EXPECT_TRUE(noted().empty()) << "the write of the tree node carries all of its changes";
  EXPECT_EQ(counters_.intents_refused.read(), 1u);
}

}  // namespace
}  // namespace loam::storage
