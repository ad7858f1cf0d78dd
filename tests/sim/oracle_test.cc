// Correct histories, and histories that only a loss excuses.
#include "tests/sim/oracle.h"

#include <chrono>
#include <cstdio>
#include <vector>

#include <gtest/gtest.h>

#include "common/wire/system_tables.h"
#include "tests/sim/history_builder.h"

namespace loam::sim {
namespace {

// ---- correct histories --------------------------------------------------------------------------------------------

void expect_right(HistoryBuilder& story) {
  story.oracle.final_check();
  EXPECT_FALSE(story.oracle.failed()) << story.oracle.message();
}

TEST(OracleTest, AcceptsSnapshotsInOneOrder) {
  HistoryBuilder story;
  story.put(10, {1, 2, 3});
  const auto old = story.begin(0);
  story.put(11, {1}, WriteKind::kUpdate);
  story.put(12, {2}, WriteKind::kRemove);
  story.read(old, 1, 10);
  story.read(old, 2, 10);
  story.put(13, {2});
  story.scan(story.begin(0), {{1, 11}, {2, 13}, {3, 10}});
  story.scan(old, {{1, 10}, {2, 10}, {3, 10}});
  expect_right(story);
}

TEST(OracleTest, AllowsReadToSeeOrMissConcurrentCommit) {
  HistoryBuilder story;
  story.put(10, {1});
  const auto writer = story.begin(11);
  story.write(writer, 1);
  story.model.commit_called(writer);
  story.read_in_new_transaction(1, 10);
  story.read_in_new_transaction(1, 11);
  story.read_in_new_transaction(1, 11);
  story.model.commit_returned(writer, StatusCode::kOk);
  expect_right(story);
  EXPECT_EQ(story.oracle.statistics().unknown, 0u);
}

TEST(OracleTest, UnknownOutcomeMayBeEither) {
  for (const bool happened : {false, true}) {
    HistoryBuilder story;
    story.put(10, {1, 2});
    story.crash(11, {1, 2});
    story.read_in_new_transaction(1, 10);
    story.read_in_new_transaction(1, happened ? 11 : 10);
    story.read_in_new_transaction(2, happened ? 11 : 10);
    expect_right(story);
    EXPECT_EQ(story.oracle.statistics().unknown, 1u);
    EXPECT_EQ(story.oracle.statistics().resolved, happened ? 1u : 0u);
  }
}

TEST(OracleTest, MissingRecordDecidesUnknownRemoval) {
  HistoryBuilder story;
  story.put(10, {1, 2});
  story.crash(11, {1, 2}, WriteKind::kRemove);
  story.read_in_new_transaction(1, 0);
  EXPECT_EQ(story.oracle.statistics().resolved, 1u);
  EXPECT_FALSE(story.oracle.failed()) << story.oracle.message();
  story.read_in_new_transaction(2, 10);  // the other half of the transaction is still there
  EXPECT_EQ(story.oracle.invariant(), "half-commit") << story.oracle.message();
}

TEST(OracleTest, OneOfTwoUnknownRemovalsMayHaveHappened) {
  HistoryBuilder story;
  story.put(10, {1});
  story.crash(11, {1}, WriteKind::kRemove);
  story.crash(12, {1}, WriteKind::kRemove);
  const auto writer = story.begin(13);
  story.read(writer, 1, 0);
  story.insert(writer, 1);
  story.end(writer);
  story.read_in_new_transaction(1, 13);
  expect_right(story);
}

TEST(OracleTest, AllowsInsertAfterAbortedInsert) {
  HistoryBuilder story;
  const auto writer = story.begin(10);
  story.insert(writer, 1);
  story.end(writer, StatusCode::kConflict);
  story.put(11, {1});
  story.read_in_new_transaction(1, 11);
  expect_right(story);
}

// ---- losses --------------------------------------------------------------------------------------------------------

TEST(OracleTest, LostRecordIsAbsentAndMayBeInsertedAgain) {
  HistoryBuilder story;
  story.put(10, {1, 2});
  story.lose_odd_keys();
  story.read_in_new_transaction(1, 0);
  story.read_in_new_transaction(2, 10);
  story.put(11, {1});
  story.read_in_new_transaction(1, 11);
  expect_right(story);
}

TEST(OracleTest, LossExcusesNoOtherRecord) {
  HistoryBuilder story;
  story.put(10, {1, 2});
  story.lose_odd_keys();
  story.read_in_new_transaction(2, 0);
  EXPECT_EQ(story.oracle.invariant(), "begin-after-ack") << story.oracle.message();
}

TEST(OracleTest, LossDoesNotExcuseLaterWrites) {
  HistoryBuilder story;
  story.put(10, {1});
  story.lose_odd_keys();
  story.put(11, {1});
  story.read_in_new_transaction(1, 0);
  EXPECT_EQ(story.oracle.invariant(), "begin-after-ack") << story.oracle.message();
}

/// A reader whose begin takes long does not find record `key`, which 12 writes and 13 removes meanwhile; but it sees
/// record 4 as it was before 12. This is correct only if something other than the removal by 13 took the record away.
void read_across_a_removal(HistoryBuilder& story, uint64_t key, WriteKind kind) {
  const auto reader = story.model.begin_called(HistoryBuilder::kOther, true);
  const auto writer = story.begin(12);
  story.write(writer, key, kind);
  story.write(writer, 4);
  story.end(writer);
  story.put(13, {key}, WriteKind::kRemove);
  story.model.begun(reader, TransactionId());
  story.read(reader, key, 0);
  story.read(reader, 4, 10);
  EXPECT_FALSE(story.oracle.failed()) << story.oracle.message();
  story.oracle.final_check();
}

TEST(OracleTest, AbsenceByLossIsNotALaterRemoval) {
  HistoryBuilder story;
  story.put(10, {1, 4});
  story.lose_odd_keys();
  read_across_a_removal(story, 1, WriteKind::kInsert);
  EXPECT_FALSE(story.oracle.failed()) << story.oracle.message();
}

TEST(OracleTest, AbsenceWithoutLossIsARemoval) {
  HistoryBuilder kept;  // the record is on a node that lost nothing
  kept.put(10, {2, 4});
  kept.lose_odd_keys();
  read_across_a_removal(kept, 2, WriteKind::kUpdate);
  EXPECT_EQ(kept.oracle.invariant(), "long-fork") << kept.oracle.message();
  HistoryBuilder anew;  // lost, but inserted again before the reader requested its begin
  anew.put(10, {1, 4});
  anew.lose_odd_keys();
  anew.put(11, {1});
  read_across_a_removal(anew, 1, WriteKind::kUpdate);
  EXPECT_EQ(anew.oracle.invariant(), "long-fork") << anew.oracle.message();
}

TEST(OracleTest, TransactionOfDeadClientIsWholeExceptForLostRecords) {
  HistoryBuilder story;
  story.put(10, {1, 2, 4});
  story.crash(11, {1, 2, 4});
  story.lose_odd_keys();
  story.read_in_new_transaction(1, 0);
  story.read_in_new_transaction(2, 11);
  EXPECT_FALSE(story.oracle.failed()) << story.oracle.message();
  story.read_in_new_transaction(4, 10);
  EXPECT_EQ(story.oracle.invariant(), "half-commit") << story.oracle.message();
}

TEST(OracleTest, TransactionThatBeganAfterTheLossMayCommit) {
  HistoryBuilder story;
  story.put(10, {1, 2});
  story.lose_odd_keys();
  story.put(11, {2}, WriteKind::kUpdate);
  story.read_in_new_transaction(2, 11);
  expect_right(story);
}

// ---- power cuts ----------------------------------------------------------------------------------------------------

TEST(OracleTest, PowerCutMayUndoLastCommitsAsAWhole) {
  HistoryBuilder story;
  story.put(10, {1, 2});
  story.put(11, {1, 2}, WriteKind::kUpdate);
  story.put(12, {3});
  const auto old = story.begin(0);
  const auto pending = story.model.begin_called(1, true);  // its reply is in flight
  story.cut_power(12, 10);
  story.model.begun(pending, TransactionId());
  story.read(old, 1, 11);
  story.read(old, 3, 12);
  story.read(pending, 1, 10);
  story.read(pending, 3, 0);
  const auto reader = story.begin(0);
  story.read(reader, 1, 10);
  story.read(reader, 2, 10);
  story.read(reader, 3, 0);
  story.put(1'001, {1}, WriteKind::kUpdate);
  story.put(1'002, {3});
  story.read_in_new_transaction(1, 1'001);
  story.decide(11, false);
  story.decide(12, false);
  story.decide(1'002, true);
  expect_right(story);
}

TEST(OracleTest, PowerCutMayUndoTheRecordsOfAConstantSum) {
  HistoryBuilder story;
  story.put(10, {1, 2});
  story.model.expect_constant_sum(HistoryBuilder::kTable, 2, 2'003);
  story.cut_power(10, 9);
  story.model.summed(story.begin(0), HistoryBuilder::kTable, 0, 0, story.oracle.now());
  expect_right(story);
}

TEST(OracleTest, PowerCutThatUndoesALaterTransactionKeepsAConstantSum) {
  HistoryBuilder story;
  story.put(10, {1, 2});
  story.model.expect_constant_sum(HistoryBuilder::kTable, 2, 2'003);
  story.put(11, {1, 2}, WriteKind::kUpdate);
  story.cut_power(11, 10);
  story.model.summed(story.begin(0), HistoryBuilder::kTable, 0, 0, story.oracle.now());
  EXPECT_EQ(story.oracle.invariant(), "scan-sum") << story.oracle.message();
}

TEST(OracleTest, UndoneCommitMayBeAcknowledgedLateOrRefused) {
  for (const StatusCode answer : {StatusCode::kOk, StatusCode::kFenced, StatusCode::kUnknownOutcome}) {
    HistoryBuilder story;
    story.put(10, {1});
    const auto writer = story.begin(11);
    story.write(writer, 1);
    story.model.commit_called(writer);
    const auto old = story.begin(0);
    story.read(old, 1, 11);
    story.cut_power(11, 10);
    story.model.commit_returned(writer, answer);
    story.read_in_new_transaction(1, 10);
    story.decide(11, false);
    expect_right(story);
  }
}

TEST(OracleTest, UndoneRemovalLeavesTheRecord) {
  HistoryBuilder story;
  story.put(10, {1, 2});
  story.put(11, {1, 2}, WriteKind::kRemove);
  const auto old = story.begin(0);
  story.read(old, 1, 0);
  story.cut_power(11, 10);
  story.read(old, 2, 0);
  story.read_in_new_transaction(1, 10);
  story.put(1'001, {1}, WriteKind::kUpdate);
  expect_right(story);
  story.read_in_new_transaction(2, 0);
  EXPECT_EQ(story.oracle.invariant(), "begin-after-ack") << story.oracle.message();
}

TEST(OracleTest, UndoneRemovalAddsNoOrder) {
  HistoryBuilder story;
  story.put(10, {1});
  story.put(11, {1}, WriteKind::kRemove);
  const auto old = story.begin(0);
  story.read(old, 1, 0);
  story.cut_power(11, 10);
  story.read_in_new_transaction(1, 10);
  story.decide(11, false);
  expect_right(story);
}

TEST(OracleTest, UndoneUniqueValueMayHaveRefusedOthers) {
  HistoryBuilder story;
  story.index(900, UniqueBy::kValue);
  const auto writer = story.begin(9);
  story.insert_equal_values(10, {1});
  const auto late = [&](TransactionNumber number, uint64_t id) {
    story.read(number, 2, 0);
    story.model.wrote(number,
                      {{HistoryBuilder::kTable, Key(2)}, WriteKind::kInsert, HistoryBuilder::tag(id, 2), 7, false});
    story.end(number, StatusCode::kAlreadyExists);
  };
  story.cut_power(10, 9);
  late(writer, 9);
  EXPECT_FALSE(story.oracle.failed()) << story.oracle.message();
  late(story.begin(1'001), 1'001);
  EXPECT_EQ(story.oracle.invariant(), "wrong-refusal") << story.oracle.message();
}

TEST(OracleTest, SynchronousLogMayLoseOnlyUnacknowledgedCommits) {
  HistoryBuilder story;
  story.put(10, {1});
  story.crash(11, {1});
  story.cut_power(11, 10, false);
  story.read_in_new_transaction(1, 10);
  story.decide(11, false);
  expect_right(story);
}

TEST(OracleTest, LogOfCrashedManagerMayHoldUnacknowledgedCommits) {
  HistoryBuilder story;
  story.put(10, {1});
  story.crash(11, {1});
  story.put(12, {2});
  story.model.manager_died([](TransactionId id) { return id.value != 13; });
  story.crash(13, {2});
  story.model.manager_died([](TransactionId id) { return id.value != 13; });
  expect_right(story);
}

TEST(OracleTest, LostPlainRecordMayBeInsertedAgain) {
  HistoryBuilder story;
  story.plain_put(1, PlainModel::Kind::kInsert, 0, 1, 50);
  story.lose_odd_keys();
  story.plain_read(1, 0, 0);
  story.plain_put(1, PlainModel::Kind::kInsert, 0, 2, 90);
  story.plain_read(1, 90, 2);
  expect_right(story);
  story.plain_read(1, 50, 1);
  EXPECT_EQ(story.oracle.invariant(), "lost-record-returned") << story.oracle.message();
}

TEST(OracleTest, LostCounterMayStartAgain) {
  HistoryBuilder story;
  story.oracle.counters().drew(1, "c", 7);
  story.oracle.loss_accepted(story.oracle.node_lost([](TableId table, Key) { return table == wire::kCounterTableId; }));
  story.oracle.counters().drew(2, "c", 7);
  expect_right(story);
}

// ---- non-transactional tables and cost -----------------------------------------------------------------------------

TEST(OracleTest, UnknownPlainWriteMayBeEither) {
  for (const bool happened : {false, true}) {
    HistoryBuilder story;
    story.plain_put(1, PlainModel::Kind::kInsert, 0, 1, 50);
    story.plain_put(1, PlainModel::Kind::kUpdate, 50, 2, 0, StatusCode::kUnknownOutcome);
    story.plain_read(1, 50, 1);
    if (happened) {
      story.plain_read(1, 51, 2);
      story.plain_put(1, PlainModel::Kind::kUpdate, 51, 3, 52);
    } else {
      story.plain_put(1, PlainModel::Kind::kUpdate, 50, 3, 52);
    }
    story.plain_read(1, 52, 3);
    expect_right(story);
    story.plain_read(1, 51, 2);
    EXPECT_EQ(story.oracle.invariant(), happened ? "plain-stale-read" : "plain-lost-update") << story.oracle.message();
  }
}

TEST(OracleTest, PlainScanMustReturnUnchangedRecords) {
  HistoryBuilder story;
  story.plain_put(1, PlainModel::Kind::kInsert, 0, 1, 50);
  story.plain_put(2, PlainModel::Kind::kInsert, 0, 2, 51);
  const LogicalTime requested_at = story.oracle.now();
  story.plain_put(2, PlainModel::Kind::kUpdate, 51, 3, 52);
  const std::vector<ScannedRow> rows = {{Key(1), {50, 1, 0}}};
  story.plain.scanned(1, HistoryBuilder::kPlainTable, rows, requested_at);
  expect_right(story);
}

TEST(OracleTest, AcceptsCorrectSessions) {
  HistoryBuilder s;
  // Within the maximum age: half of it in addition is permitted, for clocks that differ.
  s.sessions.committed_after(1, TransactionId(10), 150'000'000, 100'000'000);
  // kSnapshotTooOld in the session before, in another process, or after the commit was requested.
  s.sessions.too_old(1, 3);
  s.sessions.committed(1, 4, s.oracle.now());
  s.sessions.committed(2, 3, s.oracle.now());
  const LogicalTime requested_at = s.oracle.now();
  s.sessions.too_old(1, 5);
  s.sessions.committed(1, 5, requested_at);
  s.sessions.idled(1, 100'000'000, false);
  s.request_received(7, 3, 1, TransactionId(50));
  s.request_received(7, 3, 1, TransactionId(50));  // a repetition
  // Another sequence, another session, and another incarnation of the node.
  s.request_received(7, 3, 2, TransactionId(51));
  s.request_received(7, 4, 1, TransactionId(52));
  s.request_received(8, 3, 1, TransactionId(53));
  s.oracle.node_checked("node1", "", 0);
  EXPECT_FALSE(s.oracle.failed()) << s.oracle.message();
}

TEST(OracleTest, AcceptsCorrectIndexes) {
  HistoryBuilder s;
  const std::vector<ScannedRow> rows = {{Key(2), HistoryBuilder::seen(9, 1)}, {Key(1), HistoryBuilder::seen(9, 1)}};
  s.indexes.ranged("i", rows);
  EXPECT_TRUE(
      s.indexes.found("i", TransactionId(10), {HistoryBuilder::kTable, Key(1)}, HistoryBuilder::seen(9, 1), Key(1)));
  // The entries may come in any order. A value that was set, changed and set again may have two open entries.
  s.indexes.check_entries("i", {{"b", Key(1)}, {"a", Key(2)}, {"b", Key(1)}}, {{"a", Key(2)}, {"b", Key(1)}});
  s.indexes.check_entries("i", {}, {});
  s.indexes.check_swept("i", 0);
  expect_right(s);
}

TEST(OracleTest, IndexMayBeDamagedFromLossToRebuild) {
  HistoryBuilder s;
  s.index(900, UniqueBy::kValue);
  s.put(10, {1, 2});
  const size_t loss = s.oracle.node_lost([](TableId, Key key) { return key.value % 2 == 1; });
  s.oracle.loss_accepted(loss);
  s.indexes.malformed("i", s.oracle.now());
  s.indexes.malformed_commit(std::vector{HistoryBuilder::kTable}, s.oracle.now());
  // The index may refuse a value that only a lost record had.
  const auto writer = s.begin(11);
  s.insert(writer, 4);
  s.end(writer, StatusCode::kAlreadyExists);
  s.drop_index();
  s.index(901, UniqueBy::kValue);
  s.index(901, UniqueBy::kValue);
  expect_right(s);
}

TEST(OracleTest, IndexMayAnswerTransactionFromBeforeAcceptance) {
  HistoryBuilder s;
  s.index(900);
  const LogicalTime before = s.oracle.now();
  s.lose_odd_keys();
  s.indexes.read(TableId(900), before);
  s.indexes.read(TableId(901), s.oracle.now());  // created since the acceptance
  expect_right(s);
}

TEST(OracleTest, AcceptsCorrectIndexReads) {
  HistoryBuilder s;
  s.index(900, UniqueBy::kValue);
  s.insert_equal_values(10, {1});
  // Another record has the value.
  const auto writer = s.begin(11);
  s.model.wrote(writer, {{HistoryBuilder::kTable, Key(2)}, WriteKind::kInsert, HistoryBuilder::tag(11, 2), 7, false});
  s.end(writer, StatusCode::kAlreadyExists);
  // Without the unique index, two records may have one value, and then the index cannot be created.
  s.drop_index();
  s.indexes.absent("i", s.oracle.now());
  s.indexes.refused(TableId(900), s.oracle.now());
  s.insert_equal_values(12, {2});
  s.refuse_index(UniqueBy::kValue);
  s.model.scanned(s.begin(0), HistoryBuilder::kTable,
                  std::vector<ScannedRow>{{Key(1), {10, HistoryBuilder::tag(10, 1), 7}},
                                          {Key(2), {12, HistoryBuilder::tag(12, 2), 7}}},
                  s.oracle.now());
  expect_right(s);
}

TEST(OracleTest, RangesIncludeOwnWrites) {
  HistoryBuilder s;
  s.put(10, {1, 2});
  const auto writer = s.begin(11);
  s.remove(writer, 1);
  s.insert(writer, 1);  // other transactions will see an update
  s.remove(writer, 2);
  const std::vector<ScannedRow> rows = {{Key(1), HistoryBuilder::seen(11, 1)}};
  s.model.scanned(writer, HistoryBuilder::kTable, rows, s.oracle.now(), ScanKind::kIndex);
  s.model.ranged(writer, HistoryBuilder::kTable, {0, 9'999}, rows, s.oracle.now(), ScanKind::kIndex);
  EXPECT_TRUE(s.indexes.check_changed_count("i", TransactionId(11), 1, 1, s.oracle.now()));
  s.end(writer);
  s.read_in_new_transaction(1, 11);
  s.read_in_new_transaction(2, 0);
  expect_right(s);
}

TEST(OracleTest, ReadsAreCheap) {
  HistoryBuilder story;
  story.put(1, {1, 2, 3, 4});
  constexpr uint64_t kTransactions = 20'000;
  const auto before = std::chrono::steady_clock::now();
  for (uint64_t id = 2; id < kTransactions; ++id) {
    const auto number = story.begin(id);
    const uint64_t key = 1 + id % 4;
    const uint64_t last = id > 5 ? id - 4 : 1;
    story.read(number, key, last);
    story.write(number, key);
    story.end(number);
  }
  story.oracle.final_check();
  const auto spent = std::chrono::steady_clock::now() - before;
  EXPECT_FALSE(story.oracle.failed()) << story.oracle.message();
  // About 3 us for each transaction, optimised. The bound leaves room for sanitizers, and separates quadratic time
  // from linear.
  EXPECT_LT(spent, std::chrono::seconds(10));
  std::printf("%.2f us for each transaction\n",
              std::chrono::duration<double, std::micro>(spent).count() / kTransactions);
}

}  // namespace
}  // namespace loam::sim
