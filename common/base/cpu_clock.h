// Processor time: the cost of work, independent of the other programs on the machine.
#pragma once

#include <cstdint>
#include <ctime>

#include "common/base/env.h"

namespace loam {

/// Reads one of the operating system's clocks of processor time, in nanoseconds. The read is a system call of about
/// 100 ns. The simulator returns its own clock instead, in which work takes no time.
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

/// Processor time that the calling thread has used, in nanoseconds.
inline uint64_t thread_cpu_ns() { return cpu_ns(CLOCK_THREAD_CPUTIME_ID); }
/// Processor time that all threads of the process have used, in nanoseconds.
inline uint64_t process_cpu_ns() { return cpu_ns(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace loam
