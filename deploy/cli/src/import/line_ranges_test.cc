#include "deploy/cli/src/import/line_ranges.h"

#include <set>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::cli {
namespace {

TEST(LineRanges, ParseTheirOwnText) {
  const LineRanges ranges = LineRanges::parse({"10-20", "7", "21-30", "100-"}).value();
  EXPECT_EQ(ranges.to_string(), "7, 10-30, 100-");
  EXPECT_EQ(ranges.texts(), (std::vector<std::string>{"7", "10-30", "100-"}));
  EXPECT_EQ(LineRanges::parse(ranges.texts())->to_string(), ranges.to_string());
  EXPECT_TRUE(ranges.contains(7));
  EXPECT_FALSE(ranges.contains(8));
  EXPECT_TRUE(ranges.contains(30));
  EXPECT_TRUE(ranges.contains(1'000'000));
  EXPECT_EQ(LineRanges().to_string(), "none");
  for (const char* wrong : {"", "x", "5-2", "0", "-3", "3-x", "1-2-3", "1.5"}) {
    EXPECT_EQ(LineRanges::parse({wrong}).status().message(),
              std::string("'") + wrong + "' names no lines; write 7, 2-500 or 501- (the header is line 1)");
  }
}

TEST(LineRanges, BehaveLikeASetOfLines) {
  constexpr uint64_t kLines = 40;
  loam::testing::Random random(loam::testing::test_seed(1));
  for (int round = 0; round < 500; ++round) {
    LineRanges ranges;
    std::set<uint64_t> model;
    for (int step = 0; step < 20; ++step) {
      const uint64_t first = random.between(1, kLines);
      const uint64_t last = random.one_in(10) ? LineRange::kOpen : random.between(first, kLines);
      const bool adds = random.one_in(2);
      if (adds) {
        ranges.add({first, last});
      } else {
        ranges.subtract(LineRange{first, last});
      }
      for (uint64_t line = first; line <= std::min(last, kLines); ++line) {
        if (adds) {
          model.insert(line);
        } else {
          model.erase(line);
        }
      }
      for (uint64_t line = 1; line <= kLines; ++line) {
        ASSERT_EQ(ranges.contains(line), model.contains(line)) << ranges.to_string();
      }
      for (size_t i = 1; i < ranges.ranges().size(); ++i) {
        ASSERT_LT(ranges.ranges()[i - 1].last + 1, ranges.ranges()[i].first) << ranges.to_string();
      }
    }
  }
}

}  // namespace
}  // namespace loam::cli
