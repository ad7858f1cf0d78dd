// `loam::Env`: the atomics, clock and yields that product code uses, chosen when a library is compiled.
//
// Product code that runs under the explorer or the simulator uses `loam::Env` (and thread.h) for atomics, time,
// randomness and yielding, and no other source of them. In production `Env` consists of aliases and inline calls that
// cost nothing: Env::Atomic is std::atomic. The `_sim` twin of a library (cmake/loam.cmake) compiles the same sources
// with LOAM_ENV_SIM. There every atomic operation is a scheduling point, and time and randomness come from a seed. A
// program never links both kinds. (docs/decisions/0001-environment-seam.md)
#pragma once

#ifdef LOAM_ENV_SIM
#include "common/base/env_sim.h"  // IWYU pragma: export
#else
#include "common/base/env_real.h"  // IWYU pragma: export
#endif
