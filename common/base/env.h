// The seam between Loam and the world: one compile-time environment, chosen per build of a library.
//
// Product code that runs under the explorer and the simulator names nothing but `loam::Env` for atomics, time,
// randomness and yielding. In production `Env` is a set of aliases and inline calls that cost nothing (Env::Atomic *is*
// std::atomic). The `_sim` twin of a library (cmake/loam.cmake) compiles the same sources with LOAM_ENV_SIM, where
// every atomic operation is a scheduling point and time and randomness come from a seed. Never link both kinds into one
// program. (docs/decisions/0001-environment-seam.md)
#pragma once

#ifdef LOAM_ENV_SIM
#include "common/base/env_sim.h"  // IWYU pragma: export
#else
#include "common/base/env_real.h"  // IWYU pragma: export
#endif
