#include "common/base/log_limit.h"

#include <gtest/gtest.h>

namespace loam {
namespace {

constexpr uint64_t kStartNs = 5'000'000'000;
constexpr uint64_t kEndNs = kStartNs + LogLimit::kWindowNs;

class LogLimitTest : public ::testing::Test {
 protected:
  LogLimitTest() {
    // In two lines: a kind is a line. As initialisers of members both would be that of the class.
    refused_ = std::source_location::current();
    other_ = std::source_location::current();
  }

  // Lines `first` to `last` of one kind; how many pass.
  uint64_t refuse(uint64_t first, uint64_t last, uint64_t now_ns) {
    uint64_t passed = 0;
    for (uint64_t i = first; i <= last; ++i) {
      passed += limit_.passes(LogLevel::kWarning, "refused " + std::to_string(i), refused_, now_ns);
    }
    return passed;
  }

  // What a summary tells.
  std::string told(uint64_t now_ns, bool all) {
    const auto summary = limit_.summary(now_ns, all);
    return summary ? summary->text : "nothing";
  }

  LogLimit limit_;
  std::source_location refused_;
  std::source_location other_;
};

TEST_F(LogLimitTest, TheFirstOfAWindowPassAndTheRestIsCounted) {
  EXPECT_EQ(refuse(1, 1'000, kStartNs), LogLimit::kLines);
  EXPECT_TRUE(limit_.passes(LogLevel::kInfo, "rare", other_, kStartNs)) << "another kind has its own window";
  EXPECT_FALSE(limit_.summary(kEndNs - 1, false)) << "more may come";
  const auto summary = limit_.summary(kEndNs, false);
  ASSERT_TRUE(summary);
  EXPECT_EQ(summary->level, LogLevel::kWarning);
  EXPECT_EQ(summary->text, "980 lines left out, such as: refused 21");
  EXPECT_FALSE(limit_.summary(kEndNs, true)) << "it is told once";
  EXPECT_EQ(refuse(1'001, 1'100, kEndNs), LogLimit::kLines) << "the next window";
}

TEST_F(LogLimitTest, NoCountIsLostThatWasNotTold) {
  EXPECT_EQ(refuse(1, 25, kStartNs), LogLimit::kLines);
  EXPECT_EQ(refuse(26, 30, kEndNs), 0u) << "a new window would forget five lines";
  EXPECT_EQ(told(kEndNs, false), "10 lines left out, such as: refused 21");
}

TEST_F(LogLimitTest, TheEndTellsOfAWindowThatGoesOn) {
  EXPECT_EQ(refuse(1, 23, kStartNs), LogLimit::kLines);
  EXPECT_EQ(told(kStartNs, true), "3 lines left out, such as: refused 21");
  EXPECT_EQ(refuse(24, 25, kStartNs), 0u);
  EXPECT_EQ(told(kStartNs, true), "2 lines left out, such as: refused 21");
}

std::source_location in_one_file();
std::source_location in_another_file();

TEST_F(LogLimitTest, OneLineOfTwoFilesIsTwoPlaces) {
  const std::source_location one = in_one_file();
  const std::source_location another = in_another_file();
  ASSERT_EQ(one.line(), another.line());
  for (uint64_t i = 0; i < LogLimit::kLines; ++i) EXPECT_TRUE(limit_.passes(LogLevel::kInfo, "x", one, kStartNs));
  EXPECT_FALSE(limit_.passes(LogLevel::kInfo, "x", one, kStartNs));
  EXPECT_TRUE(limit_.passes(LogLevel::kInfo, "x", another, kStartNs));
}

TEST_F(LogLimitTest, FewLinesLeaveNothingOut) {
  for (uint64_t minute = 0; minute < 10; ++minute) {
    EXPECT_EQ(refuse(1, LogLimit::kLines, kStartNs + minute * LogLimit::kWindowNs), LogLimit::kLines);
    EXPECT_FALSE(limit_.summary(kStartNs + minute * LogLimit::kWindowNs, true));
  }
}

// At the end: for the compiler the rest of this file lies elsewhere.
#line 1 "one_file"
std::source_location in_one_file() { return std::source_location::current(); }
#line 1 "another_file"
std::source_location in_another_file() { return std::source_location::current(); }

}  // namespace
}  // namespace loam
