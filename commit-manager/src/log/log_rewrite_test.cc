// Rewrites of the commit log while commits arrive.
#include <gtest/gtest.h>

#include "commit-manager/src/log/commit_log_file.h"
#include "commit-manager/testing/log_harness.h"

namespace loam::commit {
namespace {

using testing::eventually;

struct LogRewriteTest : ::testing::TestWithParam<CommitLogMode> {
  LogRewriteTest() {
    EXPECT_TRUE(h.open().ok());
    h.append_batches(10);
    EXPECT_TRUE(h.all_flushed());
  }
  /// Another process finds all commits except the first `dropped`.
  void expect_found(size_t dropped) {
    ASSERT_TRUE(h.open(false).ok());
    EXPECT_EQ(h.log->initial_contents(), h.needed(dropped));
    EXPECT_TRUE(h.failures().empty());
  }

  LogHarness h{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Modes, LogRewriteTest, ::testing::Values(CommitLogMode::kOs, CommitLogMode::kSync),
                         [](const auto& mode) { return mode.param == CommitLogMode::kOs ? "os" : "sync"; });

TEST_P(LogRewriteTest, KeepsOnlyNeededCommits) {
  EXPECT_GE(h.log->bytes(), 12u + 10);
  h.log->rewrite(h.needed(7));
  EXPECT_EQ(h.log->bytes(), 0u);
  ASSERT_TRUE(h.begins_at(10));
  LogReadResult found = h.on_disk();
  EXPECT_EQ(found.contents, h.needed(7));
  EXPECT_EQ(found.records, 0u);
  h.append(2);
  h.append(1);
  EXPECT_TRUE(h.all_flushed());
  EXPECT_EQ(h.on_disk().contents, h.needed(7));
  EXPECT_TRUE(eventually([&] { return h.log->bytes() == h.disk.log().size() - found.checkpoint_bytes; }));
  EXPECT_FALSE(h.disk.has_new_log());
  expect_found(7);
}

TEST_P(LogRewriteTest, AcceptsCommitsWhileTheCheckpointIsFlushed) {
  h.disk.hold(DiskOperation::kNewFlush);
  const uint64_t flushes = h.disk.entered(DiskOperation::kNewFlush);
  h.log->rewrite(h.needed(3));
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kNewFlush, flushes + 1));
  for (int i = 0; i < 20; ++i) {
    h.append(1);
    ASSERT_TRUE(h.all_flushed());
  }
  EXPECT_EQ(h.on_disk().checkpoint_end, 0u) << "still the old log";
  EXPECT_EQ(h.on_disk().contents.end, 30u);
  h.disk.release(DiskOperation::kNewFlush);
  ASSERT_TRUE(h.begins_at(10));
  EXPECT_EQ(h.on_disk().contents, h.needed(3));
  h.append(1);
  EXPECT_TRUE(h.all_flushed());
  expect_found(3);
}

TEST_P(LogRewriteTest, CheckpointContainsUnwrittenCommits) {
  h.disk.hold(DiskOperation::kWrite);
  const uint64_t writes = h.disk.entered(DiskOperation::kWrite);
  h.append(2);
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kWrite, writes + 1));
  h.append(3);
  h.log->rewrite(h.needed(4));  // behind position 15
  h.append(1);
  h.append(5);
  h.disk.release(DiskOperation::kWrite);
  ASSERT_TRUE(h.begins_at(15));
  EXPECT_TRUE(h.all_flushed());
  EXPECT_EQ(h.on_disk().contents, h.needed(4)) << "each commit is there once, at its position";
  expect_found(4);
}

