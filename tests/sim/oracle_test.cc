// Histories that are right, and those that only a loss excuses.
#include "tests/sim/oracle.h"

#include <chrono>
#include <cstdio>
#include <vector>

#include <gtest/gtest.h>

#include "common/wire/system_tables.h"
#include "tests/sim/story.h"

namespace loam::sim {
namespace {

// ---- what is right -------------------------------------------------------------------------------------------------

void expect_right(Story& story) {
  story.oracle.final_check();
  EXPECT_FALSE(story.oracle.failed()) << story.oracle.message();
}

TEST(OracleTest, SnapshotsOfAnOrderAreRight) {
  Story story;
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

TEST(OracleTest, CommitUnderWayMayBeSeenOrNot) {
  Story story;
  story.put(10, {1});
  const auto writer = story.begin(11);
  story.write(writer, 1);
  story.model.commit_called(writer);
  story.look(1, 10);
  story.look(1, 11);
  story.look(1, 11);
  story.model.commit_returned(writer, StatusCode::kOk);
  expect_right(story);
  EXPECT_EQ(story.oracle.statistics().unknown, 0u);
}

TEST(OracleTest, UnknownOutcomeMayBeEither) {
  for (const bool happened : {false, true}) {
    Story story;
    story.put(10, {1, 2});
    story.crash(11, {1, 2});
    story.look(1, 10);
    story.look(1, happened ? 11 : 10);
    story.look(2, happened ? 11 : 10);
    expect_right(story);
    EXPECT_EQ(story.oracle.statistics().unknown, 1u);
    EXPECT_EQ(story.oracle.statistics().resolved, happened ? 1u : 0u);
  }
}

TEST(OracleTest, UnknownRemovalIsToldByWhatIsMissing) {
  Story story;
  story.put(10, {1, 2});
  story.crash(11, {1, 2}, WriteKind::kRemove);
  story.look(1, 0);
  EXPECT_EQ(story.oracle.statistics().resolved, 1u);
  EXPECT_FALSE(story.oracle.failed()) << story.oracle.message();
  story.look(2, 10);  // the other half stayed
  EXPECT_EQ(story.oracle.invariant(), "half-commit") << story.oracle.message();
}

TEST(OracleTest, OneOfTwoUnknownRemovalsMayHaveHappened) {
  Story story;
  story.put(10, {1});
  story.crash(11, {1}, WriteKind::kRemove);
  story.crash(12, {1}, WriteKind::kRemove);
  const auto writer = story.begin(13);
  story.read(writer, 1, 0);
  story.insert(writer, 1);
  story.end(writer);
  story.look(1, 13);
  expect_right(story);
}

TEST(OracleTest, AbortedInsertLeavesTheWayFree) {
  Story story;
  const auto writer = story.begin(10);
  story.insert(writer, 1);
  story.end(writer, StatusCode::kConflict);
  story.put(11, {1});
  story.look(1, 11);
  expect_right(story);
}

// ---- losses --------------------------------------------------------------------------------------------------------

TEST(OracleTest, LostRecordIsAbsentAndMayBeWrittenAnew) {
  Story story;
  story.put(10, {1, 2});
  story.lose_odd();
  story.look(1, 0);
  story.look(2, 10);
  story.put(11, {1});
  story.look(1, 11);
  expect_right(story);
}

TEST(OracleTest, LossExcusesNoOtherRecord) {
  Story story;
  story.put(10, {1, 2});
  story.lose_odd();
  story.look(2, 0);
  EXPECT_EQ(story.oracle.invariant(), "begin-after-ack") << story.oracle.message();
}

TEST(OracleTest, LossExcusesNothingThatWasWrittenAfterIt) {
  Story story;
  story.put(10, {1});
  story.lose_odd();
  story.put(11, {1});
  story.look(1, 0);
  EXPECT_EQ(story.oracle.invariant(), "begin-after-ack") << story.oracle.message();
}

/// A reader whose begin takes long misses record `key`, which 12 writes and 13 removes meanwhile; but it sees record 4
/// as it was before 12. Right only if it misses something else than what 13 has removed.
void read_across_a_removal(Story& story, uint64_t key, WriteKind kind) {
  const auto reader = story.model.begin_called(Story::kOther, true);
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

TEST(OracleTest, AbsenceByALossIsNoLaterRemoval) {
  Story story;
  story.put(10, {1, 4});
  story.lose_odd();
  read_across_a_removal(story, 1, WriteKind::kInsert);
  EXPECT_FALSE(story.oracle.failed()) << story.oracle.message();
}

TEST(OracleTest, AbsenceOfWhatWasNotLostIsARemoval) {
  Story kept;  // elsewhere
  kept.put(10, {2, 4});
  kept.lose_odd();
  read_across_a_removal(kept, 2, WriteKind::kUpdate);
  EXPECT_EQ(kept.oracle.invariant(), "long-fork") << kept.oracle.message();
  Story anew;  // lost, but written again before the reader asked for its begin
  anew.put(10, {1, 4});
  anew.lose_odd();
  anew.put(11, {1});
  read_across_a_removal(anew, 1, WriteKind::kUpdate);
  EXPECT_EQ(anew.oracle.invariant(), "long-fork") << anew.oracle.message();
}

TEST(OracleTest, TransactionOfADeadClientIsWholeOutsideOfWhatIsLost) {
  Story story;
  story.put(10, {1, 2, 4});
  story.crash(11, {1, 2, 4});
  story.lose_odd();
  story.look(1, 0);
  story.look(2, 11);
  EXPECT_FALSE(story.oracle.failed()) << story.oracle.message();
  story.look(4, 10);
  EXPECT_EQ(story.oracle.invariant(), "half-commit") << story.oracle.message();
}

TEST(OracleTest, TransactionThatBeganAfterTheLossMayCommit) {
  Story story;
  story.put(10, {1, 2});
  story.lose_odd();
  story.put(11, {2}, WriteKind::kUpdate);
  story.look(2, 11);
  expect_right(story);
}

// ---- power cuts ----------------------------------------------------------------------------------------------------

TEST(OracleTest, PowerCutMayTakeTheLastCommitsWhole) {
  Story story;
  story.put(10, {1, 2});
  story.put(11, {1, 2}, WriteKind::kUpdate);
  story.put(12, {3});
  const auto old = story.begin(0);
  const auto pending = story.model.begin_called(1, true);  // its answer is on its way
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
  story.look(1, 1'001);
  story.decide(11, false);
  story.decide(12, false);
  story.decide(1'002, true);
  expect_right(story);
}

TEST(OracleTest, CommitThatAPowerCutTakesMayBeAcknowledgedLateOrRefused) {
  for (const StatusCode answer : {StatusCode::kOk, StatusCode::kFenced, StatusCode::kUnknownOutcome}) {
    Story story;
    story.put(10, {1});
    const auto writer = story.begin(11);
    story.write(writer, 1);
    story.model.commit_called(writer);
    const auto old = story.begin(0);
    story.read(old, 1, 11);
    story.cut_power(11, 10);
    story.model.commit_returned(writer, answer);
    story.look(1, 10);
    story.decide(11, false);
    expect_right(story);
  }
}

TEST(OracleTest, RemovalThatAPowerCutTakesLeavesTheRecord) {
  Story story;
  story.put(10, {1, 2});
  story.put(11, {1, 2}, WriteKind::kRemove);
  const auto old = story.begin(0);
  story.read(old, 1, 0);
  story.cut_power(11, 10);
  story.read(old, 2, 0);
  story.look(1, 10);
  story.put(1'001, {1}, WriteKind::kUpdate);
  expect_right(story);
  story.look(2, 0);
  EXPECT_EQ(story.oracle.invariant(), "begin-after-ack") << story.oracle.message();
}

TEST(OracleTest, RemovalThatAPowerCutTookBackOrdersNothing) {
  Story story;
  story.put(10, {1});
  story.put(11, {1}, WriteKind::kRemove);
  const auto old = story.begin(0);
  story.read(old, 1, 0);
  story.cut_power(11, 10);
  story.look(1, 10);
  story.decide(11, false);
  expect_right(story);
}

TEST(OracleTest, ValueThatAPowerCutTakesWasRefusedToOthersBefore) {
  Story story;
  story.index(900, UniqueBy::kValue);
  const auto writer = story.begin(9);
  story.same(10, {1});
  const auto late = [&](TransactionNumber number, uint64_t id) {
    story.read(number, 2, 0);
    story.model.wrote(number, {{Story::kTable, Key(2)}, WriteKind::kInsert, Story::tag(id, 2), 7, false});
    story.end(number, StatusCode::kAlreadyExists);
  };
  story.cut_power(10, 9);
  late(writer, 9);
  EXPECT_FALSE(story.oracle.failed()) << story.oracle.message();
  late(story.begin(1'001), 1'001);
  EXPECT_EQ(story.oracle.invariant(), "wrong-refusal") << story.oracle.message();
}

TEST(OracleTest, SynchronousLogLosesWhatNobodyWasTold) {
  Story story;
  story.put(10, {1});
  story.crash(11, {1});
  story.cut_power(11, 10, false);
  story.look(1, 10);
  story.decide(11, false);
  expect_right(story);
}

TEST(OracleTest, LogOfADeadManagerMayNameWhatNobodyWasTold) {
  Story story;
  story.put(10, {1});
  story.crash(11, {1});
  story.put(12, {2});
  story.model.manager_died([](TransactionId id) { return id.value != 13; });
  story.crash(13, {2});
  story.model.manager_died([](TransactionId id) { return id.value != 13; });
  expect_right(story);
}

TEST(OracleTest, LostPlainRecordMayBeMadeAgain) {
  Story story;
  story.plain_put(1, PlainModel::Kind::kInsert, 0, 1, 50);
  story.lose_odd();
  story.plain_look(1, 0, 0);
  story.plain_put(1, PlainModel::Kind::kInsert, 0, 2, 90);
  story.plain_look(1, 90, 2);
  expect_right(story);
  story.plain_look(1, 50, 1);
  EXPECT_EQ(story.oracle.invariant(), "lost-record-returned") << story.oracle.message();
}

TEST(OracleTest, LostCounterBeginsAnew) {
  Story story;
  story.oracle.counters().drew(1, "c", 7);
  story.oracle.loss_accepted(story.oracle.node_lost([](TableId table, Key) { return table == wire::kCounterTableId; }));
  story.oracle.counters().drew(2, "c", 7);
  expect_right(story);
}

// ---- plain tables and cost -----------------------------------------------------------------------------------------

TEST(OracleTest, UnknownPlainWriteMayBeEither) {
  for (const bool happened : {false, true}) {
    Story story;
    story.plain_put(1, PlainModel::Kind::kInsert, 0, 1, 50);
    story.plain_put(1, PlainModel::Kind::kUpdate, 50, 2, 0, StatusCode::kUnknownOutcome);
    story.plain_look(1, 50, 1);
    if (happened) {
      story.plain_look(1, 51, 2);
      story.plain_put(1, PlainModel::Kind::kUpdate, 51, 3, 52);
    } else {
      story.plain_put(1, PlainModel::Kind::kUpdate, 50, 3, 52);
    }
    story.plain_look(1, 52, 3);
    expect_right(story);
    story.plain_look(1, 51, 2);
    EXPECT_EQ(story.oracle.invariant(), happened ? "plain-stale-read" : "plain-lost-update") << story.oracle.message();
  }
}

TEST(OracleTest, ScanOfAPlainTablePromisesWhatNobodyChangesMeanwhile) {
  Story story;
  story.plain_put(1, PlainModel::Kind::kInsert, 0, 1, 50);
  story.plain_put(2, PlainModel::Kind::kInsert, 0, 2, 51);
  const Moment asked = story.oracle.now();
  story.plain_put(2, PlainModel::Kind::kUpdate, 51, 3, 52);
  const std::vector<ScannedRow> rows = {{Key(1), {50, 1, 0}}};
  story.plain.scanned(1, Story::kPlainTable, rows, asked);
  expect_right(story);
}

TEST(OracleTest, RightSessionsAreNotBlamed) {
  Story s;
  // Of age: half as much again is for clocks that differ.
  s.sessions.committed_after(1, TransactionId(10), 150'000'000, 100'000'000);
  // Too old in the session before, in another process, or after the commit was asked for.
  s.sessions.too_old(1, 3);
  s.sessions.committed(1, 4, s.oracle.now());
  s.sessions.committed(2, 3, s.oracle.now());
  const Moment asked = s.oracle.now();
  s.sessions.too_old(1, 5);
  s.sessions.committed(1, 5, asked);
  s.sessions.idled(1, 100'000'000, false);
  s.oracle.node_checked("node1", "", 0);
  EXPECT_FALSE(s.oracle.failed()) << s.oracle.message();
}

TEST(OracleTest, RightIndexesAreNotBlamed) {
  Story s;
  const std::vector<ScannedRow> rows = {{Key(2), Story::seen(9, 1)}, {Key(1), Story::seen(9, 1)}};
  s.indexes.ranged("i", rows);
  EXPECT_TRUE(s.indexes.found("i", TransactionId(10), {Story::kTable, Key(1)}, Story::seen(9, 1), Key(1)));
  // In any order; and a value that was given, taken and given again may have two live entries.
  s.indexes.at_rest("i", {{"b", Key(1)}, {"a", Key(2)}, {"b", Key(1)}}, {{"a", Key(2)}, {"b", Key(1)}});
  s.indexes.at_rest("i", {}, {});
  s.indexes.swept("i", 0);
  expect_right(s);
}

TEST(OracleTest, IndexThatLivedThroughALossMayBeDamagedUntilItIsMadeAnew) {
  Story s;
  s.index(900, UniqueBy::kValue);
  s.put(10, {1, 2});
  const size_t loss = s.oracle.node_lost([](TableId, Key key) { return key.value % 2 == 1; });
  s.oracle.loss_accepted(loss);
  s.indexes.malformed("i", s.oracle.now());
  s.indexes.malformed_commit(std::vector{Story::kTable}, s.oracle.now());
  // It may refuse a value that only a lost record had.
  const auto writer = s.begin(11);
  s.insert(writer, 4);
  s.end(writer, StatusCode::kAlreadyExists);
  s.drop_index();
  s.index(901, UniqueBy::kValue);
  s.index(901, UniqueBy::kValue);
  expect_right(s);
}

TEST(OracleTest, IndexMayAnswerWhoBeganBeforeTheLossWasAccepted) {
  Story s;
  s.index(900);
  const Moment before = s.oracle.now();
  s.lose_odd();
  s.indexes.read(TableId(900), before);
  s.indexes.read(TableId(901), s.oracle.now());  // made since
  expect_right(s);
}

TEST(OracleTest, RightAnswersOfIndexesAreNotBlamed) {
  Story s;
  s.index(900, UniqueBy::kValue);
  s.same(10, {1});
  // Another record has the value.
  const auto writer = s.begin(11);
  s.model.wrote(writer, {{Story::kTable, Key(2)}, WriteKind::kInsert, Story::tag(11, 2), 7, false});
  s.end(writer, StatusCode::kAlreadyExists);
  // Without the unique index two records may have one value, and then the index cannot be made.
  s.drop_index();
  s.indexes.absent("i", s.oracle.now());
  s.indexes.refused(TableId(900), s.oracle.now());
  s.same(12, {2});
  s.refuse_index(UniqueBy::kValue);
  s.model.scanned(s.begin(0), Story::kTable,
                  std::vector<ScannedRow>{{Key(1), {10, Story::tag(10, 1), 7}}, {Key(2), {12, Story::tag(12, 2), 7}}},
                  s.oracle.now());
  expect_right(s);
}

TEST(OracleTest, RangesHaveOwnWrites) {
  Story s;
  s.put(10, {1, 2});
  const auto writer = s.begin(11);
  s.remove(writer, 1);
  s.insert(writer, 1);  // an update, seen from outside
  s.remove(writer, 2);
  const std::vector<ScannedRow> rows = {{Key(1), Story::seen(11, 1)}};
  s.model.scanned(writer, Story::kTable, rows, s.oracle.now(), Walk::kIndex);
  s.model.ranged(writer, Story::kTable, {0, 9'999}, rows, s.oracle.now(), Walk::kIndex);
  EXPECT_TRUE(s.indexes.hit("i", TransactionId(11), 1, 1, s.oracle.now()));
  s.end(writer);
  s.look(1, 11);
  s.look(2, 0);
  expect_right(s);
}

TEST(OracleTest, ReadsAreCheap) {
  Story story;
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
  // About 3 us a transaction, optimised; the bound allows for sanitizers and tells quadratic from linear.
  EXPECT_LT(spent, std::chrono::seconds(10));
  std::printf("%.2f us a transaction\n", std::chrono::duration<double, std::micro>(spent).count() / kTransactions);
}

}  // namespace
}  // namespace loam::sim
