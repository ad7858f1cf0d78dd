// A commit log that begins anew while commits come in.
#include <gtest/gtest.h>

#include "commit-manager/src/log/commit_log_file.h"
#include "commit-manager/src/log/log_harness.h"

namespace loam::commit {
namespace {

using testing::eventually;

struct BeginAnewTest : ::testing::TestWithParam<CommitLogMode> {
  BeginAnewTest() {
    EXPECT_TRUE(h.open().ok());
    h.append_batches(10);
    EXPECT_TRUE(h.all_flushed());
  }
  /// Another process finds everything, but the first `dropped`.
  void expect_found(size_t dropped) {
    ASSERT_TRUE(h.open(false).ok());
    EXPECT_EQ(h.log->found(), h.needed(dropped));
    EXPECT_TRUE(h.failures().empty());
  }

  LogHarness h{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Modes, BeginAnewTest, ::testing::Values(CommitLogMode::kOs, CommitLogMode::kSync),
                         [](const auto& mode) { return mode.param == CommitLogMode::kOs ? "os" : "sync"; });

TEST_P(BeginAnewTest, KeepsWhatIsNeededAndNothingElse) {
  EXPECT_GE(h.log->bytes(), 12u + 10);
  h.log->begin_anew(h.needed(7));
  EXPECT_EQ(h.log->bytes(), 0u);
  ASSERT_TRUE(h.begins_at(10));
  ReadLog found = h.on_disk();
  EXPECT_EQ(found.contents, h.needed(7));
  EXPECT_EQ(found.records, 0u);
  h.append(2);
  h.append(1);
  EXPECT_TRUE(h.all_flushed());
  EXPECT_EQ(h.on_disk().contents, h.needed(7));
  EXPECT_TRUE(eventually([&] { return h.log->bytes() == h.disk.log().size() - found.beginning_bytes; }));
  EXPECT_FALSE(h.disk.has_new_log());
  expect_found(7);
}

TEST_P(BeginAnewTest, CommitsGoOnWhileTheBeginningIsBroughtToTheDisk) {
  h.disk.hold(Step::kNewFlush);
  const uint64_t flushes = h.disk.entered(Step::kNewFlush);
  h.log->begin_anew(h.needed(3));
  ASSERT_TRUE(h.disk.wait_entered(Step::kNewFlush, flushes + 1));
  for (int i = 0; i < 20; ++i) {
    h.append(1);
    ASSERT_TRUE(h.all_flushed());
  }
  EXPECT_EQ(h.on_disk().beginning_end, 0u) << "still the old log";
  EXPECT_EQ(h.on_disk().contents.end, 30u);
  h.disk.release(Step::kNewFlush);
  ASSERT_TRUE(h.begins_at(10));
  EXPECT_EQ(h.on_disk().contents, h.needed(3));
  h.append(1);
  EXPECT_TRUE(h.all_flushed());
  expect_found(3);
}

TEST_P(BeginAnewTest, TheBeginningHasCommitsThatAreNotWrittenYet) {
  h.disk.hold(Step::kWrite);
  const uint64_t writes = h.disk.entered(Step::kWrite);
  h.append(2);
  ASSERT_TRUE(h.disk.wait_entered(Step::kWrite, writes + 1));
  h.append(3);
  h.log->begin_anew(h.needed(4));  // behind position 15
  h.append(1);
  h.append(5);
  h.disk.release(Step::kWrite);
  ASSERT_TRUE(h.begins_at(15));
  EXPECT_TRUE(h.all_flushed());
  EXPECT_EQ(h.on_disk().contents, h.needed(4)) << "each commit is there once, at its position";
  expect_found(4);
}

TEST_P(BeginAnewTest, OsAcceptsAndSyncWaitsWhileTheLogIsReplaced) {
  for (const Step step : {Step::kFlush, Step::kRename, Step::kFolderFlush}) {
    SCOPED_TRACE(static_cast<int>(step));
    ASSERT_TRUE(h.all_flushed());
    if (step == Step::kFlush) h.disk.hold(Step::kNewFlush);  // until the log's own flushes are held
    const uint64_t steps = h.disk.entered(step);
    if (step != Step::kFlush) h.disk.hold(step);
    h.log->begin_anew(h.needed());
    if (step == Step::kFlush) {
      h.disk.hold(step);
      h.disk.release(Step::kNewFlush);
    }
    ASSERT_TRUE(h.disk.wait_entered(step, steps + 1));
    const uint64_t before = h.ids.size();
    h.append_batches(20);
    if (GetParam() == CommitLogMode::kOs) {
      ASSERT_TRUE(h.all_accepted());
      EXPECT_EQ(h.on_disk().contents.end, before + 20) << "whichever log it is";
    } else {
      ASSERT_TRUE(eventually([&] { return h.on_disk().contents.end == before + 20; }));
      EXPECT_EQ(h.log->progress().accepted, before);
    }
    EXPECT_EQ(h.log->progress().flushed, before);
    h.disk.release(step);
    ASSERT_TRUE(h.all_flushed());
    ASSERT_TRUE(h.begins_at(before));
  }
  expect_found(0);
}

TEST_P(BeginAnewTest, ALaterBeginningTakesThePlaceOfOneThatIsBeingMade) {
  h.disk.hold(Step::kNewFlush);
  const uint64_t flushes = h.disk.entered(Step::kNewFlush);
  h.log->begin_anew(h.needed(2));
  ASSERT_TRUE(h.disk.wait_entered(Step::kNewFlush, flushes + 1));
  h.append(3);
  ASSERT_TRUE(h.all_flushed());
  h.log->begin_anew(h.needed(5));
  h.append(2);
  h.log->begin_anew(h.needed(6));
  h.append(4);
  ASSERT_TRUE(h.all_flushed());
  h.disk.release(Step::kNewFlush);
  ASSERT_TRUE(h.begins_at(15));
  EXPECT_EQ(h.on_disk().contents, h.needed(6));
  expect_found(6);
}

TEST_P(BeginAnewTest, ALaterBeginningWaitsUntilTheLogIsReplaced) {
  h.disk.hold(Step::kRename);
  const uint64_t renames = h.disk.entered(Step::kRename);
  h.log->begin_anew(h.needed(2));
  ASSERT_TRUE(h.disk.wait_entered(Step::kRename, renames + 1));
  h.append(3);
  h.log->begin_anew(h.needed(5));
  h.append(2);
  h.log->begin_anew(h.needed(6));  // takes the place of the one before
  h.append(4);
  EXPECT_EQ(h.on_disk().beginning_end, 0u);
  h.disk.release(Step::kRename);
  ASSERT_TRUE(h.begins_at(15));
  ASSERT_TRUE(h.all_flushed());
  EXPECT_EQ(h.on_disk().contents, h.needed(6));
  EXPECT_EQ(h.disk.entered(Step::kRename), renames + 2);
  expect_found(6);
}

TEST_P(BeginAnewTest, WithoutRoomForTheNewLogTheOldOneGoesOn) {
  const LoggedLines lines;
  h.disk.set_outcome(Step::kNewReserve, {StatusCode::kNoSpace, "no room"});
  const uint64_t tries = h.disk.entered(Step::kNewReserve);
  h.log->begin_anew(h.needed(2));
  ASSERT_TRUE(h.disk.wait_entered(Step::kNewReserve, tries + 3));
  h.append_batches(5);
  ASSERT_TRUE(h.all_flushed());
  EXPECT_EQ(LoggedLines::count(LogLevel::kWarning, "the log cannot begin anew"), 1u);
  h.disk.set_outcome(Step::kNewReserve, ok_status());
  ASSERT_TRUE(h.begins_at(10));
  expect_found(2);
}

TEST_P(BeginAnewTest, WithoutRoomToCatchUpTheOldOneGoesOnAndABeginningStartsAgain) {
  h.options.room_ahead_bytes = 200;
  ASSERT_TRUE(h.open().ok());
  h.disk.hold(Step::kNewFlush);
  const uint64_t flushes = h.disk.entered(Step::kNewFlush);
  h.log->begin_anew(h.needed(2));
  ASSERT_TRUE(h.disk.wait_entered(Step::kNewFlush, flushes + 1));
  h.append(300);  // more than the room that the new log has
  ASSERT_TRUE(h.all_flushed());
  h.disk.set_outcome(Step::kNewReserve, {StatusCode::kNoSpace, "no room"});
  const uint64_t tries = h.disk.entered(Step::kNewReserve);
  const uint64_t renames = h.disk.entered(Step::kRename);
  h.disk.release(Step::kNewFlush);
  ASSERT_TRUE(h.disk.wait_entered(Step::kNewReserve, tries + 3));
  h.append_batches(5);
  ASSERT_TRUE(h.all_flushed());
  EXPECT_EQ(h.disk.entered(Step::kRename), renames);
  h.log->begin_anew(h.needed(100));
  h.append(1);
  ASSERT_TRUE(h.all_flushed());
  h.disk.set_outcome(Step::kNewReserve, ok_status());
  ASSERT_TRUE(h.begins_at(315));
  expect_found(100);
}

TEST_P(BeginAnewTest, WhileTheLogIsReplacedACommitIsAcceptedWhenBothLogsHaveIt) {
  h.options.room_ahead_bytes = 200;
  ASSERT_TRUE(h.open().ok());
  h.disk.hold(Step::kRename);
  const uint64_t renames = h.disk.entered(Step::kRename);
  h.log->begin_anew(h.needed(2));
  ASSERT_TRUE(h.disk.wait_entered(Step::kRename, renames + 1));
  h.disk.set_outcome(Step::kNewReserve, {StatusCode::kNoSpace, "no room"});
  const uint64_t tries = h.disk.entered(Step::kNewReserve);
  h.append(300);  // more than the room that the new log has
  ASSERT_TRUE(h.disk.wait_entered(Step::kNewReserve, tries + 4));
  EXPECT_EQ(h.on_disk().contents.end, 310u) << "the old log has them";
  EXPECT_EQ(h.log->progress().accepted, 10u) << "but a crash may leave the new one";
  h.disk.set_outcome(Step::kNewReserve, ok_status());
  if (GetParam() == CommitLogMode::kOs) {
    EXPECT_TRUE(h.all_accepted());
  }
  h.disk.release(Step::kRename);
  EXPECT_TRUE(h.all_flushed());
  expect_found(2);
}

TEST_P(BeginAnewTest, ANewLogHelpsOneThatHasNoRoom) {
  h.options.room_ahead_bytes = 200;
  ASSERT_TRUE(h.open().ok());
  h.disk.set_outcome(Step::kReserve, {StatusCode::kNoSpace, "no room"});
  const uint64_t tries = h.disk.entered(Step::kReserve);
  h.append(300);
  ASSERT_TRUE(h.disk.wait_entered(Step::kReserve, tries + 4));
  EXPECT_EQ(h.log->progress().accepted, 10u);
  h.append(1);  // not taken by the writer
  h.log->begin_anew(h.needed(300));
  h.append(2);
  ASSERT_TRUE(h.begins_at(311));
  h.disk.set_outcome(Step::kReserve, ok_status());  // the new log is the log
  ASSERT_TRUE(h.all_flushed());
  expect_found(300);
}

TEST_P(BeginAnewTest, AFailureIsFinal) {
  for (const Step step :
       {Step::kCreate, Step::kNewReserve, Step::kNewWrite, Step::kNewFlush, Step::kRename, Step::kFolderFlush}) {
    SCOPED_TRACE(static_cast<int>(step));
    LogHarness run(GetParam());
    ASSERT_TRUE(run.open().ok());
    run.append(5);
    ASSERT_TRUE(run.all_flushed());
    run.disk.set_outcome(step, {StatusCode::kInternal, "the disk is broken"});
    run.log->begin_anew(run.needed());
    ASSERT_TRUE(run.has_failed());
    run.append(1);
    EXPECT_EQ(run.log->progress().accepted, 5u);
    run.log.reset();
    EXPECT_EQ(run.failures().size(), 1u);
    EXPECT_EQ(run.on_disk().contents.end, 5u);
  }
}

TEST_P(BeginAnewTest, EndsWhileABeginningIsMade) {
  h.disk.set_outcome(Step::kNewReserve, {StatusCode::kNoSpace, "no room"});
  const uint64_t tries = h.disk.entered(Step::kNewReserve);
  h.log->begin_anew(h.needed(2));
  ASSERT_TRUE(h.disk.wait_entered(Step::kNewReserve, tries + 1));
  h.append(5);
  h.log.reset();
  EXPECT_EQ(h.on_disk().contents, h.needed());
  h.disk.set_outcome(Step::kNewReserve, ok_status());
  expect_found(0);
  EXPECT_FALSE(h.disk.has_new_log());
}

TEST_P(BeginAnewTest, ALongBeginningIsFlushedInPieces) {
  LogHarness run(GetParam());
  ASSERT_TRUE(run.open().ok());
  run.append(1'500'000);
  ASSERT_TRUE(run.all_flushed());
  const uint64_t flushes = run.disk.entered(Step::kNewFlush);
  run.log->begin_anew(run.needed());
  ASSERT_TRUE(run.begins_at(1'500'000));
  EXPECT_GE(run.disk.entered(Step::kNewFlush), flushes + 3);
  EXPECT_EQ(run.on_disk().contents, run.needed());
}

}  // namespace
}  // namespace loam::commit