TEST_P(LogRewriteTest, OsAcceptsAndSyncWaitsDuringReplacement) {
  for (const DiskOperation step : {DiskOperation::kFlush, DiskOperation::kRename, DiskOperation::kFolderFlush}) {
    SCOPED_TRACE(static_cast<int>(step));
    ASSERT_TRUE(h.all_flushed());
    if (step == DiskOperation::kFlush) h.disk.hold(DiskOperation::kNewFlush);  // until the log's own flushes are held
    const uint64_t steps = h.disk.entered(step);
    if (step != DiskOperation::kFlush) h.disk.hold(step);
    h.log->rewrite(h.needed());
    if (step == DiskOperation::kFlush) {
      h.disk.hold(step);
      h.disk.release(DiskOperation::kNewFlush);
    }
    ASSERT_TRUE(h.disk.wait_entered(step, steps + 1));
    const uint64_t before = h.ids.size();
    h.append_batches(20);
    if (GetParam() == CommitLogMode::kOs) {
      ASSERT_TRUE(h.all_accepted());
      EXPECT_EQ(h.on_disk().contents.end, before + 20) << "both logs have all commits";
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

TEST_P(LogRewriteTest, LaterRewriteReplacesOneUnderWay) {
  h.disk.hold(DiskOperation::kNewFlush);
  const uint64_t flushes = h.disk.entered(DiskOperation::kNewFlush);
  h.log->rewrite(h.needed(2));
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kNewFlush, flushes + 1));
  h.append(3);
  ASSERT_TRUE(h.all_flushed());
  h.log->rewrite(h.needed(5));
  h.append(2);
  h.log->rewrite(h.needed(6));
  h.append(4);
  ASSERT_TRUE(h.all_flushed());
  h.disk.release(DiskOperation::kNewFlush);
  ASSERT_TRUE(h.begins_at(15));
  EXPECT_EQ(h.on_disk().contents, h.needed(6));
  expect_found(6);
}

TEST_P(LogRewriteTest, LaterRewriteWaitsForTheReplacement) {
  h.disk.hold(DiskOperation::kRename);
  const uint64_t renames = h.disk.entered(DiskOperation::kRename);
  h.log->rewrite(h.needed(2));
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kRename, renames + 1));
  h.append(3);
  h.log->rewrite(h.needed(5));
  h.append(2);
  h.log->rewrite(h.needed(6));  // takes the place of the one before
  h.append(4);
  EXPECT_EQ(h.on_disk().checkpoint_end, 0u);
  h.disk.release(DiskOperation::kRename);
  ASSERT_TRUE(h.begins_at(15));
  ASSERT_TRUE(h.all_flushed());
  EXPECT_EQ(h.on_disk().contents, h.needed(6));
  EXPECT_EQ(h.disk.entered(DiskOperation::kRename), renames + 2);
  expect_found(6);
}

TEST_P(LogRewriteTest, ContinuesOldLogWithoutRoomForTheNewLog) {
  const CapturedLog lines;
  h.disk.set_outcome(DiskOperation::kNewReserve, {StatusCode::kNoSpace, "no room"});
  const uint64_t tries = h.disk.entered(DiskOperation::kNewReserve);
  h.log->rewrite(h.needed(2));
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kNewReserve, tries + 3));
  h.append_batches(5);
  ASSERT_TRUE(h.all_flushed());
  EXPECT_EQ(CapturedLog::count(LogLevel::kWarning, "the log cannot be rewritten"), 1u);
  h.disk.set_outcome(DiskOperation::kNewReserve, ok_status());
  ASSERT_TRUE(h.begins_at(10));
  expect_found(2);
}

TEST_P(LogRewriteTest, ContinuesOldLogWithoutRoomForCatchUp) {
  h.options.preallocate_bytes = 200;
  ASSERT_TRUE(h.open().ok());
  h.disk.hold(DiskOperation::kNewFlush);
  const uint64_t flushes = h.disk.entered(DiskOperation::kNewFlush);
  h.log->rewrite(h.needed(2));
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kNewFlush, flushes + 1));
  h.append(300);  // more than the room that the new log has
  ASSERT_TRUE(h.all_flushed());
  h.disk.set_outcome(DiskOperation::kNewReserve, {StatusCode::kNoSpace, "no room"});
  const uint64_t tries = h.disk.entered(DiskOperation::kNewReserve);
  const uint64_t renames = h.disk.entered(DiskOperation::kRename);
  h.disk.release(DiskOperation::kNewFlush);
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kNewReserve, tries + 3));
  h.append_batches(5);
  ASSERT_TRUE(h.all_flushed());
  EXPECT_EQ(h.disk.entered(DiskOperation::kRename), renames);
  h.log->rewrite(h.needed(100));
  h.append(1);
  ASSERT_TRUE(h.all_flushed());
  h.disk.set_outcome(DiskOperation::kNewReserve, ok_status());
  ASSERT_TRUE(h.begins_at(315));
  expect_found(100);
}

