#include "deploy/cli/src/output/progress.h"

#include <sstream>

#include <gtest/gtest.h>

namespace loam::cli {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

TEST(ProgressBar, ShowsShareRateAndEta) {
  std::ostringstream out;
  const ProgressBar bar(out, {.terminal = true, .width = 80}, 100 * kSecond);
  EXPECT_EQ(bar.line(0.25, 10'800, 102 * kSecond),
            "[########........................]  25 %  10,800 rows  5,400 rows/s  ETA 0:06");
  EXPECT_EQ(bar.line(1.0, 27'004, 104 * kSecond).find("100 %") == std::string::npos, false);
  EXPECT_EQ(bar.line(-1, 10'800, 102 * kSecond), "10,800 rows  5,400 rows/s") << "a pipe has no end in sight";
  EXPECT_EQ(bar.line(0, 0, 100 * kSecond).find("ETA"), std::string::npos) << "nothing is known at the beginning";
  EXPECT_NE(bar.line(0.0005, 1, 110 * kSecond).find("ETA 5:33:10"), std::string::npos);
  for (const double fraction : {0.0, 0.5, 1.0, 1.7}) {
    EXPECT_LE(bar.line(fraction, 1'000'000'000, 1'000 * kSecond).size(), 80u);
  }
}

TEST(ProgressBar, OmitsBarOnNarrowTerminal) {
  std::ostringstream out;
  const ProgressBar narrow(out, {.terminal = true, .width = 30}, 0);
  EXPECT_EQ(narrow.line(0.5, 10, kSecond), " 50 %  10 rows  10 rows/s  ETA 0:01");
}

TEST(ProgressBar, LimitsRedrawsAndClearsTerminal) {
  std::ostringstream out;
  ProgressBar bar(out, {.terminal = true}, 0);
  bar.update(0.1, 1, 1'000);
  EXPECT_EQ(out.str(), "") << "too early";
  bar.update(0.1, 1, kSecond);
  EXPECT_TRUE(out.str().starts_with("\r\x1b[K["));
  EXPECT_EQ(out.str().find('\n'), std::string::npos);
  const std::string once = out.str();
  bar.update(0.2, 2, kSecond + 1'000);
  EXPECT_EQ(out.str(), once);
  bar.clear();
  EXPECT_EQ(out.str(), once + "\r\x1b[K");
}

TEST(ProgressBar, WritesPlainLinesElsewhere) {
  std::ostringstream out;
  ProgressBar bar(out, {.terminal = false}, 0);
  bar.update(0.1, 100, kSecond);
  EXPECT_EQ(out.str(), "");
  bar.update(0.5, 500, 5 * kSecond);
  EXPECT_EQ(out.str(), " 50 %  500 rows  100 rows/s  ETA 0:05\n");
  bar.clear();
  EXPECT_EQ(out.str().find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace loam::cli
