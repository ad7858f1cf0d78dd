#include "benchmarks/harness/report.h"

#include <sstream>

#include <gtest/gtest.h>

namespace loam::bench {
namespace {

TEST(Report, WritesTheContractedFields) {
  std::ostringstream table;
  Report report({"abc123", "-O3", "a machine", 7, true}, table);
  report.add("scan.q64_vs_q1", Samples{{1.2, 1.3, 1.4}}, "ratio", Better::kLower, {{"records", 1000}});
  report.add_unmeasured("rdma.rate_vs_perftest", "ratio", Better::kHigher, "no RDMA device");
  std::ostringstream out;
  report.write_json(out);
  std::istringstream lines(out.str());
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  const auto row = nlohmann::json::parse(line);
  EXPECT_EQ(row["figure"], "scan.q64_vs_q1");
  EXPECT_DOUBLE_EQ(row["value"].get<double>(), 1.3);
  EXPECT_EQ(row["unit"], "ratio");
  EXPECT_EQ(row["better"], "lower");
  EXPECT_EQ(row["n"], 3);
  EXPECT_NEAR(row["spread"].get<double>(), 0.1 / 1.3, 1e-9);
  EXPECT_EQ(row["options"]["records"], 1000);
  EXPECT_EQ(row["options"]["seed"], 7);
  EXPECT_EQ(row["options"]["quick"], true);
  EXPECT_EQ(row["options"]["build"], "-O3");
  EXPECT_EQ(row["revision"], "abc123");
  EXPECT_EQ(row["host"], "a machine");
  EXPECT_FALSE(row.contains("reason"));
  ASSERT_TRUE(std::getline(lines, line));
  const auto missing = nlohmann::json::parse(line);
  EXPECT_TRUE(missing["value"].is_null());
  EXPECT_EQ(missing["reason"], "no RDMA device");
  EXPECT_FALSE(std::getline(lines, line));
  EXPECT_NE(table.str().find("scan.q64_vs_q1"), std::string::npos);
  EXPECT_NE(table.str().find("no RDMA device"), std::string::npos);
}

TEST(Report, DescribesTheHost) { EXPECT_NE(describe_host().find(" cores, Linux "), std::string::npos); }

}  // namespace
}  // namespace loam::bench
