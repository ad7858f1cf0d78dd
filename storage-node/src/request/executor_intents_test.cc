// The intents that the executor records for open transactions and returns to recovery (R5, intents before answers; R8,
// recovery).
#include <algorithm>
#include <string>
#include <vector>

#include "storage-node/src/request/executor.h"
#include "storage-node/testing/node_fixture.h"

namespace loam::storage {
namespace {

using wire::Intent;
using wire::WriteKind;

class ExecutorIntentsTest : public NodeFixture {
 protected:
  ExecutorIntentsTest() {
    enter_service();
    install_index();
    attach(peer, 5);
  }

  static wire::RecordId account(uint64_t key) { return {kAccounts, Key(key)}; }
  static wire::RecordId node(uint64_t key) { return {kIndex, Key(key)}; }
  static Intent written(uint64_t transaction, uint64_t key) {
    return {Intent::Kind::kRecord, TransactionId(transaction), kAccounts, Key(key)};
  }
  wire::Write insert(uint64_t transaction, uint64_t key) const {
    return {TransactionId(transaction), newest_, {{WriteKind::kInsert, account(key), bytes_}}};
  }
  StatusCode write(const wire::Write& write) {
    run(peer, std::pair(++sequence_, write));
    return peer.answer<wire::WriteReply>(sequence_).results.at(0).code;
  }
  /// Swaps tree node 1 of the index in a request that carries these changes.
  wire::PlainWrite swap(Version expected, std::vector<wire::IndexIntent> changes) const {
    const WriteKind kind = expected == Version() ? WriteKind::kInsert : WriteKind::kUpdate;
    return {{{kind, {}, node(1), expected, bytes_}}, std::move(changes)};
  }
  wire::WriteResult write(const wire::PlainWrite& write) {
    run(peer, std::pair(++sequence_, write));
    return peer.answer<wire::PlainWriteReply>(sequence_).results.at(0);
  }
  Status refused(const wire::PlainWrite& write) {
    run(peer, std::pair(++sequence_, write));
    return peer.answer<wire::Error>(sequence_).status;
  }
  void publish(uint64_t number, const Snapshot& later) {
    Publication known = publication(number, later.base().value);
    known.later = newest_ = later;
    registry->publish(*epoch_thread, known);
  }
  void complete_but(uint64_t number, uint64_t high, const std::vector<Version>& open) {
    publish(number, Snapshot::make(Version(open.front().value - 1), Version(high), open).value());
  }

