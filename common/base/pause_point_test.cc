#include "common/base/pause_point.h"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/env.h"

namespace loam {
namespace {

TEST(PausePoints, CallTheHookAtEachPassWhileItLives) {
  int calls = 0;
  {
    const auto hook = PausePoints::on("base.test.here", [&] { ++calls; });
    Env::pause_point("base.test.here");
    Env::pause_point("base.test.there");
    Env::pause_point("base.test.here");
    EXPECT_EQ(calls, 2);
  }
  Env::pause_point("base.test.here");
  EXPECT_EQ(calls, 2);
}

TEST(PausePoints, MoveAssignmentDisarmsTheOldHook) {
  int first = 0, second = 0;
  auto hook = PausePoints::on("base.test.first", [&] { ++first; });
  hook = PausePoints::on("base.test.second", [&] { ++second; });
  Env::pause_point("base.test.first");
  Env::pause_point("base.test.second");
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1);
}

TEST(PausePoints, HookDestructorWaitsForTheRunningCall) {
  std::atomic<bool> inside{false}, release{false}, ended{false};
  auto hook = PausePoints::on("base.test.held", [&] {
    inside.store(true, std::memory_order_release);  // with the acquire below
    while (!release.load(std::memory_order_acquire)) std::this_thread::yield();
    ended.store(true, std::memory_order_release);  // with the acquire at the end
  });
  std::thread passing([] { Env::pause_point("base.test.held"); });
  while (!inside.load(std::memory_order_acquire)) std::this_thread::yield();
  std::thread releasing([&] { release.store(true, std::memory_order_release); });
  hook = {};
  EXPECT_TRUE(ended.load(std::memory_order_acquire));
  passing.join();
  releasing.join();
}

TEST(PausePoints, MalformedListArmsNothing) {
  for (const char* list : {"a", "=stop", "a=", "a=halt", "a=block:", "a=block", "a@=stop", "a@0=stop", "a@x=kill",
                           "a@2x=kill", "base.test.fine=kill;a=halt", "a=stop;;b=stop"}) {
    const Status status = PausePoints::arm(list);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << list;
    EXPECT_NE(status.message().find("pause point '"), std::string::npos) << status.to_string();
  }
  Env::pause_point("base.test.fine");  // would kill this process
  EXPECT_TRUE(PausePoints::arm("").ok());
}

TEST(PausePoints, DisarmRemovesTheArmedEntries) {
  ASSERT_TRUE(PausePoints::arm("base.test.forgotten=kill").ok());
  PausePoints::disarm();
  Env::pause_point("base.test.forgotten");
}

/// A child process that arms `list` and passes "base.test.child" three times. After each pass it writes the number of
/// the pass to a pipe.
struct Child {
  explicit Child(const std::string& list) {
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    pid = fork();
    if (pid == 0) {
      close(ends[0]);
      if (!PausePoints::arm(list).ok()) _exit(3);
      for (const char pass : {'1', '2', '3'}) {
        Env::pause_point("base.test.child");
        if (write(ends[1], &pass, 1) != 1) _exit(4);
      }
      _exit(0);
    }
    close(ends[1]);
    out = ends[0];
  }
  ~Child() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    close(out);
  }
  int wait_for_change() {
    int status = 0;
    waitpid(pid, &status, WUNTRACED);
    return status;
  }
  /// The numbers that the child has written. Blocks until the child has ended.
  std::string output() {
    std::string all;
    char c = 0;
    while (read(out, &c, 1) == 1) all.push_back(c);
    return all;
  }

  pid_t pid = 0;
  int out = 0;
};

TEST(PausePoints, KillEndsTheProcessAtTheNumberedPass) {
  Child child("base.test.child@3=kill");
  const int status = child.wait_for_change();
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_EQ(child.output(), "12");
}

TEST(PausePoints, StopHoldsTheProcessUntilItIsContinued) {
  Child child("base.test.other=kill;base.test.child@2=stop");
  int status = child.wait_for_change();
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_EQ(WSTOPSIG(status), SIGSTOP);
  kill(child.pid, SIGCONT);
  status = child.wait_for_change();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(child.output(), "123");
}

TEST(PausePoints, BlockHoldsOneThreadUntilTheFileIsThere) {
  const auto path = std::filesystem::temp_directory_path() / ("loam_pause_" + std::to_string(getpid()));
  std::filesystem::remove(path);
  ASSERT_TRUE(PausePoints::arm("base.test.blocked=block:" + path.string()).ok());
  std::atomic<bool> reached{false}, through{false};
  const auto hook = PausePoints::on("base.test.around", [&] { reached.store(true, std::memory_order_release); });
  std::thread blocked([&] {
    Env::pause_point("base.test.around");
    Env::pause_point("base.test.blocked");
    through.store(true, std::memory_order_release);  // with the acquires below
  });
  while (!reached.load(std::memory_order_acquire)) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) {  // the block holds the other thread only
    Env::pause_point("base.test.elsewhere");
    EXPECT_FALSE(through.load(std::memory_order_acquire));
  }
  std::ofstream(path).put('\n');
  blocked.join();
  EXPECT_TRUE(through.load(std::memory_order_acquire));

  Env::pause_point("base.test.blocked");  // the file is still there
  std::filesystem::remove(path);
  reached.store(false, std::memory_order_relaxed);  // relaxed: the thread starts later
  std::thread again([&] {
    Env::pause_point("base.test.around");
    Env::pause_point("base.test.blocked");
  });
  while (!reached.load(std::memory_order_acquire)) std::this_thread::yield();
  std::ofstream(path).put('\n');
  again.join();
  std::filesystem::remove(path);
  PausePoints::disarm();
}

}  // namespace
}  // namespace loam
