#include "common/program/log_format.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace loam::program {
namespace {

std::string formatted(LogFormat format, std::string_view message, LogFields fields = {}) {
  return format_line(format, {LogLevel::kInfo, "test.line", message, fields}, 1'000);
}

TEST(LogFormat, TextHasTheEventAndNoFields) {
  EXPECT_EQ(formatted(LogFormat::kText, "7 bytes", {{"bytes", uint64_t{7}}}), "[test.line] 7 bytes");
}

TEST(LogFormat, TextKeepsALineOnOneLine) {
  EXPECT_EQ(formatted(LogFormat::kText, "a\nb\x7f\x01 \xc3\xa9"), "[test.line] a\\x0ab\\x7f\\x01 \xc3\xa9");
}

TEST(LogFormat, LogfmtQuotesWhatAParserWouldSplit) {
  EXPECT_EQ(formatted(LogFormat::kLogfmt, "plain", {{"path", "/data"}, {"bytes", uint64_t{7}}}),
            "event=test.line message=plain path=/data bytes=7");
  EXPECT_EQ(formatted(LogFormat::kLogfmt, "two words"), "event=test.line message=\"two words\"");
  EXPECT_EQ(formatted(LogFormat::kLogfmt, ""), "event=test.line message=\"\"");
  EXPECT_EQ(formatted(LogFormat::kLogfmt, "a=b"), "event=test.line message=\"a=b\"");
  EXPECT_EQ(formatted(LogFormat::kLogfmt, "a\"b\\c\n"), "event=test.line message=\"a\\\"b\\\\c\\n\"");
  EXPECT_EQ(formatted(LogFormat::kLogfmt, "\xc3\xa9"), "event=test.line message=\"\xc3\xa9\"");
  EXPECT_EQ(formatted(LogFormat::kLogfmt, "\xff"), "event=test.line message=\"\xef\xbf\xbd\"");
  EXPECT_EQ(formatted(LogFormat::kLogfmt, "x", {{"name", "a b=\"c\""}}),
            "event=test.line message=x name=\"a b=\\\"c\\\"\"");
}

TEST(LogFormat, JsonIsValidForAnyBytes) {
  std::string bytes;
  for (int c = 0; c < 256; ++c) bytes += static_cast<char>(c);
  const auto line =
      nlohmann::json::parse("{" + formatted(LogFormat::kJson, bytes, {{"name", bytes}, {"n", UINT64_MAX}}));
  EXPECT_EQ(line["event"], "test.line");
  EXPECT_EQ(line["n"], UINT64_MAX);
  EXPECT_EQ(line["message"], line["name"]);
  const std::string message = line["message"];
  EXPECT_EQ(message.substr(0, 128), bytes.substr(0, 128)) << "ASCII stays";
  EXPECT_NE(message.find("\xef\xbf\xbd"), std::string::npos) << "bytes that are not UTF-8 are replaced";
  EXPECT_EQ(formatted(LogFormat::kJson, bytes).find('\n'), std::string::npos);
}

TEST(LogFormat, CutsLongTextsBetweenTwoCharacters) {
  const std::string long_text = std::string(999, 'x') + "\xc3\xa9";
  const std::string shown = std::string(999, 'x') + "…";
  EXPECT_EQ(formatted(LogFormat::kText, long_text), "[test.line] " + shown);
  EXPECT_EQ(formatted(LogFormat::kLogfmt, "m", {{"name", long_text}}),
            "event=test.line message=m name=\"" + shown + "\"");
  EXPECT_EQ(formatted(LogFormat::kText, std::string(1'000, 'x')), "[test.line] " + std::string(1'000, 'x'));
}

TEST(LogFormat, HasANameForEachFormat) {
  EXPECT_EQ(log_format_names(), (std::vector<std::string>{"text", "logfmt", "json"}));
}

}  // namespace
}  // namespace loam::program
