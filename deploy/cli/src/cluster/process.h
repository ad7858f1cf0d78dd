// Programs that run on by themselves: started into the background, found again by their pid files, ended.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "common/base/status.h"

namespace loam::cli {

/// A process of this host, told apart from a later one with the same pid by the moment of its start. Plain value.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_ticks = 0;  ///< field 22 of /proc/PID/stat: clock ticks since the host's start

  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

enum class Life : uint8_t {
  kGone,
  kRunning,
  kPaused,  ///< by SIGSTOP
};

struct Launch {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  std::filesystem::path log;  ///< standard output and error are appended to it
};

/// Starts a program in a session of its own, so that neither Ctrl-C nor the end of a terminal reaches it; it inherits
/// no open file. kNotFound: the program is missing; kInternal: the system refused.
Result<ProcessId> launch(const Launch& launch);

/// The process as it is now; reaps it if it is a child of this one and has ended.
Life life_of(const ProcessId& process);
/// Since its start; 0 if it is gone.
uint64_t uptime_ns(const ProcessId& process);
/// Sends a signal if it still runs; false if it is gone.
bool send_signal(const ProcessId& process, int signal);
/// Waits until it is gone; false after `timeout_ns`.
bool wait_gone(const ProcessId& process, uint64_t timeout_ns);

enum class Ending : uint8_t { kWasGone, kTerminated, kKilled };
/// SIGTERM (and SIGCONT, for one that is paused); SIGKILL if it still runs after `patience_ns`.
Ending end(const ProcessId& process, uint64_t patience_ns);

/// Pid files hold "PID START_TICKS". Nothing: there is none, or it is not understood.
std::optional<ProcessId> read_pid_file(const std::filesystem::path& path);
Status write_pid_file(const std::filesystem::path& path, const ProcessId& process);

/// The last `count` lines of a file, of what was written at or after `offset`.
std::vector<std::string> last_lines(const std::filesystem::path& path, size_t count, uint64_t offset = 0);

}  // namespace loam::cli
