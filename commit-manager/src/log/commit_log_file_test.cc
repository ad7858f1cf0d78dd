#include "commit-manager/src/log/commit_log_file.h"

#include <string>

#include <gtest/gtest.h>

#include "commit-manager/testing/log_harness.h"

namespace loam::commit {
namespace {

using testing::eventually;

struct CommitLogFileTest : ::testing::TestWithParam<CommitLogMode> {
  void open() { ASSERT_TRUE(h.open().ok()); }

  LogHarness h{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Modes, CommitLogFileTest, ::testing::Values(CommitLogMode::kOs, CommitLogMode::kSync),
                         [](const auto& mode) { return mode.param == CommitLogMode::kOs ? "os" : "sync"; });

TEST_P(CommitLogFileTest, KeepsWhatWasAppended) {
  open();
  EXPECT_TRUE(h.log->created());
  EXPECT_EQ(h.log->initial_contents(), CommitLogContents());
  EXPECT_EQ(h.log->bytes(), 0u);
  for (int run = 0; run < 3; ++run) {
    h.append(1);
    h.append(0);
    h.append(3);
    EXPECT_TRUE(h.all_accepted());
    EXPECT_TRUE(h.all_flushed());
    EXPECT_GE(h.log->bytes(), 12u + 4u);
    open();
    EXPECT_FALSE(h.log->created());
    EXPECT_EQ(h.log->initial_contents(), h.needed());
    EXPECT_EQ(h.log->bytes(), 0u) << "the checkpoint contains everything";
    const CommitLogProgress progress = h.log->progress();
    EXPECT_EQ(progress.accepted, h.ids.size());
    EXPECT_EQ(progress.flushed, h.ids.size());
  }
}

TEST_P(CommitLogFileTest, WritesNothingBeforeItIsStarted) {
  ASSERT_TRUE(h.open(false).ok());
  h.append(2);
  EXPECT_EQ(h.disk.entered(DiskOperation::kWrite), 0u);
  EXPECT_EQ(h.log->progress().accepted, 0u);
  h.start();
  EXPECT_TRUE(h.all_flushed());
  ASSERT_TRUE(h.open(false).ok());
  EXPECT_EQ(h.log->initial_contents(), h.needed());
}

TEST_P(CommitLogFileTest, WritesQueuedCommitsInOneBatch) {
  open();
  h.disk.hold(DiskOperation::kWrite);
  h.append(1);
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kWrite, 1));
  h.append_batches(100);
  EXPECT_EQ(h.log->progress().accepted, 0u);
  h.disk.release(DiskOperation::kWrite);
  EXPECT_TRUE(h.all_flushed());
  EXPECT_EQ(h.disk.entered(DiskOperation::kWrite), 2u);
  EXPECT_EQ(h.on_disk().records, 2u);
}

TEST_P(CommitLogFileTest, CallsOnProgressOnceUntilProgressIsRead) {
  open();
  h.append_batches(10);
  // The test does not ask for the progress.
  EXPECT_TRUE(
      eventually([&] { return h.disk.flushed_bytes() == h.disk.log().size() && h.on_disk().contents.end == 10; }));
  EXPECT_TRUE(eventually([&] { return h.progress_calls() == 1; }));
  h.append_batches(10);
  EXPECT_TRUE(eventually([&] { return h.on_disk().contents.end == 20; }));
  EXPECT_EQ(h.progress_calls(), 1u);
  EXPECT_TRUE(h.all_flushed());
  h.append(1);
  EXPECT_TRUE(eventually([&] { return h.progress_calls() >= 2; }));
}

TEST_P(CommitLogFileTest, StopFlushesAllCommits) {
  open();
  h.options.flush_after_ns = uint64_t{1} << 60;
  open();
  h.append_batches(100);
  h.log.reset();
  EXPECT_EQ(h.disk.flushed_bytes(), h.disk.log().size());
  EXPECT_EQ(h.on_disk().contents, h.needed());
}

TEST_P(CommitLogFileTest, RemovesTornTailBeforeUse) {
  open();
  h.append_batches(5);
  h.log.reset();
  Buffer torn = h.disk.log();
  for (int i = 0; i < 7; ++i) torn.push_back(std::byte{0x55});
  h.disk.set_log(torn);
  const CapturedLog lines;
  ASSERT_TRUE(h.open(false).ok());
  EXPECT_EQ(h.on_disk().contents, h.needed());
  EXPECT_EQ(h.disk.flushed_bytes(), h.disk.log().size());
  EXPECT_EQ(h.log->initial_contents(), h.needed());
  EXPECT_EQ(CapturedLog::count(LogLevel::kWarning, "memory/commit-log: left out 7 bytes behind commit 5"), 1u);
  h.start();
  h.append(1);
  EXPECT_TRUE(h.all_flushed());
  open();
  EXPECT_EQ(h.log->initial_contents(), h.needed());
}

TEST_P(CommitLogFileTest, RefusesDamagedCheckpointAndKeepsTheFile) {
  open();
  h.log.reset();
  Buffer damaged = h.disk.log();
  damaged.back() ^= std::byte{1};
  h.disk.set_log(damaged);
  const Status status = h.open();
  EXPECT_EQ(status.code(), StatusCode::kMalformed);
  EXPECT_NE(status.message().find("memory/commit-log: "), std::string_view::npos) << status.to_string();
  EXPECT_EQ(h.disk.log(), damaged);
  h.disk.set_log({});
  EXPECT_EQ(h.open().code(), StatusCode::kMalformed) << "an empty file is no new log";
}

TEST_P(CommitLogFileTest, FailsToOpenIfTheDiskFails) {
  for (const DiskOperation step : {DiskOperation::kCreate, DiskOperation::kNewWrite, DiskOperation::kNewFlush,
                                   DiskOperation::kRename, DiskOperation::kFolderFlush}) {
    h.disk.set_outcome(step, {StatusCode::kInternal, "broken"});
    EXPECT_EQ(h.open().code(), StatusCode::kInternal);
    if (step < DiskOperation::kRename) {
      EXPECT_EQ(h.disk.log(), Buffer());
    }
    h.disk.set_outcome(step, ok_status());
  }
}

TEST_P(CommitLogFileTest, ContinuesInANewFlushedFile) {
  open();
  h.append_batches(5);
  h.log.reset();
  // After a failed flush the operating system still shows bytes that the disk does not have.
  h.disk.forget_flushes();
  ASSERT_TRUE(h.open(false).ok());
  EXPECT_EQ(h.log->initial_contents(), h.needed());
  testing::Random random(1);
  for (int i = 0; i < 100; ++i) {
    const auto left = read_log(h.disk.log_after_power_cut(random));
    ASSERT_TRUE(left.ok()) << left.status().to_string();
    EXPECT_EQ(left->contents, h.needed());
  }
}

TEST_P(CommitLogFileTest, WaitsForRoomOnAFullDisk) {
  const CapturedLog lines;
  h.options.preallocate_bytes = 1'000;
  open();
  h.append(1);
  EXPECT_TRUE(h.all_accepted());
  for (int episode = 0; episode < 2; ++episode) {
    CapturedLog::clear();
    h.disk.set_room(0, true);
    uint64_t accepted = h.ids.size();
    // The log uses its allocated space up to the last record.
    while (h.disk.log().size() + 13 <= accepted + 10'000) {
      h.append(1);
      const uint64_t asked = h.disk.entered(DiskOperation::kReserve);
      ASSERT_TRUE(eventually([&] {
        accepted = h.log->progress().accepted;
        return accepted == h.ids.size() || h.disk.entered(DiskOperation::kReserve) >= asked + 6;
      }));
      if (accepted < h.ids.size()) break;
    }
    ASSERT_LT(accepted, h.ids.size());
    h.append_batches(50);
    const uint64_t asked = h.disk.entered(DiskOperation::kReserve);
    ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kReserve, asked + 6));
    EXPECT_EQ(h.log->progress().accepted, accepted);
    EXPECT_EQ(h.on_disk().contents.end, accepted);
    EXPECT_EQ(CapturedLog::count(LogLevel::kWarning, "the disk is full"), 1u);
    EXPECT_EQ(CapturedLog::count(LogLevel::kInfo, "the disk has room again"), 0u);
    h.disk.set_room(UINT64_MAX, true);
    EXPECT_TRUE(h.all_flushed());
    EXPECT_EQ(CapturedLog::count(LogLevel::kInfo, "the disk has room again"), 1u);
    EXPECT_EQ(CapturedLog::count(LogLevel::kWarning, "the disk is full"), 1u);
  }
  EXPECT_TRUE(h.failures().empty());
  open();
  EXPECT_EQ(h.log->initial_contents(), h.needed());
}

