#include "common/base/log_rate_limiter.h"

#include <gtest/gtest.h>

namespace loam {
namespace {

constexpr uint64_t kStartNs = 5'000'000'000;
constexpr uint64_t kEndNs = kStartNs + LogRateLimiter::kWindowNs;

class LogRateLimiterTest : public ::testing::Test {
 protected:
  LogRateLimiterTest() {
    // Two statements in two lines, because the limiter distinguishes source positions by their lines. Initialisers of
    // members would both have the position of the class.
    refused_ = std::source_location::current();
    other_ = std::source_location::current();
  }

  // Logs the lines `first` to `last` at one source position. Returns the number of lines that pass.
  uint64_t refuse(uint64_t first, uint64_t last, uint64_t now_ns) {
    uint64_t passed = 0;
    for (uint64_t i = first; i <= last; ++i) {
      const std::string message = "refused " + std::to_string(i);
      passed += limit_.allow({LogLevel::kWarning, "peer.refused", message}, refused_, now_ns);
    }
    return passed;
  }

  // The text of the next summary; "nothing" if there is none.
  std::string summary_text(uint64_t now_ns, bool all) {
    const auto summary = limit_.summary(now_ns, all);
    return summary ? summary->text : "nothing";
  }

  LogRateLimiter limit_;
  std::source_location refused_;
  std::source_location other_;
};

TEST_F(LogRateLimiterTest, PassesTheFirstLinesOfAWindowAndCountsTheRest) {
  EXPECT_EQ(refuse(1, 1'000, kStartNs), LogRateLimiter::kMaxLinesPerWindow);
  EXPECT_TRUE(limit_.allow({LogLevel::kInfo, "test.rare", "rare"}, other_, kStartNs))
      << "another source position has its own window";
  EXPECT_FALSE(limit_.summary(kEndNs - 1, false)) << "the window is not over";
  const auto summary = limit_.summary(kEndNs, false);
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->level, LogLevel::kWarning);
  EXPECT_EQ(summary->event.name(), "peer.refused");
  EXPECT_EQ(summary->lines, 980u);
  EXPECT_EQ(summary->text, "980 lines suppressed, such as: refused 21");
  EXPECT_FALSE(limit_.summary(kEndNs, true)) << "a count is reported once";
  EXPECT_EQ(refuse(1'001, 1'100, kEndNs), LogRateLimiter::kMaxLinesPerWindow) << "the next window";
}

TEST_F(LogRateLimiterTest, KeepsAWindowUntilItsCountIsReported) {
  EXPECT_EQ(refuse(1, 25, kStartNs), LogRateLimiter::kMaxLinesPerWindow);
  EXPECT_EQ(refuse(26, 30, kEndNs), 0u) << "a new window would lose the count of five lines";
  EXPECT_EQ(summary_text(kEndNs, false), "10 lines suppressed, such as: refused 21");
}

TEST_F(LogRateLimiterTest, FinalSummaryIncludesOpenWindows) {
  EXPECT_EQ(refuse(1, 23, kStartNs), LogRateLimiter::kMaxLinesPerWindow);
  EXPECT_EQ(summary_text(kStartNs, true), "3 lines suppressed, such as: refused 21");
  EXPECT_EQ(refuse(24, 25, kStartNs), 0u);
  EXPECT_EQ(summary_text(kStartNs, true), "2 lines suppressed, such as: refused 21");
}

std::source_location in_one_file();
std::source_location in_another_file();

TEST_F(LogRateLimiterTest, SameLineOfTwoFilesIsTwoSourcePositions) {
  const std::source_location one = in_one_file();
  const std::source_location another = in_another_file();
  ASSERT_EQ(one.line(), another.line());
  for (uint64_t i = 0; i < LogRateLimiter::kMaxLinesPerWindow; ++i)
    EXPECT_TRUE(limit_.allow({LogLevel::kInfo, "test.line", "x"}, one, kStartNs));
  EXPECT_FALSE(limit_.allow({LogLevel::kInfo, "test.line", "x"}, one, kStartNs));
  EXPECT_TRUE(limit_.allow({LogLevel::kInfo, "test.line", "x"}, another, kStartNs));
}

TEST_F(LogRateLimiterTest, SuppressesNothingUpToTheLimit) {
  for (uint64_t minute = 0; minute < 10; ++minute) {
    EXPECT_EQ(refuse(1, LogRateLimiter::kMaxLinesPerWindow, kStartNs + minute * LogRateLimiter::kWindowNs),
              LogRateLimiter::kMaxLinesPerWindow);
    EXPECT_FALSE(limit_.summary(kStartNs + minute * LogRateLimiter::kWindowNs, true));
  }
}

// These functions stand at the end, because #line changes the file name and line number of all code below it.
#line 1 "one_file"
std::source_location in_one_file() { return std::source_location::current(); }
#line 1 "another_file"
std::source_location in_another_file() { return std::source_location::current(); }

}  // namespace
}  // namespace loam