  const Buffer bytes_ = row(1);
  RecordingPeer peer{1};
  uint64_t sequence_ = 0;
  Snapshot newest_{Version(10)};  // the snapshot of a transaction that begins now
};

TEST_F(ExecutorIntentsTest, RecordsIntentsOfEveryKindOfWrite) {
  EXPECT_EQ(write(insert(11, 1)), StatusCode::kOk);
  publish(2, Snapshot(Version(11)));
  const Buffer balance = row(7);
  const uint16_t fields[] = {0};
  const Snapshot snapshot(Version(11));
  EXPECT_EQ(write(wire::Write{TransactionId(12), snapshot, {{WriteKind::kUpdate, account(1), bytes_}}}),
            StatusCode::kOk);
  publish(3, Snapshot(Version(12)));
  const wire::Write part{TransactionId(13),
                         Snapshot(Version(12)),
                         {{WriteKind::kUpdateFields, account(1), balance, FieldNumbers(fields)}}};
  EXPECT_EQ(write(part), StatusCode::kOk);
  EXPECT_EQ(intents(), std::vector<Intent>{written(13, 1)});
  publish(4, Snapshot(Version(13)));
  EXPECT_EQ(write(wire::Write{TransactionId(14), Snapshot(Version(13)), {{WriteKind::kRemove, account(1), {}}}}),
            StatusCode::kOk);
  // The changes of several transactions in one swap of a node, as the leader of a combined write sends them.
  EXPECT_EQ(write(swap({}, {{TransactionId(14), Key(1), true, false, "one"},
                            {TransactionId(15), Key(2), false, true, "two"}}))
                .code,
            StatusCode::kOk);
  const std::vector<Intent> expected = {written(14, 1),
                                        {Intent::Kind::kIndexRemove, TransactionId(14), kIndex, Key(1), false, "one"},
                                        {Intent::Kind::kIndexInsert, TransactionId(15), kIndex, Key(2), true, "two"}};
  EXPECT_EQ(intents(), expected);
  EXPECT_EQ(intents(5), expected);
  EXPECT_TRUE(intents(6).empty());
}

TEST_F(ExecutorIntentsTest, FailedWritesLeaveNoIntent) {
  ASSERT_EQ(write(insert(11, 1)), StatusCode::kOk);
  const Buffer bad(3, std::byte{1});
  const wire::Write mixed{TransactionId(12),
                          Snapshot(Version(10)),
                          {{WriteKind::kInsert, account(1), bytes_},             // kConflict
                           {WriteKind::kInsert, account(2), bytes_},             // kOk
                           {WriteKind::kInsert, account(3), bad},                // kInvalidArgument
                           {WriteKind::kUpdate, account(4), bytes_},             // kNotFound
                           {WriteKind::kInsert, {TableId(99), Key(5)}, bytes_},  // kNoSuchTable
                           {WriteKind::kInsert, {kCounters, Key(6)}, bytes_},    // kWrongTableKind
                           {WriteKind::kInsert, account(7), bytes_}}};           // kOk
  // Requests of one batch are executed together.
  run(peer, std::pair(uint64_t{100}, mixed), std::pair(uint64_t{101}, insert(13, 1)),
      std::pair(uint64_t{102}, insert(13, 8)));
  EXPECT_EQ(peer.answer<wire::WriteReply>(100).results.at(0).code, StatusCode::kConflict);
  EXPECT_EQ(peer.answer<wire::WriteReply>(101).results.at(0).code, StatusCode::kConflict);
  const std::vector<Intent> expected = {written(11, 1), written(12, 2), written(12, 7), written(13, 8)};
  EXPECT_EQ(intents(), expected);

  const Version version = write(swap({}, {})).version;
  EXPECT_EQ(write(swap({}, {{TransactionId(13), Key(8), false, false, "k"}})).code, StatusCode::kConflict);
  EXPECT_EQ(intents(), expected) << "the swap has failed";
  EXPECT_EQ(write(swap(version, {{TransactionId(13), Key(8), false, false, "k"}})).code, StatusCode::kOk);
  EXPECT_EQ(intents().size(), 5u);
}

TEST_F(ExecutorIntentsTest, IndexChangesNeedExactlyOneWriteOfAnIndex) {
  const wire::IndexIntent change{TransactionId(11), Key(1), false, false, "k"};
  wire::PlainWrite two = swap({}, {change});
  two.operations.push_back({WriteKind::kInsert, {}, node(2), {}, bytes_});
  EXPECT_TRUE(refused(two) == StatusCode::kInvalidArgument);
  const std::string long_key(kMaxIntentKeyBytes + 1, 'k');
  EXPECT_TRUE(refused(swap({}, {{TransactionId(11), Key(1), false, false, long_key}})) == StatusCode::kInvalidArgument);
  EXPECT_TRUE(refused(swap({}, {change, {TransactionId(10), Key(1), true, false, "k"}})) ==
              StatusCode::kInvalidArgument)
      << "transaction 10 is complete: recovery would not undo it";
  EXPECT_TRUE(refused(swap({}, std::vector(wire::kMaxOperations + 1, change))) == StatusCode::kInvalidArgument);
  wire::PlainWrite counter = swap({}, {change});
  counter.operations[0].record = {kCounters, Key(1)};
  EXPECT_EQ(write(counter).code, StatusCode::kInvalidArgument);
  EXPECT_NE(peer.answer<wire::PlainWriteReply>(sequence_).detail.find("no index"), std::string_view::npos);
  run(peer, std::pair(uint64_t{100}, wire::PlainRead{{node(1), node(2), {kCounters, Key(1)}}}));
  for (const auto& read : peer.answer<wire::PlainReadReply>(100).results) EXPECT_EQ(read.code, StatusCode::kNotFound);
  EXPECT_TRUE(intents().empty());
}

TEST_F(ExecutorIntentsTest, RepetitionFromTheReplyWindowAppendsNoIntent) {
  run(peer, std::pair(uint64_t{7}, insert(11, 1)), std::pair(uint64_t{7}, insert(11, 1)));
  run(peer, std::pair(uint64_t{7}, insert(11, 1)));
  EXPECT_EQ(executor->counters().repeated.read(), 2u);
  EXPECT_EQ(intents(), std::vector<Intent>{written(11, 1)});
}

TEST_F(ExecutorIntentsTest, IntentsOutliveConnectionEntryAndFence) {
  ASSERT_EQ(write(insert(11, 1)), StatusCode::kOk);
  sessions.detach(peer.session(), peer.id());
  EXPECT_EQ(intents(5).size(), 1u);
  RecordingPeer next(2);
  attach(next, 5);
  run(next, std::pair(uint64_t{50}, insert(11, 2)));
  const std::vector<Intent> expected = {written(11, 1), written(11, 2)};
  EXPECT_EQ(intents(5), expected);
  const wire::FenceSet fences{SessionId(5), {}};
  registry->fence(*epoch_thread, fences);
  sessions.drop_fenced(fences);
  EXPECT_EQ(sessions.size(), 0u);
  EXPECT_EQ(intents(5), expected);
  publish(2, Snapshot(Version(11)));
  EXPECT_TRUE(intents(5).empty());
}

TEST_F(ExecutorIntentsTest, CoveredIntentsAreDroppedBehindAnOpenTransaction) {
  for (uint64_t id = 11; id <= 14; ++id) ASSERT_EQ(write(insert(id, id)), StatusCode::kOk);
  complete_but(2, 13, {Version(12)});
  const std::vector<Intent> expected = {written(12, 12), written(14, 14)};
  EXPECT_EQ(intents(), expected);
  Publication older = publication(9, 14);
  older.cm_epoch = 0;
  registry->publish(*epoch_thread, older);
  EXPECT_EQ(intents(), expected) << "a publication of a lower epoch";
  // The blocks are released, too: here by the sweep when the list has doubled.
  for (uint64_t id = 15; id < 4'000; ++id) {
    run(peer, std::pair(++sequence_, insert(id, id)));
    complete_but(id, id, {Version(12)});
  }
  EXPECT_EQ(intents(), std::vector<Intent>{written(12, 12)});
  EXPECT_LT(sessions.intents(), 2 * kMinIntentsToSweep);
}

TEST_F(ExecutorIntentsTest, RevertKeepsTheIntents) {
  ASSERT_EQ(write(insert(11, 1)), StatusCode::kOk);
  run(peer, std::pair(++sequence_, wire::Revert{TransactionId(11), {account(1)}}));
  EXPECT_EQ(intents(), std::vector<Intent>{written(11, 1)}) << "to revert it again does no harm";
}

TEST_F(ExecutorIntentsTest, WithoutRoomAWriteIsNotExecuted) {
  IntentPool small(IntentBlock::kBytes);
  SessionTable others{small, [](PeerId, const Status&) {}};
  executor = std::make_unique<Executor>(*registry, others, scans, *context);
  RecordingPeer client(9);
  attach(client, 9);
  wire::Write many{TransactionId(11), Snapshot(Version(10)), {}};
  for (uint64_t key = 0; key < 200; ++key) many.operations.push_back({WriteKind::kInsert, account(key), bytes_});
  const auto ok = [&](uint64_t sequence) {
    const auto reply = client.answer<wire::WriteReply>(sequence);
    return std::ranges::count(reply.results, StatusCode::kOk, &wire::WriteResult::code);
  };
  run(client, std::pair(uint64_t{1}, many));
  EXPECT_EQ(ok(1), 168);
  EXPECT_EQ(client.answer<wire::WriteReply>(1).results.back().code, StatusCode::kOverloaded);
  EXPECT_EQ(executor->counters().intents_refused.read(), 32u);
  run(client, std::pair(uint64_t{2}, wire::Read{Snapshot(Version(11)), {account(0), account(199)}}));
  EXPECT_EQ(client.answer<wire::ReadReply>(2).results[0].code, StatusCode::kOk);
  EXPECT_EQ(client.answer<wire::ReadReply>(2).results[1].code, StatusCode::kNotFound);
  run(client, std::pair(uint64_t{3}, swap({}, {{TransactionId(11), Key(1), false, false, "k"}})));
  EXPECT_EQ(client.answer<wire::PlainWriteReply>(3).results[0].code, StatusCode::kOverloaded);
  run(client, std::pair(uint64_t{4}, wire::PlainRead{{node(1)}}));
  EXPECT_EQ(client.answer<wire::PlainReadReply>(4).results[0].code, StatusCode::kNotFound);
  EXPECT_EQ(intents().size(), 168u);

  publish(2, Snapshot(Version(11)));
  many.transaction = TransactionId(12);
  for (auto& operation : many.operations) operation.record.key.value += 1'000;
  many.snapshot = Snapshot(Version(11));
  run(client, std::pair(uint64_t{5}, many));  // the refusal makes end_batch() sweep, so the next try finds room
  run(client, std::pair(uint64_t{6}, many));
  EXPECT_EQ(ok(6), 168);
  executor.reset();
}

TEST_F(ExecutorIntentsTest, PagesVisitSessionsInOrder) {
  constexpr uint64_t kRecords = 4'000;
  std::vector<Intent> expected;
  for (const uint64_t session : {9u, 7u, 8u}) {
    RecordingPeer client(session);
    attach(client, session);
    for (uint64_t from = 0; from < kRecords; from += 1'000) {
      wire::Write many{TransactionId(session * 10), Snapshot(Version(10)), {}};
      for (uint64_t i = from; i < from + 1'000; ++i) {
        many.operations.push_back({WriteKind::kInsert, account(session * 100'000 + i), bytes_});
      }
      run(client, std::pair(1 + from, many));
    }
  }
  for (const uint64_t session : {7u, 8u, 9u}) {
    for (uint64_t i = 0; i < kRecords; ++i) expected.push_back(written(session * 10, session * 100'000 + i));
  }
  EXPECT_EQ(intents(), expected);
  EXPECT_EQ(intents(8), std::vector<Intent>(expected.begin() + kRecords, expected.begin() + 2 * kRecords));
  run(peer, std::pair(++sequence_, wire::Intents{}));
  const auto first = peer.answer<wire::IntentsReply>(sequence_);
  EXPECT_TRUE(first.more);
  EXPECT_LE(peer.sent.back().size(), kMaxIntentPageBytes);
  EXPECT_GT(first.intents.size(), 6'000u);
  EXPECT_EQ(first.epoch, 1u);
  EXPECT_EQ(first.publication, 1u);
}

TEST_F(ExecutorIntentsTest, PagesEndAfterTheHighestSession) {
  RecordingPeer client(9);
  attach(client, UINT64_MAX);
  run(client, std::pair(uint64_t{1}, insert(11, 1)));
  EXPECT_EQ(intents(), std::vector<Intent>{written(11, 1)});
  const Publication known = publication(2, 11);
  while (sessions.sweep(known)) {
  }
  while (sessions.sweep(known)) {
  }
  EXPECT_EQ(sessions.intents(), 0u);
}

TEST_F(ExecutorIntentsTest, SessionMayReadItsOwnIntents) {
  // The write precedes the request for intents in the same batch.
  run(peer, std::pair(uint64_t{7}, insert(11, 1)), std::pair(uint64_t{8}, wire::Intents{SessionId(5)}),
      std::pair(uint64_t{9}, insert(11, 2)));
  EXPECT_EQ(peer.answer<wire::IntentsReply>(8).intents, std::vector<Intent>{written(11, 1)});
  EXPECT_EQ(peer.answer<wire::WriteReply>(9).results[0].code, StatusCode::kOk);
  EXPECT_EQ(intents().size(), 2u);
}

// A power cut has lost the records of a commit and of a commit that depends on it (R8, R11). No publication covers
// either of them.
TEST_F(ExecutorIntentsTest, VersionsOfOneKeyAreRevertedFromTheNewestOn) {
  ASSERT_EQ(write(insert(11, 1)), StatusCode::kOk);
  ASSERT_EQ(write(wire::Write{TransactionId(12), Snapshot(Version(11)), {{WriteKind::kUpdate, account(1), bytes_}}}),
            StatusCode::kOk);
  const auto revert = [&](uint64_t id) {
    run(peer, std::pair(++sequence_, wire::Revert{TransactionId(id), {account(1)}}));
    return peer.answer<wire::RevertReply>(sequence_).results.at(0).code;
  };
  EXPECT_EQ(revert(11), StatusCode::kConflict) << "12 covers it";
  EXPECT_EQ(revert(12), StatusCode::kOk);
  EXPECT_EQ(revert(12), StatusCode::kOk) << "it is not there";
  EXPECT_EQ(revert(11), StatusCode::kOk);
  run(peer, std::pair(++sequence_, wire::Read{Snapshot(Version(12)), {account(1)}}));
  EXPECT_EQ(peer.answer<wire::ReadReply>(sequence_).results[0].code, StatusCode::kNotFound);
}

}  // namespace
}  // namespace loam::storage
