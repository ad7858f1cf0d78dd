// Runs the workload on a real cluster without faults: the oracle must find no violation, and every activity must take
// place.
#include "tests/sim/workload.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "client-lib/testing/cluster_test_fixture.h"
#include "common/base/env.h"

namespace loam::sim {
namespace {

TEST(SimWorkloadTest, IsCorrectOnAHealthyCluster) {
  testing::Random random(testing::test_seed(11));
  client::TestCluster cluster(2);
  Oracle oracle([] { return Env::now_ns(); });
  WorkloadShape shape;
  shape.operations = 150;
  shape.long_ns = 3'000'000;
  shape.trees = true;
  shape.adds_fields = true;
  shape.indexes = IndexSet::kAll;
  set_up(*cluster.client(), oracle, shape);
  ASSERT_FALSE(oracle.failed()) << oracle.message();
  std::vector<std::thread> processes;
  for (uint32_t process = 1; process <= 3; ++process) {
    processes.emplace_back([&, process, own = random.fork()] {
      const auto client = cluster.client();
      run_workload({*client, oracle, own, process, [&] { return oracle.failed(); }, shape});
    });
  }
  for (std::thread& process : processes) process.join();
  ASSERT_FALSE(oracle.failed()) << oracle.message();
  audit(*cluster.client(), oracle);
  oracle.final_check();
  EXPECT_FALSE(oracle.failed()) << oracle.message();
  const OracleStatistics statistics = oracle.statistics();
  EXPECT_GT(statistics.commits, 300u);
  EXPECT_GT(statistics.aborts, 20u);
  EXPECT_GT(statistics.reads, 1'000u);
  EXPECT_GT(statistics.scans, 100u);
  EXPECT_GT(statistics.plain_writes, 50u);
  EXPECT_GT(statistics.counter_numbers, 20u);
  EXPECT_GT(statistics.tables_created, 3u);
  EXPECT_GT(statistics.tree_changes, 200u);
  EXPECT_EQ(statistics.unknown, 0u);
  std::printf(
      "%lu transactions, %lu commits, %lu aborts, %lu reads, %lu scans, %lu plain writes, %lu numbers, %lu tables\n",
      statistics.transactions, statistics.commits, statistics.aborts, statistics.reads, statistics.scans,
      statistics.plain_writes, statistics.counter_numbers, statistics.tables_created);
}

}  // namespace
}  // namespace loam::sim
