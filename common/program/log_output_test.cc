#include "common/program/log_output.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "common/testing/eventually.h"

namespace loam::program {
namespace {

/// A log file of the test.
class LogOutputTest : public ::testing::Test {
 protected:
  ~LogOutputTest() override {
    LogOutput::close();
    set_log_level(LogLevel::kInfo);
    std::filesystem::remove(path_);
  }
  std::string text() const {
    std::stringstream all;
    all << std::ifstream(path_).rdbuf();
    return all.str();
  }
  const std::string path_ = std::filesystem::temp_directory_path() / ("loam_log_" + std::to_string(getpid()));
};

TEST_F(LogOutputTest, WritesLinesWithTimeLevelAndEventToAFile) {
  ASSERT_TRUE(LogOutput::open(LogLevel::kWarning, path_, LogFormat::kText).ok());
  log_info("test.dropped", "too little");
  log_warning("test.braces", "with {braces} and %s");
  log_error("test.last", "last");
  LogOutput::close();
  std::stringstream lines(text());
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line.substr(23), "Z warning [test.braces] with {braces} and %s");
  EXPECT_EQ(line[10], 'T');
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(line.substr(23), "Z error [test.last] last");
  EXPECT_FALSE(std::getline(lines, line));
}

TEST_F(LogOutputTest, WritesJson) {
  ASSERT_TRUE(LogOutput::open(LogLevel::kInfo, path_, LogFormat::kJson).ok());
  log_warning("test.line", "with \"quotes\" and %l", {{"bytes", uint64_t{7}}});
  LogOutput::close();
  const auto line = nlohmann::json::parse(text());
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["event"], "test.line");
  EXPECT_EQ(line["message"], "with \"quotes\" and %l");
  EXPECT_EQ(line["bytes"], 7);
  EXPECT_EQ(line["time"].get<std::string>().size(), std::string("2024-07-11T10:00:00.000Z").size());
}

TEST_F(LogOutputTest, KeepsTheNewestLines) {
  ASSERT_TRUE(LogOutput::open(LogLevel::kInfo, path_, LogFormat::kText).ok());
  // The limit of the log applies to a source position, so the lines come from the sink itself.
  for (size_t i = 1; i <= kKeptLines + 5; ++i) {
    const std::string message = "line " + std::to_string(i);
    LogOutput::write({LogLevel::kInfo, "test.line", message});
  }
  const auto last = [] { return LogOutput::last_lines(); };
  const std::string end = "[test.line] line " + std::to_string(kKeptLines + 5) + "\n";
  ASSERT_TRUE(testing::eventually([&] { return last().ends_with(end); })) << last();
  EXPECT_EQ(std::ranges::count(last(), '\n'), static_cast<ptrdiff_t>(kKeptLines));
  EXPECT_EQ(last().find("line 5\n"), std::string::npos);
  EXPECT_NE(last().find("line 6\n"), std::string::npos);
}

TEST_F(LogOutputTest, CutsLongTexts) {
  ASSERT_TRUE(LogOutput::open(LogLevel::kInfo, path_, LogFormat::kText).ok());
  log_info("test.long", std::string(2 * kMaxLogTextBytes, 'x'));
  LogOutput::close();
  EXPECT_EQ(std::ranges::count(text(), 'x'), static_cast<ptrdiff_t>(kMaxLogTextBytes));
}

TEST(LogOutput, ReportsAFileThatCannotBeOpened) {
  const Status status = LogOutput::open(LogLevel::kInfo, "/dev/null/log", LogFormat::kText);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("/dev/null/log"), std::string_view::npos) << status.to_string();
}

}  // namespace
}  // namespace loam::program
