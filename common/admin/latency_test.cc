// Tests of the order, names and limits of slow operations in replies, of histograms in metrics, and of latencies in the
// history.
#include "common/admin/latency.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace loam {
namespace {

using latency::OperationKind;
using latency::SlowOperation;
using latency::Stage;

latency::Latencies sample() {
  latency::Recorder recorder;
  recorder.operation(OperationKind::kRead, 3'000, 99);
  recorder.operation(OperationKind::kRead, 9'000'000);
  recorder.stage(Stage::kQueue, 1'500);
  for (uint64_t i = 1; i <= 20; ++i) {
    SlowOperation one;
    one.ended_ns = 1'000 * i;
    one.kind = OperationKind::kRead;
    one.session = 7;
    one.first_sequence = one.last_sequence = i;
    one.requests = 1;
    one.stages[Stage::kQueue] = 1'000'000 * i;
    one.stages[Stage::kExecution] = 400'000;
    recorder.slow(one);
  }
  latency::Latencies all;
  all.add(recorder);
  all.now_ns = 100'000;
  return all;
}

TEST(AdminLatency, TheSlowestOperationsComeFirstWithTheirStages) {
  admin::SlowOperationsReply reply;
  fill_slow_operations(sample(), 3, reply);
  ASSERT_EQ(reply.operations_size(), 3);
  EXPECT_EQ(reply.seen(), 20u);
  const admin::SlowOperation& first = reply.operations(0);
  EXPECT_EQ(first.total_ns(), 20'400'000u);
  EXPECT_EQ(first.age_ns(), 80'000u);
  EXPECT_EQ(first.kind(), "read");
  EXPECT_EQ(first.session(), 7u);
  EXPECT_EQ(first.first_sequence(), 20u);
  EXPECT_EQ(first.cause(), "queue");
  ASSERT_EQ(first.stages_size(), 2);
  EXPECT_EQ(first.stages(0).stage(), "queue");
  EXPECT_EQ(first.stages(1).stage(), "execution");
  EXPECT_EQ(first.stages(1).ns(), 400'000u);
  EXPECT_EQ(reply.operations(2).first_sequence(), 18u);
}

TEST(AdminLatency, OnlyKindsThatOccurredAreListed) {
  admin::SlowOperationsReply reply;
  fill_slow_operations(sample(), 0, reply);
  EXPECT_EQ(reply.operations_size(), 0);
  ASSERT_EQ(reply.kinds_size(), 1);
  EXPECT_EQ(reply.kinds(0).requests(), 100u);
  EXPECT_EQ(reply.kinds(0).mean_ns(), (99 * 3'000u + 9'000'000u) / 100);
  EXPECT_EQ(reply.kinds(0).p50_ns(), 4'000u);
  EXPECT_EQ(reply.kinds(0).p99_ns(), 4'000u);
  EXPECT_EQ(reply.kinds(0).p999_ns(), 16'384'000u) << "the longest one of 100";
}

TEST(AdminLatency, RecentLatenciesCountOnlyWhatHappenedSinceTheLastSample) {
  latency::Recorder recorder;
  RecentLatencies recent({{.name = "reads", .kinds = {OperationKind::kRead, OperationKind::kPlainRead}},
                          {.name = "writes", .kinds = {OperationKind::kWrite}}},
                         [&] {
                           latency::Latencies all;
                           all.add(recorder, false);
                           return all;
                         });
  std::vector<std::string> names;
  for (const auto& column : recent.columns()) {
    names.push_back(column.name());
    EXPECT_EQ(column.kind(), admin::GAUGE);
    EXPECT_NE(column.help().find("upper bound"), std::string::npos) << column.help();
  }
  EXPECT_EQ(names, (std::vector<std::string>{"reads_p50_ns", "reads_p99_ns", "reads_p999_ns", "writes_p50_ns",
                                             "writes_p99_ns", "writes_p999_ns"}));
  using Values = std::vector<uint64_t>;
  EXPECT_EQ(recent.sample(), Values(6, 0)) << "no operations";
  recorder.operation(OperationKind::kRead, 3'000, 990);
  recorder.operation(OperationKind::kPlainRead, 30'000, 8);
  recorder.operation(OperationKind::kPlainRead, 9'000'000, 2);
  recorder.operation(OperationKind::kScan, 1'000'000, 500);
  EXPECT_EQ(recent.sample(), (Values{4'000, 4'000, 16'384'000, 0, 0, 0})) << "both kinds of the group, and no other";
  recorder.operation(OperationKind::kRead, 60'000);
  recorder.operation(OperationKind::kWrite, 5'000);
  EXPECT_EQ(recent.sample(), (Values{64'000, 64'000, 64'000, 8'000, 8'000, 8'000}));
  EXPECT_EQ(recent.sample(), Values(6, 0));
}

TEST(AdminLatency, SlowOperationsAreCountedWithoutTheirList) {
  latency::Recorder recorder;
  recorder.slow(SlowOperation());
  latency::Latencies all;
  all.add(recorder, false);
  EXPECT_TRUE(all.slow.empty());
  EXPECT_EQ(all.slow_seen, 1u);
}

TEST(AdminLatency, AHistogramCountsAllDurationsUpToEachBound) {
  Metrics metrics;
  add_latencies(metrics, "loam_test", sample(), std::array{OperationKind::kRead}, std::array{Stage::kQueue});
  const std::string text = metrics.text();
  for (const char* line :
       {"# TYPE loam_test_request_seconds histogram\n", "loam_test_request_seconds_count{kind=\"read\"} 100\n",
        "loam_test_request_seconds_bucket{kind=\"read\",le=\"2e-06\"} 0\n",
        "loam_test_request_seconds_bucket{kind=\"read\",le=\"4e-06\"} 99\n",
        "loam_test_request_seconds_bucket{kind=\"read\",le=\"+Inf\"} 100\n",
        "loam_test_stage_seconds_count{stage=\"queue\"} 1\n", "loam_test_slow_operations_total 20\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

}  // namespace
}  // namespace loam
