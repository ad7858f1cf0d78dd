#include "common/base/log.h"

#include <vector>

#include <gtest/gtest.h>

namespace loam {
namespace {

std::vector<std::string> lines;

TEST(Log, SinkGetsWhatIsNotBelowTheLevel) {
  lines.clear();
  set_log_sink([](LogLevel, std::string_view message) { lines.emplace_back(message); });
  set_log_level(LogLevel::kWarning);
  log_info("dropped");
  log_error("kept");
  set_log_level(LogLevel::kInfo);
  log_info("kept too");
  set_log_sink(nullptr);
  EXPECT_EQ(lines, (std::vector<std::string>{"kept", "kept too"}));
}

TEST(Log, DefaultGoesToStderrWithTimeAndLevel) {
  testing::internal::CaptureStderr();
  log_warning("the pool is nearly full");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find("Z warning the pool is nearly full\n"), std::string::npos) << line;
}

}  // namespace
}  // namespace loam
