#include "common/base/log.h"

#include <vector>

#include <gtest/gtest.h>

#include "common/base/log_rate_limiter.h"

namespace loam {
namespace {

// The lines that the sink has received: event, message and fields as text.
std::vector<std::string> lines;

void keep(const LogLine& line) {
  std::string text(line.event.name());
  text += ": " + std::string(line.message);
  for (const LogField& field : line.fields) {
    text += " " + std::string(field.key.name()) + "=";
    const auto* const number = std::get_if<uint64_t>(&field.value);
    text += number != nullptr ? std::to_string(*number) : std::string(std::get<std::string_view>(field.value));
  }
  lines.push_back(text);
}

TEST(Log, SinkGetsLinesAtOrAboveTheLevel) {
  lines.clear();
  set_log_sink(keep);
  set_log_level(LogLevel::kWarning);
  log_info("test.dropped", "dropped");
  log_error("test.kept", "kept");
  set_log_level(LogLevel::kInfo);
  log_info("test.kept_too", "kept too");
  set_log_sink(nullptr);
  EXPECT_EQ(lines, (std::vector<std::string>{"test.kept: kept", "test.kept_too: kept too"}));
}

TEST(Log, SinkGetsTheFieldsOfALine) {
  lines.clear();
  set_log_sink(keep);
  const std::string path = "/data";
  log_warning("disk.full", "/data is full", {{"path", path}, {"bytes", path.size()}, {"kind", "local"}});
  set_log_sink(nullptr);
  EXPECT_EQ(lines, (std::vector<std::string>{"disk.full: /data is full path=/data bytes=5 kind=local"}));
}

TEST(Log, LimitsLinesOfOneSourcePosition) {
  lines.clear();
  set_log_sink(keep);
  for (uint64_t i = 0; i < LogRateLimiter::kMaxLinesPerWindow + 3; ++i) log_warning("peer.refused", "refused");
  log_info("test.other", "something else");
  EXPECT_EQ(lines.size(), LogRateLimiter::kMaxLinesPerWindow + 1);
  EXPECT_EQ(lines.back(), "test.other: something else");
  log_suppressed(true);
  EXPECT_EQ(lines.back(), "log.suppressed: 3 lines suppressed, such as: refused lines=3 suppressed_event=peer.refused");
  set_log_sink(nullptr);
}

TEST(Log, DefaultGoesToStderrWithTimeLevelAndEvent) {
  testing::internal::CaptureStderr();
  log_warning("pool.full", "the pool is nearly full");
  const std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find("Z warning [pool.full] the pool is nearly full\n"), std::string::npos) << line;
}

TEST(LogEvent, HasWordsJoinedByDots) {
  for (const std::string_view good : {"crash", "disk.full", "a.b_c.d2"}) {
    EXPECT_TRUE(LogEvent::is_event_name(good)) << good;
  }
  for (const std::string_view bad : {"", ".", "disk.", ".full", "disk..full", "Disk.full", "disk full", "disk-full"}) {
    EXPECT_FALSE(LogEvent::is_event_name(bad)) << bad;
  }
}

TEST(LogKey, IsOneWordThatNoLineHasAnyway) {
  for (const std::string_view good : {"path", "bytes_left", "x2"}) EXPECT_TRUE(LogKey::is_key(good)) << good;
  for (const std::string_view bad : {"", "a.b", "Path", "time", "level", "event", "message"}) {
    EXPECT_FALSE(LogKey::is_key(bad)) << bad;
  }
}

}  // namespace
}  // namespace loam
