// Processor time: the cost of work, independent of other programs on the machine.
#pragma once

#include <cstdint>
#include <ctime>

#include "common/base/env.h"

namespace loam {

/// Processor time of one of the system's clocks, nanoseconds. A system call, some 100 ns. The simulator returns its own
/// clock, in which work takes no time.
inline uint64_t cpu_ns(clockid_t clock) {
#ifdef LOAM_ENV_SIM
  static_cast<void>(clock);
  return Env::now_ns();
#else
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
#endif
}

/// Processor time of the calling thread, nanoseconds.
inline uint64_t thread_cpu_ns() { return cpu_ns(CLOCK_THREAD_CPUTIME_ID); }
/// Processor time of all threads of the process, nanoseconds.
inline uint64_t process_cpu_ns() { return cpu_ns(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace loam
