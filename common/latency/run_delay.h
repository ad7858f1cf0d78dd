// How long the operating system let a thread wait for a core.
#pragma once

#include <cstdint>

namespace loam::latency {

/// The last look of a poll that has not looked, or of a transport that does not tell.
inline constexpr uint64_t kNoLookNs = 0;

/// Returns the time from a poll's last look for events to `now_ns`; 0 if it is under 200 us. If a hypervisor ran other
/// machines, no other number shows the wait. An upper bound: earlier events of the same poll were handled meanwhile.
inline uint64_t unseen_ns_at(uint64_t now_ns, uint64_t last_look_ns) {
  constexpr uint64_t kUnseenNs = 200'000;  // a spinning poll looks every few microseconds
  const bool unseen = last_look_ns != kNoLookNs && now_ns >= last_look_ns + kUnseenNs;
  return unseen ? now_ns - last_look_ns : 0;
}

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
