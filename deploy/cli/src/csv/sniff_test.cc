#include "deploy/cli/src/csv/sniff.h"

#include <iterator>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::cli {
namespace {

SniffedDelimiter sniff(std::string_view text, bool whole = true) { return sniff_delimiter(text, whole); }

TEST(SniffDelimiter, FindsTheOneThatMakesEqualRows) {
  EXPECT_EQ(sniff("a,b\n1,2\n"), (SniffedDelimiter{',', ""}));
  EXPECT_EQ(sniff("a;b\n1,5;2,5\n3;4\n"), (SniffedDelimiter{';', ""})) << "decimal commas";
  EXPECT_EQ(sniff("a\tb\n1,2\tx\n"), (SniffedDelimiter{'\t', ""}));
  EXPECT_EQ(sniff("a|b|c\n1|2|3\n\n4|5|6\n"), (SniffedDelimiter{'|', ""})) << "an empty line is no row";
  EXPECT_EQ(sniff("name;price, EUR;n\nx;1,5;3\ny;2;4\n"), (SniffedDelimiter{';', ""})) << "a comma in the header";
}

TEST(SniffDelimiter, RespectsQuotes) {
  EXPECT_EQ(sniff("a,\"b;c\"\n\"1;2\",\"3\n;4\"\n"), (SniffedDelimiter{',', ""}));
  EXPECT_EQ(sniff("\"a,b\";\"c\"\n\"1,2\";\"3\n,4\"\n"), (SniffedDelimiter{';', ""}));
  EXPECT_EQ(sniff("\"a;b\"\n\"c;d\"\n"), (SniffedDelimiter{',', ""})) << "one column";
}

TEST(SniffDelimiter, ChoosesCommaIfUndecided) {
  EXPECT_EQ(sniff(""), (SniffedDelimiter{',', ""}));
  EXPECT_EQ(sniff("a\n1\n2\n"), (SniffedDelimiter{',', ""}));
  EXPECT_EQ(sniff("a,b;c\n1,2;3\n"), (SniffedDelimiter{',', ";"})) << "both make equal rows";
  EXPECT_EQ(sniff("a;b|c\n1;2|3\n"), (SniffedDelimiter{',', ";|"})) << "two others do";
  EXPECT_EQ(sniff("notes; remarks\nx\ny\n"), (SniffedDelimiter{',', ";"})) << "neither does";
  EXPECT_EQ(sniff("a,b\n1\n2\n"), (SniffedDelimiter{',', ""})) << "bad rows of a table of two columns";
}

TEST(SniffDelimiter, ToleratesBadRow) {
  std::string text = "a;b\n";
  for (int i = 0; i < 20; ++i) text += i == 7 ? "1\n" : "1;2\n";
  EXPECT_EQ(sniff(text), (SniffedDelimiter{';', ""}));
}

TEST(SniffDelimiter, IgnoresIncompleteRow) {
  EXPECT_EQ(sniff("a;b\n1;2\n3", false), (SniffedDelimiter{';', ""}));
  EXPECT_EQ(sniff("a;b\n1;2\n3;\"x\ny;z\n", false), (SniffedDelimiter{';', ""})) << "a quote that is still open";
  EXPECT_EQ(sniff("a;b", false), (SniffedDelimiter{',', ""})) << "the header may go on";
  EXPECT_EQ(sniff("a;b", true), (SniffedDelimiter{';', ""}));
}

TEST(SniffDelimiter, FindsTheDelimiterOfRandomTables) {
  const uint64_t seed = loam::testing::test_seed(1);
  loam::testing::Random random(seed);
  for (int round = 0; round < 300; ++round) {
    const char delimiter = kSniffedDelimiters[random() % kSniffedDelimiters.size()];
    const size_t columns = 2 + random() % 4;
    std::string text;
    const size_t rows = 2 + random() % 150;
    for (size_t row = 0; row < rows; ++row) {
      for (size_t i = 0; i < columns; ++i) {
        if (i > 0) text += delimiter;
        // Fields with any of the characters stand in quotes, as `loam scan --csv` writes them.
        static constexpr std::string_view kTexts[] = {"1",           "",         "\"a;b\"",
                                                      "\"x,y\n|z\"", "\"t\tt\"", "\"say \"\"hi\"\"\""};
        text += row == 0 ? "c" + std::to_string(i) : std::string(kTexts[random() % std::size(kTexts)]);
      }
      text += random() % 2 == 0 ? "\n" : "\r\n";
    }
    const bool whole = random() % 2 == 0;
    ASSERT_EQ(sniff(text, whole), (SniffedDelimiter{delimiter, ""})) << text;
  }
}

}  // namespace
}  // namespace loam::cli
