// A check of the limit on open files at the start of a program.
#pragma once

#include <cstddef>

#include "common/base/status.h"

namespace loam::program {

/// Number of free descriptors that a server needs at its start, besides those of its connections. gRPC aborts the
/// process if it cannot open one, so a program checks the number before it starts a server. Measured: `loam dev` holds
/// 33 descriptors after its start.
inline constexpr size_t kServerDescriptors = 64;
/// Number of free descriptors that a client of the cluster and of its administration needs.
inline constexpr size_t kClientDescriptors = 24;

/// Raises the process's limit on open files to the hard limit, and checks that `wanted` more files can be opened now.
///
/// kNoSpace: fewer can be opened. The message names the limit, the number of free descriptors, and the remedy. The
/// check opens `wanted` descriptors and closes them again; other threads must not need descriptors meanwhile.
Status ensure_descriptors(size_t wanted);

}  // namespace loam::program