TEST_P(CommitLogFileTest, NoticesAFullDiskAheadOfUse) {
  const CapturedLog lines;
  h.options.preallocate_bytes = 10'000;
  open();
  h.append(1);
  EXPECT_TRUE(h.all_accepted());
  h.disk.set_room(0, true);
  while (CapturedLog::count(LogLevel::kWarning, "the disk is full") == 0) {
    h.append(1);
    ASSERT_TRUE(h.all_accepted()) << "there is room that was taken before";
    ASSERT_LT(h.ids.size(), 10'000u);
  }
  EXPECT_LT(h.disk.log().size(), 6'000u);
}

TEST_P(CommitLogFileTest, ContinuesRecordThatAFullDiskInterrupted) {
  h.disk.set_room(UINT64_MAX, false);
  open();
  h.append(1);
  EXPECT_TRUE(h.all_accepted());
  h.disk.set_room(h.disk.log().size() + 5, false);
  h.append(4);
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kWrite, 6));
  EXPECT_EQ(h.log->progress().accepted, 1u);
  EXPECT_EQ(h.on_disk().tail, LogTail::kTorn);
  h.disk.set_room(UINT64_MAX, false);
  EXPECT_TRUE(h.all_flushed());
  EXPECT_EQ(h.on_disk().contents, h.needed());
  EXPECT_TRUE(h.failures().empty());
}

