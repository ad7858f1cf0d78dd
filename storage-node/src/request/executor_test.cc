#include "storage-node/src/request/executor.h"

#include "storage-node/testing/node_fixture.h"

namespace loam::storage {
namespace {

class ExecutorTest : public NodeFixture {
 protected:
  ExecutorTest() : peer(1) {}

  void attach() {
    enter_service();
    NodeFixture::attach(peer, 5);
  }
  static wire::RecordId account(uint64_t key) { return {kAccounts, Key(key)}; }
  static wire::RecordId counter(uint64_t key) { return {kCounters, Key(key)}; }

  RecordingPeer peer;
};

/// A network thread may see that the node is registered before it sees the cluster of the registration.
TEST_F(ExecutorTest, AttachWithAClusterIsRefusedWhileTheNodeKnowsNone) {
  wire::RegisterNodeReply unknown = registered();
  unknown.history = {};
  ASSERT_TRUE(registry->enter_service(*epoch_thread, unknown).ok());
  run(peer, std::pair(uint64_t{1}, wire::Attach{SessionId(5), 1, kIncarnation, {3, 4}}));
  EXPECT_EQ(peer.answer<wire::Error>(1).status.code(), StatusCode::kUnavailable);
}

TEST_F(ExecutorTest, NothingIsServedBeforeRegistrationOrAttachment) {
  run(peer, std::pair(uint64_t{1}, wire::Attach{SessionId(5), 1, kIncarnation}));
  EXPECT_TRUE(peer.answer<wire::Error>(1).status == StatusCode::kUnavailable);
  enter_service();
  run(peer, std::pair(uint64_t{9}, wire::Attach{SessionId(5), 1, kIncarnation, {3, 4}}));
  EXPECT_EQ(peer.answer<wire::Error>(9).status.code(), StatusCode::kWrongCluster);
  run(peer, std::pair(uint64_t{2}, wire::Attach{SessionId(5), 1, Incarnation(6)}));
  EXPECT_TRUE(peer.answer<wire::Error>(2).status == StatusCode::kUnavailable);
  EXPECT_FALSE(peer.attached());
  const size_t answers = peer.sent.size();
  run(peer, std::pair(uint64_t{3}, wire::PlainRead{{counter(1)}}));
  EXPECT_EQ(peer.sent.size(), answers);
  EXPECT_TRUE(peer.closed.ok()) << "the client reads why kAttach was refused";
  RecordingPeer silent(2);
  run(silent, std::pair(uint64_t{1}, wire::PlainRead{{counter(1)}}));
  EXPECT_TRUE(silent.closed == StatusCode::kMalformed) << "it sent no kAttach";
}

TEST_F(ExecutorTest, OneBatchWritesAndReadsInOrder) {
  attach();
  const Buffer hundred = row(100);
  const Buffer two_hundred = row(200);
  run(peer,
      std::pair(uint64_t{1}, wire::Write{TransactionId(11),
                                         Snapshot(Version(10)),
                                         {{wire::WriteKind::kInsert, account(1), hundred},
                                          {wire::WriteKind::kInsert, account(2), two_hundred}}}),
      std::pair(uint64_t{2}, wire::Read{Snapshot(Version(11)), {account(2), account(1), account(3)}}),
      std::pair(uint64_t{3}, wire::Read{Snapshot(Version(10)), {account(1)}}));
  EXPECT_EQ(peer.answer<wire::WriteReply>(1).results[1].code, StatusCode::kOk);
  const auto read = peer.answer<wire::ReadReply>(2);
  ASSERT_EQ(read.results.size(), 3u);
  EXPECT_EQ(value(read.results[0].row), 200);
  EXPECT_EQ(read.results[1].version, Version(11));
  EXPECT_EQ(read.results[2].code, StatusCode::kNotFound);
  EXPECT_EQ(peer.answer<wire::ReadReply>(3).results[0].code, StatusCode::kNotFound) << "not visible in that snapshot";
  EXPECT_EQ(executor->counters().operations.read(), 6u);
  EXPECT_EQ(executor->counters().appends.read(), 2u);
}

TEST_F(ExecutorTest, ConflictRevertAndRepetition) {
  attach();
  const Buffer first = row(1);
  const Buffer second = row(2);
  const wire::Write insert{TransactionId(11), Snapshot(Version(10)), {{wire::WriteKind::kInsert, account(1), first}}};
  run(peer, std::pair(uint64_t{1}, insert), std::pair(uint64_t{2}, insert));
  EXPECT_EQ(peer.answer<wire::WriteReply>(2).results[0].code, StatusCode::kOk) << "a repeated write is the same write";
  const wire::Write late{TransactionId(12), Snapshot(Version(10)), {{wire::WriteKind::kUpdate, account(1), second}}};
  run(peer, std::pair(uint64_t{3}, late));
  EXPECT_EQ(peer.answer<wire::WriteReply>(3).results[0].code, StatusCode::kConflict);
  run(peer, std::pair(uint64_t{4}, wire::Revert{TransactionId(11), {account(1), account(9), {TableId(77), Key(1)}}}));
  for (const auto& result : peer.answer<wire::RevertReply>(4).results) EXPECT_EQ(result.code, StatusCode::kOk);
  run(peer, std::pair(uint64_t{5}, wire::Read{Snapshot(Version(20)), {account(1)}}));
  EXPECT_EQ(peer.answer<wire::ReadReply>(5).results[0].code, StatusCode::kNotFound);
}

TEST_F(ExecutorTest, PlainTablesMatchVersionsExactly) {
  attach();
  const Buffer ten = row(10);
  run(peer, std::pair(uint64_t{1}, wire::PlainWrite{{{wire::WriteKind::kInsert, {}, counter(1), {}, ten}}}));
  const Version version = peer.answer<wire::PlainWriteReply>(1).results[0].version;
  EXPECT_EQ(version.value >> VersionSource::kCountBits, kIncarnation.value);
  const Buffer twenty = row(20);
  run(peer, std::pair(uint64_t{2}, wire::PlainWrite{{{wire::WriteKind::kUpdate, {}, counter(1), version, twenty}}}),
      std::pair(uint64_t{3}, wire::PlainWrite{{{wire::WriteKind::kUpdate, {}, counter(1), version, ten}}}),
      std::pair(uint64_t{4}, wire::PlainWrite{{{wire::WriteKind::kInsert, {}, counter(1), {}, ten}}}),
      std::pair(uint64_t{5}, wire::PlainRead{{counter(1)}}));
  const Version newer = peer.answer<wire::PlainWriteReply>(2).results[0].version;
  EXPECT_EQ(peer.answer<wire::PlainWriteReply>(3).results[0].code, StatusCode::kConflict);
  EXPECT_EQ(peer.answer<wire::PlainWriteReply>(3).results[0].version, newer);
  EXPECT_EQ(peer.answer<wire::PlainWriteReply>(4).results[0].code, StatusCode::kConflict);
  EXPECT_EQ(value(peer.answer<wire::PlainReadReply>(5).results[0].row), 20);
}

TEST_F(ExecutorTest, UndoOfIndexEntriesHasRoomWhenMemoryIsFull) {
  using wire::WriteKind;
  attach();
  install_index();
  constexpr TableId kOrdinary{77};
  const wire::TableInfo ordinary{kOrdinary, "ordinary", TableKind::kNonTransactional, schema("value")};
  ASSERT_TRUE(registry->install(*epoch_thread, ordinary, catalog().shards).ok());
  const Buffer bytes = row(1);
  uint64_t sequence = 0;
  const auto write = [&](WriteKind kind, Reserve reserve, wire::RecordId record, Version expected) {
    peer.sent.clear();
    run(peer, std::pair(++sequence, wire::PlainWrite{{{kind, reserve, record, expected, bytes}}}));
    return peer.answer<wire::PlainWriteReply>(sequence).results[0];
  };
  std::map<TableId, Version> versions;
  for (const TableId table : {kOrdinary, kIndex, kCounters}) {
    versions[table] = write(WriteKind::kInsert, {}, {table, Key(0)}, {}).version;
  }
  // Every table's head page must be full, too.
  for (const TableId table : {kOrdinary, kIndex, kCounters}) {
    uint64_t key = 0;
    while (write(WriteKind::kInsert, {}, {table, Key(++key)}, {}).code == StatusCode::kOk) {
    }
  }
  const auto update = [&](Reserve reserve, TableId table) {
    return write(WriteKind::kUpdate, reserve, {table, Key(0)}, versions[table]).code;
  };
  for (const TableId table : {kOrdinary, kIndex, kCounters}) {
    EXPECT_EQ(update(Reserve::kWrite, table), StatusCode::kNoSpace);
  }
  for (const Reserve reserve : {Reserve::kRemove, Reserve::kUndo}) {
    EXPECT_EQ(update(reserve, kOrdinary), StatusCode::kNoSpace) << "the room would be gone when an undo needs it";
  }
  // A write that ends index entries may use the reserve of removes. An undo may use its own reserve in addition.
  uint64_t fits = 0;
  for (;; ++fits) {
    const wire::WriteResult result = write(WriteKind::kUpdate, Reserve::kRemove, {kIndex, Key(0)}, versions[kIndex]);
    if (result.code != StatusCode::kOk) break;
    versions[kIndex] = result.version;
  }
  EXPECT_GT(fits, 0u);
  EXPECT_EQ(update(Reserve::kRemove, kIndex), StatusCode::kOverloaded) << "garbage collection makes room for it";
  EXPECT_EQ(update(Reserve::kUndo, kIndex), StatusCode::kOk);
  EXPECT_EQ(update(Reserve::kUndo, kCounters), StatusCode::kOk);
}

TEST_F(ExecutorTest, UnknownKindsOfWritesAreMalformed) {
  attach();
  constexpr auto kUnknown = static_cast<wire::WriteKind>(6);
  run(peer,
      std::pair(uint64_t{1}, wire::Write{TransactionId(11), Snapshot(Version(10)), {{kUnknown, account(1), {}}}}));
  EXPECT_EQ(peer.closed.code(), StatusCode::kMalformed);
  RecordingPeer other(2);
  NodeFixture::attach(other, 6);
  run(other, std::pair(uint64_t{1}, wire::PlainWrite{{{kUnknown, {}, counter(1), Version(1), {}}}}));
  EXPECT_EQ(other.closed.code(), StatusCode::kMalformed);
}

TEST_F(ExecutorTest, EachWrongOperationGetsItsOwnCodeAndHarmsNoOther) {
  attach();
  const Buffer good = row(1);
  const Buffer bad(3, std::byte{1});
  run(peer,
      std::pair(uint64_t{1}, wire::Write{TransactionId(11),
                                         Snapshot(Version(10)),
                                         {{wire::WriteKind::kInsert, account(1), bad},
                                          {wire::WriteKind::kInsert, {TableId(99), Key(1)}, good},
                                          {wire::WriteKind::kInsert, counter(1), good},
                                          {wire::WriteKind::kUpdate, account(8), good},
                                          {wire::WriteKind::kInsert, account(2), good}}}),
      std::pair(uint64_t{2}, wire::PlainRead{{account(2)}}));
  const auto reply = peer.answer<wire::WriteReply>(1);
  ASSERT_EQ(reply.results.size(), 5u);
  EXPECT_EQ(reply.results[0].code, StatusCode::kInvalidArgument);
  EXPECT_EQ(reply.results[1].code, StatusCode::kNoSuchTable);
  EXPECT_EQ(reply.results[2].code, StatusCode::kWrongTableKind);
  EXPECT_EQ(reply.results[3].code, StatusCode::kNotFound);
  EXPECT_EQ(reply.results[4].code, StatusCode::kOk);
  EXPECT_NE(reply.detail.find("operation 0 on table accounts"), std::string_view::npos) << reply.detail;
  EXPECT_EQ(peer.answer<wire::PlainReadReply>(2).results[0].code, StatusCode::kWrongTableKind);
}

TEST_F(ExecutorTest, WrongShardIsRefused) {
  attach();
  wire::ShardMap shards = catalog().shards;
  const wire::RecordId record = account(1);
  shards.owners[wire::shard_of(record.table, record.key)] = NodeId(2);
  ASSERT_TRUE(registry->install(*epoch_thread, catalog().tables[0], shards).ok());
  run(peer, std::pair(uint64_t{1}, wire::Read{Snapshot(Version(10)), {record, account(2)}}));
  const auto reply = peer.answer<wire::ReadReply>(1);
  EXPECT_EQ(reply.results[0].code, StatusCode::kWrongShard);
  EXPECT_EQ(reply.results[1].code, StatusCode::kNotFound);
}

TEST_F(ExecutorTest, CompleteTransactionCannotWrite) {
  attach();
  registry->publish(*epoch_thread, publication(2, 50));
  const Buffer one = row(1);
  const auto insert = [&](uint64_t id) {
    return wire::Write{TransactionId(id), Snapshot(Version(50)), {{wire::WriteKind::kInsert, account(id), one}}};
  };
  run(peer, std::pair(uint64_t{1}, insert(50)), std::pair(uint64_t{2}, insert(51)));
  EXPECT_TRUE(peer.answer<wire::Error>(1).status == StatusCode::kInvalidArgument);
  EXPECT_EQ(peer.answer<wire::WriteReply>(2).results[0].code, StatusCode::kOk);
}

TEST_F(ExecutorTest, OldSnapshotsAreRefused) {
  attach();
  registry->publish(*epoch_thread, publication(2, 50));
  run(peer, std::pair(uint64_t{1}, wire::Read{Snapshot(Version(49)), {account(1)}}),
      std::pair(uint64_t{2}, wire::Read{Snapshot(Version(50)), {account(1)}}));
  EXPECT_TRUE(peer.answer<wire::Error>(1).status == StatusCode::kSnapshotTooOld);
  EXPECT_EQ(peer.answer<wire::ReadReply>(2).results[0].code, StatusCode::kNotFound);
  registry->publish(*epoch_thread, publication(1, 90));  // an older one changes nothing
  run(peer, std::pair(uint64_t{3}, wire::Read{Snapshot(Version(50)), {account(1)}}));
  EXPECT_EQ(peer.answer<wire::ReadReply>(3).results.size(), 1u);
}

TEST_F(ExecutorTest, DroppedTableIsGoneFromTheNextBatchOn) {
  attach();
  registry->remove(*epoch_thread, kAccounts);
  run(peer, std::pair(uint64_t{1}, wire::Read{Snapshot(Version(10)), {account(1)}}),
      std::pair(uint64_t{2}, wire::Revert{TransactionId(11), {account(1)}}));
  EXPECT_EQ(peer.answer<wire::ReadReply>(1).results[0].code, StatusCode::kNoSuchTable);
  EXPECT_EQ(peer.answer<wire::RevertReply>(2).results[0].code, StatusCode::kOk) << "R30";
}

TEST_F(ExecutorTest, MalformedMessageClosesThePeerAfterEarlierRequests) {
  attach();
  Buffer read;
  wire::encode_message(wire::Read{Snapshot(Version(10)), {account(1)}}, 1, read);
  const Buffer cut(read.begin(), read.end() - 1);
  run_raw(peer, {read, cut, read});
  EXPECT_EQ(peer.answer<wire::ReadReply>(1).results.size(), 1u);
  EXPECT_EQ(peer.sent.size(), 1u);
  EXPECT_TRUE(peer.closed == StatusCode::kMalformed);
  RecordingPeer other(2);
  run(other, std::pair(uint64_t{1}, wire::Attach{SessionId(6), 1, kIncarnation}));
  EXPECT_TRUE(other.attached()) << "no other client is disturbed";
}

TEST_F(ExecutorTest, TooManyOperationsAreRefusedAsAWhole) {
  attach();
  wire::Read read{Snapshot(Version(10)), {}};
  read.records.assign(wire::kMaxOperations + 1, account(1));
  run(peer, std::pair(uint64_t{1}, read));
  EXPECT_TRUE(peer.answer<wire::Error>(1).status == StatusCode::kInvalidArgument);
}

TEST_F(ExecutorTest, PeerThatDoesNotReadIsClosed) {
  attach();
  peer.refuse_sends = true;
  run(peer, std::pair(uint64_t{1}, wire::Read{Snapshot(Version(10)), {account(1)}}));
  EXPECT_TRUE(peer.closed == StatusCode::kOverloaded);
}

TEST_F(ExecutorTest, ScanMessagesReachTheScansAndErrorsAreAnswered) {
  attach();
  wire::Scan scan;
  scan.table = kAccounts;
  scan.credits = 4;
  run(peer, std::pair(uint64_t{1}, scan), std::pair(uint64_t{1}, wire::ScanCredit{3}),
      std::pair(uint64_t{1}, wire::ScanCancel{}));
  EXPECT_EQ(scans.started.at(1).credits, 4u);
  EXPECT_EQ(scans.credited.at(1), 3u);
  EXPECT_EQ(scans.cancelled, (std::vector<uint64_t>{1}));
  scans.answer = Status(StatusCode::kOverloaded, "too many queries");
  run(peer, std::pair(uint64_t{2}, scan));
  EXPECT_TRUE(peer.answer<wire::ScanDone>(2).status == StatusCode::kOverloaded);
  EXPECT_EQ(peer.answer<wire::ScanDone>(2).retry_after_ns, kScanRetryNs);
  scans.answer = Status(StatusCode::kNoSuchTable, "no such table");
  run(peer, std::pair(uint64_t{3}, scan));
  EXPECT_EQ(peer.answer<wire::ScanDone>(3).retry_after_ns, 0u) << "waiting is of no use";
}

}  // namespace
}  // namespace loam::storage
