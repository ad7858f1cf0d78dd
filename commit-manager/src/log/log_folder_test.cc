#include "commit-manager/src/log/log_folder.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commit-manager/src/log/commit_log_file.h"
#include "commit-manager/testing/log_harness.h"
#include "common/base/pause_point.h"
#include "common/testing/eventually.h"

namespace loam::commit {
namespace {

namespace fs = std::filesystem;

struct LogFolderTest : ::testing::Test {
  LogFolderTest() {
    std::string name = (fs::temp_directory_path() / "loam_log_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    folder = name;
    path = folder / "commit-log";
    options.folder = name;
  }
  ~LogFolderTest() override { fs::remove_all(folder); }

  std::unique_ptr<CommitLogFile> open() {
    auto log = CommitLogFile::open(options);
    EXPECT_TRUE(log.ok()) << log.status().to_string();
    return log.ok() ? std::move(log).value() : nullptr;
  }
  std::unique_ptr<CommitLogFile> started() {
    auto log = open();
    log->start([] {}, [](const Status& status) { ADD_FAILURE() << status.to_string(); });
    return log;
  }
  static CommitLogContents first_commits(uint64_t count) {
    CommitLogContents contents{.committed = {}, .truncated_up_to = {}, .end = count};
    if (count > 0) contents.committed = {{TransactionId(1), TransactionId(count)}};
    return contents;
  }

  fs::path folder;
  fs::path path;
  CommitLogOptions options;
};

TEST_F(LogFolderTest, KeepsALogInAFile) {
  for (uint64_t count = 0; count < 3; ++count) {
    const auto log = started();
    EXPECT_EQ(log->created(), count == 0);
    EXPECT_EQ(log->initial_contents(), first_commits(count));
    log->append(std::vector{TransactionId(count + 1)});
  }
  EXPECT_LT(fs::file_size(path), options.preallocate_bytes) << "the allocation does not change the length";
  EXPECT_EQ(open()->initial_contents(), first_commits(3));
  EXPECT_FALSE(fs::exists(folder / "commit-log.new"));
}

TEST_F(LogFolderTest, BeginsAnew) {
  {
    const auto log = started();
    uint64_t count = 0;
    for (int round = 0; round < 5; ++round) {
      for (int i = 0; i < 50; ++i) log->append(std::vector{TransactionId(++count)});
      log->rewrite(first_commits(count));
      log->append(std::vector{TransactionId(++count)});
      ASSERT_TRUE(testing::eventually([&] { return log->progress().flushed == count; }));
    }
    ASSERT_TRUE(testing::eventually([&] { return fs::file_size(path) < 100; }));
  }
  EXPECT_EQ(open()->initial_contents(), first_commits(255));
  EXPECT_FALSE(fs::exists(folder / "commit-log.new"));
}

TEST_F(LogFolderTest, LeavesATornTailOut) {
  started()->append(std::vector{TransactionId(1)});
  std::ofstream(path, std::ios::app) << "torn";
  fs::copy(path, folder / "commit-log.new");
  EXPECT_EQ(open()->initial_contents(), first_commits(1));
  EXPECT_FALSE(fs::exists(folder / "commit-log.new")) << "left by a crash";
  const CapturedLog lines;
  EXPECT_EQ(open()->initial_contents(), first_commits(1));
  EXPECT_EQ(CapturedLog::count(LogLevel::kWarning, "left out"), 0u) << "the first open() has removed the tail";
}

TEST_F(LogFolderTest, TakesRoomAhead) {
  options.preallocate_bytes = 1u << 20;
  const auto log = started();
  log->append(std::vector{TransactionId(1)});
  ASSERT_TRUE(testing::eventually([&] { return log->progress().accepted == 1; }));
  struct stat found{};
  ASSERT_EQ(::stat(path.c_str(), &found), 0);
  EXPECT_LT(found.st_size, 100);
  if (found.st_blocks * 512 < (1 << 20)) GTEST_SKIP() << "this file system cannot allocate ahead";
}

TEST_F(LogFolderTest, NamesTheFaultOfTheDisk) {
  const fs::path elsewhere = folder / "missing";
  EXPECT_EQ(LogFolder::open(elsewhere.string()).code(), StatusCode::kInvalidArgument);
  fs::create_directory(path);
  const Status status = CommitLogFile::open(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("it is not a regular file"), std::string_view::npos) << status.to_string();
}

TEST_F(LogFolderTest, AFullDiskIsNamed) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  auto opened = LogFolder::open(folder.string());
  ASSERT_TRUE(opened.ok());
  // The link leads to a device that is always full.
  fs::create_symlink("/dev/full", folder / "commit-log.new");
  auto file = (*opened)->create();
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  Bytes rest = as_bytes("x");
  const Status status = (*file)->write(rest);
  EXPECT_EQ(status.code(), StatusCode::kNoSpace) << status.to_string();
  EXPECT_EQ(rest.size(), 1u);
}

// A process that is killed at any step leaves every commit that it has reported.
TEST_F(LogFolderTest, SurvivesAKillAtEveryStep) {
#ifndef LOAM_ASSERTIONS
  GTEST_SKIP() << "pause points need a build with LOAM_ASSERTIONS";
#endif
  for (const CommitLogMode mode : {CommitLogMode::kOs, CommitLogMode::kSync}) {
    for (const char* const point : {"manager.log.appended", "manager.log.written", "manager.log.flushed",
                                    "manager.log.beside", "manager.log.renamed"}) {
      SCOPED_TRACE(point);
      fs::remove(path);
      options.mode = mode;
      int pipe[2];
      ASSERT_EQ(::pipe(pipe), 0);
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        auto log = CommitLogFile::open(options);
        if (!log.ok()) _exit(1);
        uint64_t passes = 0;  // the point is passed by one thread at a time
        const PausePoints::Hook hook = PausePoints::on(point, [&] {
          if (++passes == 3) raise(SIGKILL);
        });
        (*log)->start([] {}, [](const Status&) { _exit(2); });
        for (uint64_t count = 1;; ++count) {
          (*log)->append(std::vector{TransactionId(count)});
          if (count % 7 == 0) (*log)->rewrite(first_commits(count));
          while ((*log)->progress().accepted < count) {
          }
          if (::write(pipe[1], &count, sizeof(count)) != sizeof(count)) _exit(3);
        }
      }
      ::close(pipe[1]);
      uint64_t reported = 0;
      for (uint64_t count = 0; ::read(pipe[0], &count, sizeof(count)) == sizeof(count);) reported = count;
      ::close(pipe[0]);
      int status = 0;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the step was reached";
      const CommitLogContents found = open()->initial_contents();
      EXPECT_GE(found.end, reported);
      EXPECT_EQ(found, first_commits(found.end));
      EXPECT_FALSE(fs::exists(folder / "commit-log.new"));
    }
  }
}

}  // namespace
}  // namespace loam::commit