TEST_P(CommitLogFileTest, StopsOnAFullDisk) {
  h.disk.set_room(UINT64_MAX, false);
  open();
  h.append(1);
  EXPECT_TRUE(h.all_accepted());
  h.disk.set_room(h.disk.log().size(), false);
  h.append(4);
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kWrite, 4));
  h.log.reset();
  EXPECT_EQ(h.on_disk().contents.end, 1u);
}

TEST_P(CommitLogFileTest, ReportsFailureOnceAndAcceptsNothingAfterwards) {
  for (const DiskOperation step : {DiskOperation::kWrite, DiskOperation::kFlush, DiskOperation::kReserve}) {
    SCOPED_TRACE(static_cast<int>(step));
    LogHarness run(GetParam());
    ASSERT_TRUE(run.open().ok());
    run.disk.set_outcome(step, {StatusCode::kInternal, "the disk is broken"});
    run.append(1);
    ASSERT_TRUE(run.has_failed());
    const uint64_t accepted = run.log->progress().accepted;
    EXPECT_EQ(accepted, GetParam() == CommitLogMode::kOs && step == DiskOperation::kFlush ? 1u : 0u);
    EXPECT_EQ(run.log->progress().flushed, 0u);
    run.disk.set_outcome(step, ok_status());
    run.append_batches(3);
    run.log->rewrite(run.needed());
    EXPECT_EQ(run.log->progress().accepted, accepted);
    run.log.reset();
    ASSERT_EQ(run.failures().size(), 1u);
    EXPECT_EQ(run.failures()[0].message(), "the disk is broken");
    EXPECT_LE(run.on_disk().contents.end, 1u);
  }
}

TEST(CommitLogFileModes, OsAcceptsWhileAFlushHangs) {
  LogHarness h(CommitLogMode::kOs);
  ASSERT_TRUE(h.open().ok());
  h.disk.hold(DiskOperation::kFlush);
  const uint64_t flushes = h.disk.entered(DiskOperation::kFlush);
  h.append(1);
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kFlush, flushes + 1));
  for (int i = 0; i < 20; ++i) {
    h.append(1);
    ASSERT_TRUE(h.all_accepted());
  }
  EXPECT_EQ(h.log->progress().flushed, 0u);
  EXPECT_EQ(h.disk.entered(DiskOperation::kFlush), flushes + 1);
  h.disk.release(DiskOperation::kFlush);
  EXPECT_TRUE(h.all_flushed());
}

TEST(CommitLogFileModes, SyncAcceptsWhatIsOnTheDiskAndSharesFlushes) {
  LogHarness h(CommitLogMode::kSync);
  ASSERT_TRUE(h.open().ok());
  h.disk.hold(DiskOperation::kFlush);
  const uint64_t flushes = h.disk.entered(DiskOperation::kFlush);
  h.append(1);
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kFlush, flushes + 1));
  h.append_batches(20);
  ASSERT_TRUE(eventually([&] { return h.on_disk().contents.end == 21; }));
  EXPECT_EQ(h.log->progress().accepted, 0u) << "the commit is written and not flushed";
  h.disk.let_one_pass(DiskOperation::kFlush);
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kFlush, flushes + 2));
  EXPECT_EQ(h.log->progress().accepted, 1u) << "a flush covers the records that were written before it began";
  EXPECT_EQ(h.log->progress().flushed, 1u);
  h.disk.release(DiskOperation::kFlush);
  EXPECT_TRUE(h.all_accepted());
  EXPECT_EQ(h.disk.entered(DiskOperation::kFlush), flushes + 2);
}

TEST(CommitLogFileModes, OsReportsFlushedWhatWasWrittenBeforeTheFlush) {
  LogHarness h(CommitLogMode::kOs);
  ASSERT_TRUE(h.open().ok());
  h.disk.hold(DiskOperation::kFlush);
  const uint64_t flushes = h.disk.entered(DiskOperation::kFlush);
  h.append(1);
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kFlush, flushes + 1));
  h.append_batches(20);
  ASSERT_TRUE(h.all_accepted());
  h.disk.let_one_pass(DiskOperation::kFlush);
  ASSERT_TRUE(h.disk.wait_entered(DiskOperation::kFlush, flushes + 2));
  EXPECT_EQ(h.log->progress().flushed, 1u);
  h.disk.release(DiskOperation::kFlush);
  EXPECT_TRUE(h.all_flushed());
}

TEST(CommitLogFileModes, OsWaitsBeforeItFlushes) {
  LogHarness h(CommitLogMode::kOs);
  h.options.flush_after_ns = uint64_t{1} << 60;
  ASSERT_TRUE(h.open().ok());
  const uint64_t flushes = h.disk.entered(DiskOperation::kFlush);
  for (int i = 0; i < 20; ++i) {
    h.append(1);
    ASSERT_TRUE(h.all_accepted());
  }
  EXPECT_EQ(h.disk.entered(DiskOperation::kFlush), flushes);
  h.log.reset();
  EXPECT_EQ(h.disk.entered(DiskOperation::kFlush), flushes + 1);
}

}  // namespace
}  // namespace loam::commit
