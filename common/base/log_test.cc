#include "common/base/log.h"

#include <vector>

#include <gtest/gtest.h>

#include "common/base/log_rate_limiter.h"

namespace loam {
namespace {

std::vector<std::string> lines;

TEST(Log, SinkGetsLinesAtOrAboveTheLevel) {
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

TEST(Log, LimitsLinesOfOneSourcePosition) {
  lines.clear();
  set_log_sink([](LogLevel, std::string_view message) { lines.emplace_back(message); });
  for (uint64_t i = 0; i < LogRateLimiter::kMaxLinesPerWindow + 3; ++i) log_warning("refused");
  log_info("something else");
  EXPECT_EQ(lines.size(), LogRateLimiter::kMaxLinesPerWindow + 1);
  EXPECT_EQ(lines.back(), "something else");
  log_suppressed(true);
  EXPECT_EQ(lines.back(), "3 lines suppressed, such as: refused");
  set_log_sink(nullptr);
}

TEST(Log, DefaultGoesToStderrWithTimeAndLevel) {
  testing::internal::CaptureStderr();
  log_warning("the pool is nearly full");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find("Z warning the pool is nearly full\n"), std::string::npos) << line;
}

}  // namespace
}  // namespace loam
