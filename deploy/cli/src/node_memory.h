// How much memory the options for a storage node take.
#pragma once

#include "common/program/numbers.h"

namespace loam::cli {

/// The ends only keep typing errors out: the node knows what it needs, and the host what it has.
inline constexpr program::WholeRange kNodeMemoryRange{uint64_t{4} << 10, uint64_t{1} << 50};

}  // namespace loam::cli
