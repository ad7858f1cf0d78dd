#include "deploy/cli/src/output/display_width.h"

#include <gtest/gtest.h>

namespace loam::cli {
namespace {

TEST(DisplayWidth, CountsColumnsOfATerminal) {
  EXPECT_EQ(display_width(""), 0u);
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("µs"), 2u);
  EXPECT_EQ(display_width("Ærø"), 3u);
  EXPECT_EQ(display_width("日本語"), 6u);
  EXPECT_EQ(display_width("서울"), 4u);
  EXPECT_EQ(display_width("ｱ"), 1u) << "half width";
  EXPECT_EQ(display_width("Ａ"), 2u) << "full width";
  EXPECT_EQ(display_width("😀"), 2u);
  EXPECT_EQ(display_width("🇨🇭"), 2u) << "two regional indicators";
  EXPECT_EQ(display_width("\U00020000"), 2u);
  EXPECT_EQ(display_width("e\u0301"), 1u) << "a combining accent";
  EXPECT_EQ(display_width("\u1112\u1161\u11ab"), 2u) << "a syllable of three letters";
  EXPECT_EQ(display_width("a\u200db\ufeff"), 2u) << "a joiner and a byte order mark";
  EXPECT_EQ(display_width("\u00ad"), 1u) << "a soft hyphen";
  EXPECT_EQ(display_width("…→─"), 3u);
}

TEST(DisplayWidth, CountsEachBadByteOnce) {
  for (const char* bad : {"\xff", "\x80", "\xc1", "\xf5", "\xe6"}) EXPECT_EQ(display_width(bad), 1u);
  EXPECT_EQ(display_width("\xe6\x97"), 2u) << "cut off";
  EXPECT_EQ(display_width("\xc0\xaf"), 2u) << "overlong";
  EXPECT_EQ(display_width("\xed\xa0\x80"), 3u) << "a surrogate";
  EXPECT_EQ(display_width("\xf4\x90\x80\x80"), 4u) << "beyond Unicode";
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(printable("日本 😀 é"), "日本 😀 é");
  EXPECT_EQ(printable("a\nb\tc\x1b[2J\x7f"), "a\\nb\\tc\\x1b[2J\\x7f");
  EXPECT_EQ(printable("\u009b2J"), "\\u009b2J");
  EXPECT_EQ(printable("a\xff\xe6\x97"), "a\\xff\\xe6\\x97");
}

}  // namespace
}  // namespace loam::cli
