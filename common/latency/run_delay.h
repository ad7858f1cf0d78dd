// How long the operating system let a thread wait for a core.
#pragma once

#include <cstdint>

namespace loam::latency {

/// Reads how long the calling thread was ready while the operating system ran other threads.
///
/// Linux counts this time for each thread (/proc/thread-self/schedstat). A reading is a system call of about 1 us, so
/// only slow rounds make one. Where the file does not exist, and in the simulator, all readings are 0.
///
/// Owner and threads: the thread that made the object, which alone reads it.
class RunDelay {
 public:
  RunDelay();
  ~RunDelay();
  RunDelay(const RunDelay&) = delete;
  RunDelay& operator=(const RunDelay&) = delete;

  /// Returns the time that the thread has waited for a core since the last call, or since the construction.
  uint64_t since_last_ns();

 private:
  uint64_t read_ns() const;

  int file_ = -1;
  uint64_t last_ns_ = 0;
};

}  // namespace loam::latency
