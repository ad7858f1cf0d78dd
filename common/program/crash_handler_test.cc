#include "common/program/crash_handler.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "common/base/assert.h"
#include "common/base/log.h"
#include "common/base/sanitizer.h"
#include "common/base/thread.h"
#include "common/program/log_output.h"

namespace loam::program {
namespace {

using nlohmann::json;

/// Lets a child process crash, and reads its log.
class CrashHandlerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers report crashes themselves";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    path_ = (std::filesystem::temp_directory_path() / ("loam_crash_" + std::to_string(::getppid()))).string();
    // The child of the death test runs this function again, and must find the name of its parent's file.
    if (const char* const given = std::getenv("LOAM_CRASH_TEST_LOG"); given != nullptr) {
      path_ = given;
    } else {
      ::setenv("LOAM_CRASH_TEST_LOG", path_.c_str(), 1);
    }
    std::filesystem::remove(path_);
  }
  void TearDown() override {
    ::unsetenv("LOAM_CRASH_TEST_LOG");
    std::filesystem::remove(path_);
  }

  // For the child: handles crashes, and logs to the file.
  void begin(LogFormat format) const {
    constexpr rlimit kNoCore{0, 0};
    ::setrlimit(RLIMIT_CORE, &kNoCore);
    CrashHandler::install();
    if (!LogOutput::open(LogLevel::kInfo, path_, format).ok()) std::_Exit(99);
  }

  std::string log() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  // The last line of the log, in JSON.
  json last_line() const {
    const std::string text = log();
    if (text.empty() || text.back() != '\n') return "the log does not end with a line: " + text;
    const size_t before = text.rfind('\n', text.size() - 2);
    return json::parse(text.substr(before == std::string::npos ? 0 : before + 1));
  }

  std::string path_;
};

// The compiler must neither foresee the fault nor leave it out.
[[gnu::noinline]] void write_to(volatile int* place) { *place = 1; }

volatile size_t recursion_bytes = 0;
// Uses more stack than any thread has.
[[gnu::noinline]] size_t recurse(size_t depth) {  // NOLINT(misc-no-recursion): it must overflow the stack
  volatile char frame[1'024] = {};
  recursion_bytes = recursion_bytes + sizeof(frame);
  return depth == 0 ? frame[0] : recurse(depth - 1) + static_cast<size_t>(frame[1]) + 1;
}

TEST_F(CrashHandlerTest, LogsAFaultWithItsAddressThreadAndStack) {
  EXPECT_EXIT(
      {
        begin(LogFormat::kJson);
        Thread thread("crash-test", [] { write_to(reinterpret_cast<volatile int*>(uintptr_t{0x1234})); });
        thread.join();
      },
      ::testing::KilledBySignal(SIGSEGV), "");
  const json line = last_line();
  EXPECT_EQ(line["event"], "crash");
  EXPECT_EQ(line["level"], "error");
  EXPECT_EQ(line["signal"], "SIGSEGV");
  EXPECT_EQ(line["address"], "0x1234");
  EXPECT_EQ(line["thread"], "crash-test");
  EXPECT_EQ(line["build_id"], CrashHandler::build_id());
  const std::string stack = line["stack"];
  EXPECT_TRUE(stack.starts_with("program_test+0x")) << stack;
  EXPECT_NE(stack.find(' '), std::string::npos) << "a frame of the caller: " << stack;
  EXPECT_EQ(stack.find("0xffffffffffffffff"), std::string::npos) << "nothing called the thread: " << stack;
}

TEST_F(CrashHandlerTest, LogsTheOverflowOfAStack) {
  EXPECT_EXIT(
      {
        begin(LogFormat::kJson);
        Thread thread("overflow", [] { recurse(size_t{1} << 30); });
        thread.join();
      },
      ::testing::KilledBySignal(SIGSEGV), "");
  const json line = last_line();
  EXPECT_EQ(line["thread"], "overflow");
  EXPECT_EQ(line["signal"], "SIGSEGV");
}

TEST_F(CrashHandlerTest, LogsACallOfNoCode) {
  EXPECT_EXIT(
      {
        begin(LogFormat::kJson);
        void (*volatile nowhere)() = nullptr;
        nowhere();
      },
      ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EQ(last_line()["address"], "0x0");
  EXPECT_TRUE(last_line()["stack"].get<std::string>().starts_with("0x0")) << last_line();
}

TEST_F(CrashHandlerTest, WritesQueuedLinesFirst) {
  constexpr int kLines = 500;
  EXPECT_EXIT(
      {
        begin(LogFormat::kText);
        for (int i = 0; i < kLines; ++i) log_info("test.line", "line", {}, std::source_location());
        std::abort();
      },
      ::testing::KilledBySignal(SIGABRT), "");
  std::stringstream text(log());
  std::string line;
  std::string last;
  uint64_t lines = 0;
  while (std::getline(text, line)) {
    ++lines;
    last = line;
  }
  EXPECT_EQ(lines, 20u + 1) << "the lines that the limit allows, and the crash";
  EXPECT_NE(last.find("Z error [crash] the program crashed by SIGABRT, in thread "), std::string::npos) << last;
  EXPECT_NE(last.find("; stack: "), std::string::npos) << last;
}

TEST_F(CrashHandlerTest, LogsAnUncaughtException) {
  EXPECT_EXIT(
      {
        begin(LogFormat::kLogfmt);
        Thread thread("throws", [] { throw std::runtime_error("no \"way\" out"); });
        thread.join();
      },
      ::testing::KilledBySignal(SIGABRT), "");
  EXPECT_NE(log().find(R"( reason="uncaught exception of type St13runtime_error: no ?way? out" stack=")"),
            std::string::npos)
      << log();
  EXPECT_NE(log().find(" level=error event=crash message=\"the program crashed by SIGABRT, in thread throws; "),
            std::string::npos)
      << log();
}

TEST_F(CrashHandlerTest, LogsAFailedAssertion) {
  EXPECT_EXIT(
      {
        begin(LogFormat::kJson);
        LOAM_CHECK(path_.empty(), "the path is empty");
      },
      ::testing::KilledBySignal(SIGABRT), "");
  const std::string reason = last_line()["reason"];
  EXPECT_NE(reason.find("crash_handler_test.cc:"), std::string::npos) << reason;
  EXPECT_NE(reason.find("assertion failed: the path is empty (path_.empty())"), std::string::npos) << reason;
}

TEST_F(CrashHandlerTest, GoesToStderrWithoutAnOutput) {
  EXPECT_EXIT(
      {
        CrashHandler::install();
        std::raise(SIGFPE);
      },
      ::testing::KilledBySignal(SIGFPE), "error \\[crash\\] the program crashed by SIGFPE, in thread ");
}

TEST(CrashHandler, ProgramHasABuildId) { EXPECT_EQ(CrashHandler::build_id().size(), 40u); }

}  // namespace
}  // namespace loam::program
