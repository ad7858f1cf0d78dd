// The limit on open files, looked at before it is reached.
#pragma once

#include <cstddef>

#include "common/base/status.h"

namespace loam::program {

/// Descriptors that a server needs beside those of its connections. gRPC ends the process if it gets none, so
/// a program that starts a server checks first. Measured: `loam dev` holds 33 after its start.
inline constexpr size_t kServerDescriptors = 64;
/// Descriptors that a client of the cluster and of its administration needs.
inline constexpr size_t kClientDescriptors = 24;

/// Raises the limit on open files to what the system allows, and tells whether `wanted` more can be opened now.
/// kNoSpace says how many the process may open and what to do.
Status ensure_descriptors(size_t wanted);

}  // namespace loam::program
