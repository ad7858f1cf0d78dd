#include "deploy/cli/src/query/lexer.h"

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::cli {
namespace {

std::string tokens(std::string_view text) {
  auto result = tokenize(text, "--where");
  if (!result.ok()) return std::string(result.status().message());
  std::string shown;
  static constexpr char kKinds[] = "wqntbs$";
  for (const Token& token : *result) {
    shown += std::string(shown.empty() ? "" : " ") + kKinds[static_cast<size_t>(token.kind)] + ":" + token.text;
  }
  return shown;
}

TEST(Lexer, SplitsEveryKindOfToken) {
  EXPECT_EQ(tokens("dep_delay>-60 and origin='J''FK'"), "w:dep_delay s:> s:- n:60 w:and w:origin s:= t:J'FK $:");
  EXPECT_EQ(tokens("\"a \"\"b\" <> x'0aFF' <= 1.5e-3"), "q:a \"b s:<> b:x'0aFF' s:<= n:1.5e-3 $:");
  EXPECT_EQ(tokens("count(*),x.y != .5"), "w:count s:( s:* s:) s:, w:x.y s:!= n:.5 $:");
  EXPECT_EQ(tokens("é = +7"), "w:é s:= s:+ n:7 $:");
  EXPECT_EQ(tokens(" \t\n"), "$:");
}

TEST(Lexer, PointsAtErrors) {
  EXPECT_EQ(tokens("a = 'x"), "--where, column 5: the text that begins here has no closing quote\n  a = 'x\n      ^");
  EXPECT_EQ(tokens("\"a"), "--where, column 1: the name that begins here has no closing double quote\n  \"a\n  ^");
  EXPECT_EQ(tokens("a == 1"), "--where, column 3: equality is written with one '='\n  a == 1\n    ^");
  EXPECT_EQ(tokens("a = 1; b"), "--where, column 6: unexpected character ';'\n  a = 1; b\n       ^");
  EXPECT_EQ(tokens("\x01"), "--where, column 1: unexpected character '\\x01'\n   \n  ^");
  EXPECT_EQ(
      tokens("a = 12ab"),
      "--where, column 7: a number ends here; names that begin with a digit need double quotes\n  a = 12ab\n        ^");
  EXPECT_EQ(tokens("x'00"), "--where, column 1: the blob that begins here has no closing quote\n  x'00\n  ^");
  EXPECT_EQ(tokens("\"\""), "--where, column 1: a name between double quotes cannot be empty\n  \"\"\n  ^");
  EXPECT_EQ(tokens("é ; 1"), "--where, column 4: unexpected character ';'\n  é ; 1\n    ^")
      << "the caret counts characters";
}

TEST(Lexer, ShowsOnlyTheSurroundingsInALongText) {
  const std::string message = tokens(std::string(500, ' ') + ";" + std::string(500, ' '));
  EXPECT_TRUE(message.starts_with("--where, column 501: "));
  EXPECT_LT(message.size(), 300u);
  EXPECT_TRUE(message.ends_with("\n  " + std::string(60, ' ') + "^"));
}

TEST(Lexer, RefusesATextOverTheLimit) {
  EXPECT_EQ(tokens(std::string(kMaxQueryTextBytes + 1, ' ')), "--where has 262145 bytes; 262144 is the limit");
}

TEST(Lexer, SurvivesAnyBytes) {
  const uint64_t seed = loam::testing::test_seed(1);
  loam::testing::Random random(seed);
  for (int round = 0; round < 20'000; ++round) {
    static constexpr std::string_view kBytes = "ax'\"=<>!()*,.-+e01 \n\xc3\xa9\xff";
    std::string text;
    for (size_t length = random() % 12; text.size() < length;) text += kBytes[random() % kBytes.size()];
    auto result = tokenize(text, "--where");
    if (result.ok()) {
      ASSERT_EQ(result->back().kind, TokenKind::kEnd);
    } else {
      ASSERT_EQ(result.code(), StatusCode::kInvalidArgument);
    }
  }
}

}  // namespace
}  // namespace loam::cli
