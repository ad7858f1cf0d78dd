// The range of options that set the memory of a storage node.
#pragma once

#include "common/program/numbers.h"

namespace loam::cli {

/// The memory of a storage node, bytes. The bounds only catch typing errors: the storage node checks what it needs, and
/// the host what it has.
inline constexpr program::UnsignedRange kNodeMemoryRange{uint64_t{4} << 10, uint64_t{1} << 50};

}  // namespace loam::cli
