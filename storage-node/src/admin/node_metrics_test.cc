#include "storage-node/src/admin/node_metrics.h"

#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace loam::storage {
namespace {

/// Tables t0 … with i bytes of log and one get, of which the largest come last.
NodeStatistics node_with(size_t tables) {
  NodeStatistics node;
  for (size_t i = 0; i < tables; ++i) {
    TableStatistics table;
    table.table = i;
    table.name = "t" + std::to_string(i);
    table.log_bytes = i;
    table.garbage_bytes = 1;
    table.gets = 1;
    node.tables.push_back(table);
  }
  return node;
}

/// Returns the samples of a metric by the label `table`.
std::map<std::string, uint64_t> samples(const std::string& text, const std::string& metric) {
  std::map<std::string, uint64_t> found;
  const std::string begin = metric + "{table=\"";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(begin)) continue;
    const size_t end = line.find('"', begin.size());
    found[line.substr(begin.size(), end - begin.size())] = std::stoull(line.substr(line.rfind(' ')));
  }
  return found;
}

TEST(NodeMetrics, NameTheLargestTablesAndSumTheRest) {
  constexpr size_t kTables = 1'000;
  const std::string text = metrics_of(node_with(kTables), {});
  const auto log_bytes = samples(text, "loam_table_log_bytes");
  ASSERT_EQ(log_bytes.size(), kTablesInMetrics + 1);
  for (size_t i = kTables - kTablesInMetrics; i < kTables; ++i) EXPECT_EQ(log_bytes.at("t" + std::to_string(i)), i);
  constexpr size_t kOthers = kTables - kTablesInMetrics;
  EXPECT_EQ(log_bytes.at(kOtherTables), kOthers * (kOthers - 1) / 2);
  EXPECT_EQ(samples(text, "loam_table_garbage_bytes").at(kOtherTables), kOthers);
  const auto gets = samples(text, "loam_table_gets_total");
  EXPECT_EQ(gets.size(), kTablesInMetrics);
  EXPECT_FALSE(gets.contains(kOtherTables)) << "a counter that falls looks like a restart";
}

TEST(NodeMetrics, HaveNoOthersIfAllTablesAreNamed) {
  const auto log_bytes = samples(metrics_of(node_with(kTablesInMetrics), {}), "loam_table_log_bytes");
  EXPECT_EQ(log_bytes.size(), kTablesInMetrics);
  EXPECT_FALSE(log_bytes.contains(kOtherTables));
  EXPECT_TRUE(samples(metrics_of({}, {}), "loam_table_log_bytes").empty());
}

}  // namespace
}  // namespace loam::storage
