#include "commit-manager/src/store/state_file.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/pause_point.h"

namespace loam::commit {
namespace {

namespace fs = std::filesystem;

struct StateFileTest : ::testing::Test {
  StateFileTest() {
    std::string name = (fs::temp_directory_path() / "loam_store_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    root = name;
    folder = root / "data";
  }
  ~StateFileTest() override { fs::remove_all(root); }

  std::unique_ptr<StateFile> open() {
    auto file = StateFile::open(folder.string());
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return file.ok() ? std::move(file).value() : nullptr;
  }
  Status open_status() { return StateFile::open(folder.string()).status(); }
  std::string stored_state() { return std::string(as_text(open()->stored_state())); }

  fs::path root;
  fs::path folder;
};

TEST_F(StateFileTest, KeepsTheLastStoredState) {
  {
    const auto file = open();
    EXPECT_TRUE(file->stored_state().empty());
    ASSERT_TRUE(file->store(as_bytes("first")).ok());
    ASSERT_TRUE(file->store(as_bytes("second, which is longer")).ok());
    ASSERT_TRUE(file->store(as_bytes("third")).ok());
  }
  EXPECT_EQ(stored_state(), "third");
  EXPECT_EQ(stored_state(), "third") << "reading changes nothing";
  const std::string big(3u << 20, 'x');
  ASSERT_TRUE(open()->store(as_bytes(big)).ok());
  EXPECT_EQ(stored_state(), big);
  EXPECT_FALSE(fs::exists(folder / "state.new"));
}

TEST_F(StateFileTest, LocksTheFolder) {
  const auto file = open();
  const Status second = open_status();
  EXPECT_EQ(second.code(), StatusCode::kUnavailable);
  EXPECT_NE(second.message().find("process " + std::to_string(getpid())), std::string_view::npos) << second.to_string();
  EXPECT_NE(second.message().find(folder.string()), std::string_view::npos);
}

// A process that dies at any step leaves the old state or the new one, in a folder that can be opened.
TEST_F(StateFileTest, SurvivesAKillAtEveryStep) {
#ifndef LOAM_ASSERTIONS
  GTEST_SKIP() << "pause points need a build with LOAM_ASSERTIONS";
#endif
  struct Step {
    const char* point;
    const char* left;
  };
  for (const Step step : {Step{"manager.durable.before", "old"}, Step{"manager.durable.beside", "old"},
                          Step{"manager.durable.written", "old"}, Step{"manager.durable.renamed", "new"},
                          Step{"manager.durable.after", "new"}}) {
    SCOPED_TRACE(step.point);
    ASSERT_TRUE(open()->store(as_bytes("old")).ok());
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto file = StateFile::open(folder.string());
      const PausePoints::Hook hook = PausePoints::on(step.point, [] { raise(SIGKILL); });
      if (file.ok()) (void)(*file)->store(as_bytes("new"));
      _exit(1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the step was reached";
    EXPECT_EQ(stored_state(), step.left);
    EXPECT_FALSE(fs::exists(folder / "state.new"));
  }
}

TEST_F(StateFileTest, CrashDuringTheFirstStoreLeavesANewCluster) {
  fs::create_directory(folder);
  std::ofstream(folder / "state.new") << "half";
  EXPECT_EQ(stored_state(), "");
  EXPECT_FALSE(fs::exists(folder / "state.new"));
}

// Core::check_state() checks the content of the file. An empty file must not pass as a new cluster.
TEST_F(StateFileTest, RefusesAnEmptyState) {
  ASSERT_TRUE(open()->store(as_bytes("x")).ok());
  fs::resize_file(folder / "state", 0);
  EXPECT_EQ(open_status().code(), StatusCode::kInternal);
  EXPECT_NE(open_status().message().find("is empty"), std::string_view::npos);
}

TEST_F(StateFileTest, FailureOfTheDiskIsFinal) {
  const auto file = open();
  ASSERT_TRUE(file->store(as_bytes("old")).ok());
  // A limit on file size makes a write fail as a full disk does, with another error number.
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{8, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status failed = file->store(as_bytes("a state that does not fit"));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  (void)std::signal(SIGXFSZ, old_handler);
  EXPECT_FALSE(failed.ok());
  EXPECT_NE(failed.message().find("state.new cannot be written"), std::string_view::npos) << failed.to_string();
  EXPECT_FALSE(file->store(as_bytes("small")).ok()) << "the content of the disk is unknown, so every later store fails";
}

TEST_F(StateFileTest, AFullDiskIsNamed) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  const auto file = open();
  // The link leads to a device that is always full.
  fs::create_symlink("/dev/full", folder / "state.new");
  const Status failed = file->store(as_bytes("x"));
  EXPECT_EQ(failed.code(), StatusCode::kNoSpace) << failed.to_string();
  EXPECT_NE(failed.message().find("make room"), std::string_view::npos);
}

TEST_F(StateFileTest, NamesTheFaultOfTheFolder) {
  folder = root / "missing" / "data";
  EXPECT_EQ(open_status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(open_status().message().find("cannot be made"), std::string_view::npos) << open_status().to_string();
  std::ofstream(root / "file") << "x";
  folder = root / "file";
  EXPECT_EQ(open_status().code(), StatusCode::kInvalidArgument);
  folder = "/proc/self";
  EXPECT_EQ(open_status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(open_status().message().find("cannot be written"), std::string_view::npos) << open_status().to_string();
}

TEST_F(StateFileTest, RefusesOversizedState) {
  EXPECT_FALSE(open()->store(Bytes()).ok());
  const auto file = open();
  const std::string huge(kMaxStateBytes + 1, 'x');
  EXPECT_FALSE(file->store(as_bytes(huge)).ok());
  ASSERT_TRUE(fs::exists(folder));
  std::ofstream(folder / "state").close();
  fs::resize_file(folder / "state", kMaxStateBytes + 1'000);
  folder = root / "other";
  fs::create_directory(folder);
  fs::rename(root / "data" / "state", folder / "state");
  EXPECT_NE(open_status().message().find("too large"), std::string_view::npos);
}

}  // namespace
}  // namespace loam::commit
