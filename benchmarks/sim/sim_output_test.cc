#include "benchmarks/sim/sim_output.h"

#include <string>

#include <gtest/gtest.h>

namespace loam::bench {
namespace {

constexpr const char* kTotals =
    R"({"seeds":2,"failures":1,"events":500,"seconds":0.5,"cpu_seconds":0.25,"faults":3,"probes":{"a":1}})";

std::string seed(uint64_t number, uint64_t hash) {
  return R"({"seed":)" + std::to_string(number) + R"(,"failed":false,"events":250,"hash":)" + std::to_string(hash) +
         "}\n";
}

TEST(SimOutput, ParsesSeedsAndTotals) {
  const auto output = parse_sim_output(seed(7, 18'446'744'073'709'551'615u) + seed(8, 2) + kTotals + "\n");
  ASSERT_TRUE(output.ok()) << output.status().to_string();
  EXPECT_EQ(output->seeds, 2u);
  EXPECT_EQ(output->failures, 1u);
  EXPECT_EQ(output->events, 500u);
  EXPECT_EQ(output->seconds, 0.5);
  EXPECT_EQ(output->cpu_seconds, 0.25);
  EXPECT_EQ(output->hashes.at(7), UINT64_MAX);
}

TEST(SimOutput, RejectsIncompleteOutput) {
  for (const std::string& text :
       {std::string(), seed(7, 1) + seed(8, 2), seed(7, 1) + kTotals, std::string("Segmentation fault\n"),
        seed(7, 1) + seed(8, 2) + kTotals + "\n" + seed(9, 1), seed(7, 1) + seed(8, 2) + R"({"seeds":2})",
        seed(7, 1) + seed(8, 2) + R"({"seeds":2,"failures":0,"events":"many","seconds":1,"cpu_seconds":1})"}) {
    EXPECT_EQ(parse_sim_output(text).code(), StatusCode::kMalformed) << text;
  }
}

TEST(SimOutput, ComparesSeedsThatBothHave) {
  const SimOutput a{{{1, 10}, {2, 20}, {3, 30}}, 3, 0, 1, 1, 1};
  EXPECT_EQ(different_hashes(a, a), 0u);
  EXPECT_EQ(different_hashes(a, {{{1, 10}, {2, 21}, {4, 5}}, 3, 0, 1, 1, 1}), 1u);
}

}  // namespace
}  // namespace loam::bench
