#include "benchmarks/peers/comparison.h"

#include <string>

#include <gtest/gtest.h>

namespace loam::bench {
namespace {

PeerPair pair_of(double node_busy, double memcached_busy, double memcached_per_s) {
  PeerPair pair;
  pair.node.client_busy.values = {node_busy};
  pair.memcached.client_busy.values = {memcached_busy};
  pair.memcached.per_s.values = {memcached_per_s};
  return pair;
}

TEST(PeerComparison, InvalidatesFigureWhenLoadGeneratorOrMachineIsBottleneck) {
  EXPECT_EQ(invalid_reason(pair_of(0.9, 0.9, 800), 1'000), "");
  EXPECT_NE(invalid_reason(pair_of(0.96, 0.9, 800), 1'000), "");
  EXPECT_NE(invalid_reason(pair_of(0.9, 0.96, 800), 1'000), "");
  EXPECT_NE(invalid_reason(pair_of(0.9, 0.9, 799), 1'000), "");
  EXPECT_EQ(invalid_reason(pair_of(0.9, 0.9, 1), 0), "");
}

TEST(PeerComparison, WritesInvalidFigureAsNullWithMedianInReason) {
  const Samples samples{{0.5, 0.5, 0.5}};
  const Figure measured = figure_of("peers.x", samples, "ratio", Better::kLower, "");
  EXPECT_EQ(measured.value, 0.5);
  EXPECT_EQ(measured.n, 3u);
  const Figure lost = figure_of("peers.x", samples, "ratio", Better::kLower, "busy", {{"records", 7}});
  EXPECT_EQ(lost.value, std::nullopt);
  EXPECT_NE(lost.reason.find("busy"), std::string::npos);
  EXPECT_NE(lost.reason.find("0.5 ratio"), std::string::npos) << lost.reason;
  EXPECT_EQ(lost.options["records"], 7);
}

TEST(PeerServers, FindsAddressInLogLine) {
  EXPECT_EQ(serving_address("12:00 [info] serving at tcp://127.0.0.1:7401, administration at 127.0.0.1:1"),
            "tcp://127.0.0.1:7401");
  EXPECT_EQ(serving_address("serving at tcp://[::1]:7"), "tcp://[::1]:7");
  EXPECT_EQ(serving_address("stopping"), std::nullopt);
}

TEST(PeerServers, CpuTimesOfThisProcessIncrease) {
  const auto total = [] {
    uint64_t ns = 0;
    for (const auto& [name, time] : thread_times(getpid())) ns += time;
    return ns;
  };
  const uint64_t before = total();
  const uint64_t from = thread_cpu_ns();
  while (thread_cpu_ns() - from < 30'000'000) {
  }
  EXPECT_GE(total() - before, 20'000'000u);
  EXPECT_TRUE(thread_times(0).empty());
}

TEST(PeerServers, ErrorOfEndedProgramHasItsLog) {
  const std::string log = ::testing::TempDir() + "/peer_server.log";
  ServerProcess process({"/bin/sh", {"-c", "echo it ends; exit 3"}, log, 0, ""});
  try {
    process.wait_serving();
    FAIL() << "it serves?";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("it ends"), std::string::npos) << error.what();
  }
}

TEST(PeerServers, MissingProgramsAreNamed) {
  Servers::Options options;
  options.programs = "/nonexistent";
  if (usable_cores() < 2) GTEST_SKIP() << "needs two cores";
  EXPECT_NE(Servers::missing(options).find("loam-storage-node"), std::string::npos);
}

}  // namespace
}  // namespace loam::bench
