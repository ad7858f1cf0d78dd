#include "benchmarks/peers/memcached.h"

#include <string>

#include <gtest/gtest.h>

namespace loam::bench {
namespace {

using Kind = MetaAnswer::Kind;

TEST(MetaAnswer, ParsesOneReplyAndLeavesTheRest) {
  const std::string bytes = "VA 5\r\na\r\nbc\r\nHD\r\nEN\r\n";
  const MetaAnswer value = parse_meta_answer(bytes);
  EXPECT_EQ(value.kind, Kind::kValue);
  EXPECT_EQ(value.value, "a\r\nbc") << "a value may hold line ends";
  EXPECT_EQ(value.size_bytes, 13u);
  const MetaAnswer stored = parse_meta_answer(std::string_view(bytes).substr(13));
  EXPECT_EQ(stored.kind, Kind::kStored);
  EXPECT_EQ(stored.size_bytes, 4u);
  EXPECT_EQ(parse_meta_answer(std::string_view(bytes).substr(17)).kind, Kind::kMissing);
}

TEST(MetaAnswer, EveryPrefixIsIncomplete) {
  for (const std::string whole : {"VA 3\r\nabc\r\n", "VA 0\r\n\r\n", "HD\r\n", "EN\r\n", "SERVER_ERROR x\r\n"}) {
    for (size_t size = 0; size < whole.size(); ++size) {
      const MetaAnswer answer = parse_meta_answer(std::string_view(whole).substr(0, size));
      EXPECT_EQ(answer.kind, Kind::kIncomplete) << whole << size;
      EXPECT_EQ(answer.size_bytes, 0u);
    }
    EXPECT_EQ(parse_meta_answer(whole).size_bytes, whole.size());
  }
}

TEST(MetaAnswer, ParsesOtherLinesAsOther) {
  for (const std::string line : {"ERROR", "SERVER_ERROR out of memory", "VA", "VA x", "VA 3 f1", "VA -1", "NS", "HD x",
                                 "VA 99999999999999999999"}) {
    const std::string bytes = line + "\r\n";
    const MetaAnswer answer = parse_meta_answer(bytes);
    EXPECT_EQ(answer.kind, Kind::kOther) << line;
    EXPECT_EQ(answer.value, line);
  }
  EXPECT_EQ(parse_meta_answer("VA 3\r\nabcd\r\n").kind, Kind::kOther) << "more bytes than were announced";
  EXPECT_EQ(parse_meta_answer("VA 18446744073709551615\r\nabc\r\n").kind, Kind::kIncomplete);
}

}  // namespace
}  // namespace loam::bench
