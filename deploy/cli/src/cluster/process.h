// Background processes: starts a program in the background, finds it again by its pid file, and ends it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "common/base/status.h"

namespace loam::cli {

/// Identifies a process of this host. The start time distinguishes it from a later process with the same pid. Plain
/// value.
struct ProcessId {
  pid_t pid = 0;
  uint64_t start_ticks = 0;  ///< field 22 of /proc/PID/stat: start time in clock ticks since the boot of the host

  friend bool operator==(const ProcessId&, const ProcessId&) = default;
};

/// What the kernel says about a process.
enum class ProcessState : uint8_t {
  kExited,  ///< gone, or a zombie
  kRunning,
  kPaused,  ///< stopped by SIGSTOP
};

/// The program that launch() starts.
struct ProcessSpec {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  std::filesystem::path log;  ///< receives standard output and standard error, appended
};

/// Starts a program in the background. The process gets a session of its own, so that neither Ctrl-C nor the end of a
/// terminal reaches it, and inherits no open file. kNotFound: the program is missing; kInternal: the system refused.
Result<ProcessId> launch(const ProcessSpec& launch);

/// The present state of the process. Reaps the process if it is a child of this one and has ended.
ProcessState process_state(const ProcessId& process);
/// Time since the start of the process; 0 if it is gone.
uint64_t uptime_ns(const ProcessId& process);
/// Sends a signal to the process; false if it is gone.
bool send_signal(const ProcessId& process, int signal);
/// Blocks until the process is gone; false if it still runs after `timeout_ns`.
bool wait_exited(const ProcessId& process, uint64_t timeout_ns);

/// How stop_process() ended a process: kTerminated by SIGTERM, kKilled by SIGKILL.
enum class StopOutcome : uint8_t { kNotRunning, kTerminated, kKilled };
/// Ends a process by SIGTERM (followed by SIGCONT, because a paused process handles no SIGTERM), and by SIGKILL if it
/// still runs after `grace_period_ns`.
StopOutcome stop_process(const ProcessId& process, uint64_t grace_period_ns);

/// Reads a pid file, whose content is "PID START_TICKS". Empty if the file is missing or malformed.
std::optional<ProcessId> read_pid_file(const std::filesystem::path& path);
/// Writes a pid file.
Status write_pid_file(const std::filesystem::path& path, const ProcessId& process);

/// The last `count` lines of the part of a file that begins at `offset`.
std::vector<std::string> last_lines(const std::filesystem::path& path, size_t count, uint64_t offset = 0);

}  // namespace loam::cli
