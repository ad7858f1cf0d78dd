// The messages of a server program to systemd.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace loam::program {

/// Tells systemd when a program serves, stops, and goes on serving [sd_notify(3)].
///
/// Does nothing if systemd has not started the program as a service of Type=notify. The watchdog runs only if the unit
/// sets WatchdogSec.
///
/// Owner: Program. One thread.
class Supervisor {
 public:
  /// Reads NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID from the environment.
  Supervisor();

  /// Tells that the program serves. `line` is shown by `systemctl status`.
  void serving(const std::string& line);
  /// Tells that the program has begun to stop.
  void stopping();

  /// Returns the longest time between two calls of feed(): a quarter of WatchdogSec; nullopt: no watchdog runs.
  std::optional<std::chrono::milliseconds> feed_period() const;
  /// Feeds the watchdog if the loop that serves has gone on since the last call. `rounds` is the number of rounds of
  /// this loop. A loop that hangs is not fed, so systemd ends the program after WatchdogSec.
  void feed(uint64_t rounds);

 private:
  uint64_t watchdog_us_ = 0;  // 0: no watchdog
  std::optional<uint64_t> rounds_;
};

}  // namespace loam::program
