// Measures the latency of one call at a time by one thread, without batching.
#pragma once

#include <string>

#include "benchmarks/harness/suite.h"

namespace loam::bench {

/// Adds the figures of one get and of one transfer by an ordinary thread, with and without a spin before its sleep, in
/// turns. Checks every value that it reads.
void serial_calls(Run& run, const std::string& manager);

}  // namespace loam::bench
