#include "common/admin/metrics.h"

#include <tuple>

#include <gtest/gtest.h>

namespace loam {
namespace {

struct ServerSample {
  uint64_t requests = 0, busy_ns = 0, memory_bytes = 0;
  bool ready = false;
  std::string cluster;

  static constexpr auto fields() {
    using namespace statistics;
    return std::tuple(counter("requests", &ServerSample::requests, "requests since the start"),
                      counter("busy_ns", &ServerSample::busy_ns, "time in requests"),
                      gauge("memory_bytes", &ServerSample::memory_bytes, "memory in use"),
                      flag("ready", &ServerSample::ready, "the server serves"),
                      text("cluster", &ServerSample::cluster, "id of the cluster"));
  }
};

TEST(Metrics, EachFieldBecomesOneMetric) {
  Metrics metrics;
  metrics.add("loam_test", ServerSample{7, 1'500'000'000, 4'096, true, "c1"});
  EXPECT_EQ(metrics.text(),
            "# HELP loam_test_requests_total requests since the start\n"
            "# TYPE loam_test_requests_total counter\n"
            "loam_test_requests_total 7\n"
            "# HELP loam_test_busy_seconds_total time in requests\n"
            "# TYPE loam_test_busy_seconds_total counter\n"
            "loam_test_busy_seconds_total 1.5\n"
            "# HELP loam_test_memory_bytes memory in use\n"
            "# TYPE loam_test_memory_bytes gauge\n"
            "loam_test_memory_bytes 4096\n"
            "# HELP loam_test_ready the server serves\n"
            "# TYPE loam_test_ready gauge\n"
            "loam_test_ready 1\n"
            "# HELP loam_test_info texts about the process or object, as labels\n"
            "# TYPE loam_test_info gauge\n"
            "loam_test_info{cluster=\"c1\"} 1\n");
}

TEST(Metrics, SamplesOfOneNameStandTogether) {
  Metrics metrics;
  metrics.add("loam_table", ServerSample{1, 0, 10, false, ""}, {{"table", "a"}}, {"busy_ns", "ready", "cluster"});
  metrics.add("loam_table", ServerSample{2, 0, 20, false, ""}, {{"table", "b\"\n\\"}}, {"busy_ns", "ready", "cluster"});
  EXPECT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics.text(),
            "# HELP loam_table_requests_total requests since the start\n"
            "# TYPE loam_table_requests_total counter\n"
            "loam_table_requests_total{table=\"a\"} 1\n"
            "loam_table_requests_total{table=\"b\\\"\\n\\\\\"} 2\n"
            "# HELP loam_table_memory_bytes memory in use\n"
            "# TYPE loam_table_memory_bytes gauge\n"
            "loam_table_memory_bytes{table=\"a\"} 10\n"
            "loam_table_memory_bytes{table=\"b\\\"\\n\\\\\"} 20\n");
}

TEST(Metrics, LargeCountersAreWrittenInFull) {
  Metrics metrics;
  metrics.add("loam_test", ServerSample{uint64_t{1} << 53, 0, 0, false, ""});
  EXPECT_NE(metrics.text().find("loam_test_requests_total 9007199254740992\n"), std::string::npos) << metrics.text();
}

}  // namespace
}  // namespace loam
