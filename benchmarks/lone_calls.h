// One thread that makes one call after the other: what a call costs that nothing else shares.
#pragma once

#include <string>

#include "benchmarks/suite.h"

namespace loam::bench {

/// Figures of one get and of one transfer by an ordinary thread, with and without a spin before its sleep, in turns.
/// Every value read is checked.
void lone_calls(Run& run, const std::string& manager);

}  // namespace loam::bench
