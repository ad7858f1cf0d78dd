#include "deploy/cli/src/cluster/process.h"

#include <csignal>
#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "common/base/env.h"

namespace loam::cli {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

class ProcessTest : public ::testing::Test {
 protected:
  ProcessTest() {
    std::string pattern = ::testing::TempDir() + "loam_process_XXXXXX";
    directory_ = mkdtemp(pattern.data());
  }
  ~ProcessTest() override {
    for (const ProcessId& process : started_) {
      send_signal(process, SIGKILL);
      wait_exited(process, 10 * kSecond);
    }
    std::filesystem::remove_all(directory_);
  }
  ProcessId shell(const std::string& script) {
    auto process = launch({"/bin/sh", {"-c", script}, directory_ / "log"});
    EXPECT_TRUE(process.ok()) << process.status().to_string();
    started_.push_back(*process);
    return *process;
  }
  // Until the script has said so: from there on its traps are set.
  void wait_for_line(const std::string& line) const {
    const uint64_t end_ns = Env::now_ns() + 20 * kSecond;
    for (;;) {
      const auto lines = last_lines(directory_ / "log", 1);
      if (!lines.empty() && lines[0] == line) return;
      ASSERT_LT(Env::now_ns(), end_ns) << "the script never said " << line;
      usleep(1'000);  // poll interval
    }
  }

  std::filesystem::path directory_;
  std::vector<ProcessId> started_;
};

TEST_F(ProcessTest, RunsUntilSigterm) {
  const ProcessId process = shell("exec sleep 600");
  EXPECT_EQ(process_state(process), ProcessState::kRunning);
  EXPECT_LT(uptime_ns(process), 600 * kSecond);
  EXPECT_EQ(stop_process(process, 20 * kSecond), StopOutcome::kTerminated);
  EXPECT_EQ(process_state(process), ProcessState::kExited);
  EXPECT_EQ(stop_process(process, 20 * kSecond), StopOutcome::kNotRunning);
  EXPECT_FALSE(send_signal(process, SIGTERM));
}

TEST_F(ProcessTest, KillsProcessThatIgnoresSigterm) {
  const ProcessId process = shell("trap '' TERM; echo ready; while :; do sleep 0.05; done");
  wait_for_line("ready");
  EXPECT_EQ(stop_process(process, kSecond / 5), StopOutcome::kKilled);
  EXPECT_EQ(process_state(process), ProcessState::kExited);
}

TEST_F(ProcessTest, TerminatesPausedProcess) {
  const ProcessId process = shell("exec sleep 600");
  EXPECT_TRUE(send_signal(process, SIGSTOP));
  const uint64_t end_ns = Env::now_ns() + 20 * kSecond;
  while (process_state(process) != ProcessState::kPaused) {
    ASSERT_LT(Env::now_ns(), end_ns);
    usleep(1'000);  // poll interval
  }
  EXPECT_EQ(stop_process(process, 20 * kSecond), StopOutcome::kTerminated);
}

TEST_F(ProcessTest, HasOwnSessionAndInheritsNoFile) {
  const int inherited = dup(STDOUT_FILENO);
  const ProcessId process = shell("ls /proc/self/fd | wc -l; exec sleep 600");
  // 0, 1, 2, and the folder that ls reads.
  wait_for_line("4");
  EXPECT_EQ(getsid(process.pid), process.pid);
  close(inherited);
}

TEST_F(ProcessTest, ReusedPidCountsAsExited) {
  ProcessId other{getpid(), 1};  // this very process, but not of that start
  EXPECT_EQ(process_state(other), ProcessState::kExited);
  EXPECT_FALSE(send_signal(other, SIGKILL));
}

TEST_F(ProcessTest, PidFiles) {
  const ProcessId process{123, 456};
  ASSERT_TRUE(write_pid_file(directory_ / "a.pid", process).ok());
  EXPECT_EQ(read_pid_file(directory_ / "a.pid"), process);
  EXPECT_FALSE(read_pid_file(directory_ / "b.pid"));
  std::ofstream(directory_ / "c.pid") << "no pid\n";
  EXPECT_FALSE(read_pid_file(directory_ / "c.pid"));
  EXPECT_FALSE(write_pid_file(directory_ / "nowhere" / "a.pid", process).ok());
}

TEST_F(ProcessTest, ReportsMissingProgramAsNotFound) {
  const auto process = launch({directory_ / "nothing", {}, directory_ / "log"});
  ASSERT_FALSE(process.ok());
  EXPECT_EQ(process.code(), StatusCode::kNotFound);
}

TEST_F(ProcessTest, LastLines) {
  std::ofstream(directory_ / "log") << "one\ntwo\nthree\n";
  EXPECT_EQ(last_lines(directory_ / "log", 2), (std::vector<std::string>{"two", "three"}));
  EXPECT_EQ(last_lines(directory_ / "log", 9, 4), (std::vector<std::string>{"two", "three"}));
  EXPECT_TRUE(last_lines(directory_ / "none", 9).empty());
}

}  // namespace
}  // namespace loam::cli
