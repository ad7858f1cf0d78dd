// CPU time of a thread: what its work costs, whoever else wants the core.
#pragma once

#include <cstdint>
#include <ctime>

#include "common/base/env.h"

namespace loam {

/// Of the calling thread, nanoseconds. A system call, some 100 ns. In the simulator work takes no time: its clock.
inline uint64_t thread_cpu_ns() {
#ifdef LOAM_ENV_SIM
  return Env::now_ns();
#else
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
#endif
}

}  // namespace loam
