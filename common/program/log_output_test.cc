#include "common/program/log_output.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <unistd.h>

namespace loam::program {
namespace {

TEST(LogOutput, WritesLinesWithTimeAndLevelToAFile) {
  const auto path = std::filesystem::temp_directory_path() / ("loam_log_" + std::to_string(getpid()));
  ASSERT_TRUE(LogOutput::open(LogLevel::kWarning, path.string()).ok());
  log_info("too little");
  log_warning("with {braces} and %s");
  log_error("last");
  LogOutput::close();
  set_log_level(LogLevel::kInfo);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  std::string line;
  ASSERT_TRUE(std::getline(text, line));
  EXPECT_EQ(line.substr(23), "Z warning with {braces} and %s");
  EXPECT_EQ(line[10], 'T');
  ASSERT_TRUE(std::getline(text, line));
  EXPECT_EQ(line.substr(23), "Z error last");
  EXPECT_FALSE(std::getline(text, line));
}

TEST(LogOutput, ReportsAFileThatCannotBeOpened) {
  const Status status = LogOutput::open(LogLevel::kInfo, "/dev/null/log");
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("/dev/null/log"), std::string_view::npos) << status.to_string();
}

}  // namespace
}  // namespace loam::program
