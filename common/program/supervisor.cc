// The protocol is that of libsystemd: datagrams to a socket that systemd names in the environment.
#include "common/program/supervisor.h"

#include <algorithm>

#include <systemd/sd-daemon.h>

namespace loam::program {

Supervisor::Supervisor() {
  uint64_t watchdog_us = 0;
  if (::sd_watchdog_enabled(0, &watchdog_us) > 0) watchdog_us_ = watchdog_us;
}

void Supervisor::serving(const std::string& line) { ::sd_notify(0, ("READY=1\nSTATUS=" + line).c_str()); }

void Supervisor::stopping() { ::sd_notify(0, "STOPPING=1\nSTATUS=stopping"); }

std::optional<std::chrono::milliseconds> Supervisor::feed_period() const {
  if (watchdog_us_ == 0) return std::nullopt;
  return std::chrono::milliseconds(std::max<uint64_t>(1, watchdog_us_ / 4'000));
}

void Supervisor::feed(uint64_t rounds) {
  if (watchdog_us_ == 0 || rounds_ == rounds) return;
  rounds_ = rounds;
  ::sd_notify(0, "WATCHDOG=1");
}

}  // namespace loam::program
