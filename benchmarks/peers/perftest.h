// perftest, the programs of rdma-core that tell what verbs give: the ceiling of the rdma figures.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/base/status.h"

namespace loam::bench {

struct PerftestOptions {
  std::string host;  ///< an address of this host's RDMA device
  uint16_t port = 18'515;
  size_t message_bytes = 64;
  size_t iterations = 2'000;
  size_t window = 16;  ///< sends under way, of the rate
};

/// Median of the round trips of ib_send_lat, microseconds: twice what it prints. Both of its sides run on this host and
/// poll. kUnavailable if it is not installed or does not come to a result; the message has its words.
Result<double> perftest_round_trip_us(const PerftestOptions& options);

/// Messages a second of ib_send_bw, one way.
Result<double> perftest_messages_per_s(const PerftestOptions& options);

}  // namespace loam::bench
