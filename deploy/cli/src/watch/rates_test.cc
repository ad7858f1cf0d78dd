#include "deploy/cli/src/watch/rates.h"

#include <gtest/gtest.h>

namespace loam::cli {
namespace {

using Json = nlohmann::ordered_json;

Json look(uint64_t uptime, uint64_t commits, uint64_t incarnation, uint64_t operations) {
  return {{"manager",
           {{"uptime_ns", uptime},
            {"commits", commits},
            {"open", 3},
            {"recovered_aborted", commits / 10},
            {"log_bytes", 9}}},
          {"nodes", Json::array({{{"id", 1},
                                  {"incarnation", incarnation},
                                  {"state", "live"},
                                  {"statistics", {{"operations", operations}, {"memory_used_bytes", 7}}}}})}};
}

TEST(RatesTest, CountersBecomeRatesAndLevelsStay) {
  const Json result = rates(look(10, 100, 1, 1'000), look(20, 300, 1, 5'000), 2);
  EXPECT_EQ(result["manager"]["commits_per_s"], 100.0);
  EXPECT_EQ(result["manager"]["recovered_aborted_per_s"], 10.0);
  EXPECT_EQ(result["manager"]["begins_per_s"], 0.0);
  EXPECT_EQ(result["manager"]["open"], 3u);
  EXPECT_EQ(result["manager"]["log_bytes"], 9u);
  EXPECT_EQ(result["nodes"][0]["operations_per_s"], 2'000.0);
  EXPECT_EQ(result["nodes"][0]["memory_used_bytes"], 7u);
}

TEST(RatesTest, RestartedServerCountsFromItsStart) {
  const Json result = rates(look(20, 300, 1, 5'000), look(10, 400, 2, 6'000), 2);
  EXPECT_EQ(result["manager"]["commits_per_s"], 200.0);
  EXPECT_EQ(result["nodes"][0]["operations_per_s"], 3'000.0);
}

TEST(RatesTest, SilentNodeHasNoRates) {
  Json after = look(20, 1, 1, 1);
  after["nodes"][0].erase("statistics");
  after["nodes"][0]["state"] = "unreachable";
  const Json result = rates(look(10, 1, 1, 1), after, 1);
  EXPECT_FALSE(result["nodes"][0].contains("operations_per_s"));
  EXPECT_NE(format_rates(result).find("storage node 1   unreachable: no answer"), std::string::npos)
      << format_rates(result);
}

TEST(RatesTest, FormatsText) {
  const std::string text = format_rates(rates(look(10, 0, 1, 0), look(20, 12'345, 1, 5'000), 1));
  EXPECT_NE(text.find("12,345 commits/s"), std::string::npos) << text;
  EXPECT_NE(text.find("5,000 operations/s"), std::string::npos) << text;
}

}  // namespace
}  // namespace loam::cli
