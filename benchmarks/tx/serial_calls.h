// Measures the latency of one call at a time by one thread, without batching.
#pragma once

#include <string>

#include "benchmarks/harness/suite.h"

namespace loam::bench {

/// Adds the figures tx.lone_*: the latency of one get and of one transfer by an ordinary thread that waits for each
/// reply, and the voluntary context switches of the process for each call. Checks every value that it reads.
void serial_calls(Run& run, const std::string& manager);

}  // namespace loam::bench
