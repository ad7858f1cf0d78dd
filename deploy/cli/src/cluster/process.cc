// Identifies processes by pid and start time in /proc/PID/stat, because the kernel reuses pids. Starts them by
// posix_spawn().
#include "deploy/cli/src/cluster/process.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <deque>
#include <fstream>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/env.h"

namespace loam::cli {
namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(5);

struct Stat {
  char state = 0;
  uint64_t start_ticks = 0;
};

// The name in the second field may contain spaces and parentheses, so the fields are counted from the last ')'.
std::optional<Stat> read_stat(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(text.substr(name_end + 1));
  Stat stat;
  rest >> stat.state;  // field 3
  std::string skipped;
  for (int field = 4; field < 22; ++field) rest >> skipped;
  rest >> stat.start_ticks;
  if (!rest) return std::nullopt;
  return stat;
}

bool has_other_threads(pid_t pid) {
  std::error_code error;
  size_t threads = 0;
  for (std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", pid), error), end;
       !error && thread != end; thread.increment(error)) {
    ++threads;
  }
  return threads > 1;
}

// The file actions and attributes of posix_spawn(). The destructor frees them on every return path of launch().
class SpawnPlan {
 public:
  SpawnPlan() {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  void fill(int log) {
    // The process must not hold a terminal or a pipe of this program open: a reader of such a pipe would wait until
    // the server ends.
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, log, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, log, STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
    // The process must not inherit blocked or ignored signals, because it is ended by SIGTERM.
    sigset_t all;
    sigset_t none;
    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

Result<ProcessId> launch(const ProcessSpec& launch) {
  const int log = open(launch.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) {
    return Status(StatusCode::kInternal, fmt::format("cannot write {}: {}", launch.log.string(), std::strerror(errno)));
  }
  SpawnPlan plan;
  plan.fill(log);
  const std::string program = launch.program.string();
  std::vector<char*> arguments = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : launch.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  ProcessId process;
  const int error =
      posix_spawn(&process.pid, program.c_str(), plan.actions(), plan.attributes(), arguments.data(), environ);
  close(log);
  if (error == ENOENT) return Status(StatusCode::kNotFound, "there is no program " + program);
  if (error != 0) return Status(StatusCode::kInternal, fmt::format("cannot run {}: {}", program, std::strerror(error)));
  // Only this process can reap the child, so /proc has its entry even if it has ended already.
  if (const auto stat = read_stat(process.pid)) process.start_ticks = stat->start_ticks;
  return process;
}

ProcessState process_state(const ProcessId& process) {
  // A pid of 0 or below addresses process groups in kill(). A damaged pid file must never lead to that.
  if (process.pid <= 0) return ProcessState::kExited;
  // Step 1: reap the process if it is a child that has ended. waitpid() fails for every other process.
  const pid_t waited = waitpid(process.pid, nullptr, WNOHANG);
  if (waited == process.pid) return ProcessState::kExited;
  const bool child = waited == 0;
  // Step 2: compare the start time. A different one means that the pid belongs to a later process.
  const auto stat = read_stat(process.pid);
  if (!stat || stat->start_ticks != process.start_ticks) return ProcessState::kExited;
  // The first thread may be dead while others still hold files and ports. The process cannot be reaped in that state.
  if ((stat->state == 'Z' || stat->state == 'X') && !child && !has_other_threads(process.pid))
    return ProcessState::kExited;
  return stat->state == 'T' || stat->state == 't' ? ProcessState::kPaused : ProcessState::kRunning;
}

uint64_t uptime_ns(const ProcessId& process) {
  if (process_state(process) == ProcessState::kExited) return 0;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const uint64_t now_ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  // Both times count from the boot of the host and include the time in suspend.
  const uint64_t start_ns = process.start_ticks * (1'000'000'000 / static_cast<uint64_t>(sysconf(_SC_CLK_TCK)));
  return now_ns > start_ns ? now_ns - start_ns : 0;
}

bool send_signal(const ProcessId& process, int signal) {
  // Between check and signal the process may end and its pid may be used again. That needs a full cycle of pids within
  // microseconds.
  return process_state(process) != ProcessState::kExited && kill(process.pid, signal) == 0;
}

bool wait_exited(const ProcessId& process, uint64_t timeout_ns) {
  const uint64_t end_ns = Env::now_ns() + timeout_ns;
  while (process_state(process) != ProcessState::kExited) {
    if (Env::now_ns() >= end_ns) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
  return true;
}

StopOutcome stop_process(const ProcessId& process, uint64_t grace_period_ns) {
  if (!send_signal(process, SIGTERM)) return StopOutcome::kNotRunning;
  send_signal(process, SIGCONT);
  if (wait_exited(process, grace_period_ns)) return StopOutcome::kTerminated;
  send_signal(process, SIGKILL);
  constexpr uint64_t kKillTakesNs = 10'000'000'000;  // the kernel needs seconds to unmap tens of GiB
  wait_exited(process, kKillTakesNs);
  return StopOutcome::kKilled;
}

std::optional<ProcessId> read_pid_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  ProcessId process;
  if (!(file >> process.pid >> process.start_ticks) || process.pid <= 0) return std::nullopt;
  return process;
}

Status write_pid_file(const std::filesystem::path& path, const ProcessId& process) {
  std::ofstream file(path, std::ios::trunc);
  file << process.pid << ' ' << process.start_ticks << '\n';
  file.close();
  if (!file) return Status(StatusCode::kInternal, "cannot write " + path.string());
  return ok_status();
}

std::vector<std::string> last_lines(const std::filesystem::path& path, size_t count, uint64_t offset) {
  std::ifstream file(path);
  file.seekg(static_cast<std::streamoff>(offset));
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > count) lines.pop_front();
  }
  return {lines.begin(), lines.end()};
}

}  // namespace loam::cli