TEST_P(LogRewriteTest, AcceptsCommitsInBothLogsDuringReplacement) {
  h.options.preallocate_bytes = 200;
  ASSERT_TRUE(h.open().ok());
  h.disk.hold(DiskOperation::kRename);
  const uint64_t renames = h.disk.entered(DiskOperation::kRename);
  h.log->rewrite(h.needed(2));
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kRename, renames + 1));
  h.disk.set_outcome(DiskOperation::kNewReserve, {StatusCode::kNoSpace, "no room"});
  const uint64_t tries = h.disk.entered(DiskOperation::kNewReserve);
  h.append(300);  // more than the room that the new log has
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kNewReserve, tries + 4));
  EXPECT_EQ(h.on_disk().contents.end, 310u) << "the old log has them";
  EXPECT_EQ(h.log->progress().accepted, 10u) << "but a crash may leave the new one";
  h.disk.set_outcome(DiskOperation::kNewReserve, ok_status());
  if (GetParam() == CommitLogMode::kOs) {
    EXPECT_TRUE(h.all_accepted());
  }
  h.disk.release(DiskOperation::kRename);
  EXPECT_TRUE(h.all_flushed());
  expect_found(2);
}

TEST_P(LogRewriteTest, RewriteFreesRoomOnAFullDisk) {
  h.options.preallocate_bytes = 200;
  ASSERT_TRUE(h.open().ok());
  h.disk.set_outcome(DiskOperation::kReserve, {StatusCode::kNoSpace, "no room"});
  const uint64_t tries = h.disk.entered(DiskOperation::kReserve);
  h.append(300);
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kReserve, tries + 4));
  EXPECT_EQ(h.log->progress().accepted, 10u);
  h.append(1);  // not taken by the writer
  h.log->rewrite(h.needed(300));
  h.append(2);
  ASSERT_TRUE(h.begins_at(311));
  h.disk.set_outcome(DiskOperation::kReserve, ok_status());  // the new log is the log
  ASSERT_TRUE(h.all_flushed());
  expect_found(300);
}

TEST_P(LogRewriteTest, AFailureIsFinal) {
  for (const DiskOperation step : {DiskOperation::kCreate, DiskOperation::kNewReserve, DiskOperation::kNewWrite,
                                   DiskOperation::kNewFlush, DiskOperation::kRename, DiskOperation::kFolderFlush}) {
    SCOPED_TRACE(static_cast<int>(step));
    LogHarness run(GetParam());
    ASSERT_TRUE(run.open().ok());
    run.append(5);
    ASSERT_TRUE(run.all_flushed());
    run.disk.set_outcome(step, {StatusCode::kInternal, "the disk is broken"});
    run.log->rewrite(run.needed());
    ASSERT_TRUE(run.has_failed());
    run.append(1);
    EXPECT_EQ(run.log->progress().accepted, 5u);
    run.log.reset();
    EXPECT_EQ(run.failures().size(), 1u);
    EXPECT_EQ(run.on_disk().contents.end, 5u);
  }
}

TEST_P(LogRewriteTest, StopsDuringACheckpoint) {
  h.disk.set_outcome(DiskOperation::kNewReserve, {StatusCode::kNoSpace, "no room"});
  const uint64_t tries = h.disk.entered(DiskOperation::kNewReserve);
  h.log->rewrite(h.needed(2));
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kNewReserve, tries + 1));
  h.append(5);
  h.log.reset();
  EXPECT_EQ(h.on_disk().contents, h.needed());
  h.disk.set_outcome(DiskOperation::kNewReserve, ok_status());
  expect_found(0);
  EXPECT_FALSE(h.disk.has_new_log());
}

TEST_P(LogRewriteTest, FlushesLongCheckpointInPieces) {
  LogHarness run(GetParam());
  ASSERT_TRUE(run.open().ok());
  run.append(1'500'000);
  ASSERT_TRUE(run.all_flushed());
  const uint64_t flushes = run.disk.entered(DiskOperation::kNewFlush);
  run.log->rewrite(run.needed());
  ASSERT_TRUE(run.begins_at(1'500'000));
  EXPECT_GE(run.disk.entered(DiskOperation::kNewFlush), flushes + 3);
  EXPECT_EQ(run.on_disk().contents, run.needed());
}

}  // namespace
}  // namespace loam::commit
