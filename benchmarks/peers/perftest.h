// perftest, the benchmark programs for verbs of rdma-core, whose results are the ceilings of the rdma figures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace loam::bench {

/// Options of one measurement.
struct PerftestOptions {
  std::string host;  ///< an address of this host's RDMA device
  uint16_t port = 18'515;
  size_t message_bytes = 64;
  size_t iterations = 2'000;
  size_t window = 16;  ///< sends in flight, for the rate
};

/// Measures the median round trip of ib_send_lat in microseconds, which is twice the value that it prints. Both sides
/// run on this host and poll. kUnavailable: it is not installed or gives no result; the message has its output.
Result<double> perftest_round_trip_us(const PerftestOptions& options);

/// Measures the messages per second of ib_send_bw in one direction. kUnavailable as above.
Result<double> perftest_messages_per_s(const PerftestOptions& options);

}  // namespace loam::bench
