// Starts and ends the server processes by their pid files (process.h), and asks them for their state through their
// administration (admin_client.h).
#include "deploy/cli/src/cluster/local_cluster.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/env.h"
#include "deploy/cli/src/admin/admin_client.h"
#include "deploy/cli/src/output/human_readable.h"

namespace loam::cli {
namespace {

namespace fs = std::filesystem;

constexpr auto kPollInterval = std::chrono::milliseconds(20);
constexpr uint64_t kHealthWithinNs = 5'000'000'000;
constexpr size_t kLogLinesShown = 12;

bool has_lost_records(const Member& node, const Member& manager) {
  const auto nodes = list_nodes(manager.admin_address);
  return nodes.ok() && std::any_of(nodes->begin(), nodes->end(), [&](const auto& one) {
           return one.value("address", "") == node.address && one.value("state", "") == "lost";
         });
}

// Asks a running process for its state. A process that does not answer within kHealthWithinNs counts as kStarting.
MemberState fetch_state(const Member& member, const Member& manager) {
  if (member.role == Role::kCommitManager) {
    const auto health = manager_health(member.admin_address, kHealthWithinNs);
    return health.ok() && health->value("ready", false) ? MemberState::kReady : MemberState::kStarting;
  }
  const auto health = node_health(member.admin_address, kHealthWithinNs);
  if (!health.ok() || health->value("node", uint64_t{0}) == 0) return MemberState::kStarting;
  // A node that has registered but does not serve either waits for the other nodes or has lost its records. The list
  // of the commit manager says which (R10, cluster identity and incarnations).
  if (health->value("in_service", false)) return MemberState::kReady;
  return has_lost_records(member, manager) ? MemberState::kLost : MemberState::kRegistered;
}

}  // namespace

std::string_view to_string(MemberState state) {
  switch (state) {
    case MemberState::kDown:
      return "down";
    case MemberState::kDead:
      return "dead";
    case MemberState::kPaused:
      return "paused";
    case MemberState::kStarting:
      return "starting";
    case MemberState::kRegistered:
      return "registered";
    case MemberState::kLost:
      return "lost";
    case MemberState::kReady:
      return "ready";
  }
  return "?";
}

Result<fs::path> find_program(std::string_view name) {
  std::error_code error;
  const fs::path beside = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<fs::path> places = {beside};
  const char* path = std::getenv("PATH");
  for (std::string_view rest = path == nullptr ? "" : path; !rest.empty();) {
    const size_t colon = std::min(rest.find(':'), rest.size());
    if (colon > 0) places.emplace_back(rest.substr(0, colon));
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  for (const fs::path& place : places) {
    if (access((place / name).c_str(), X_OK) == 0 && fs::is_regular_file(place / name, error)) return place / name;
  }
  return Status(StatusCode::kNotFound,
                fmt::format("the program {} is missing: it is neither in {} nor in PATH; build or "
                            "install all of Loam's programs",
                            name, beside.string()));
}

Status LocalCluster::start(const Member& member) {
  LOAM_ASSIGN_OR_RETURN(const fs::path program, find_program(member.program()));
  // A server that finds its port in use ends at once. The check gives a better message than the log of that server.
  for (const std::string& address : {member.address, member.admin_address}) {
    if (port_is_free(port_of(address))) continue;
    return Status(StatusCode::kUnavailable,
                  fmt::format("{} cannot start: {} is in use by another program", member.name, address));
  }
  // Remembers the size of the log, so that messages show the lines of this start only.
  const fs::path log = folder_.log_file(member);
  std::error_code error;
  const uint64_t size = fs::file_size(log, error);
  log_begin_[member.name] = error ? 0 : size;
  LOAM_ASSIGN_OR_RETURN(const ProcessId process, launch({program, {"--config", folder_.config_file(member)}, log}));
  return write_pid_file(folder_.pid_file(member), process);
}

Status LocalCluster::wait_for(const std::vector<std::string>& names, MemberState state, uint64_t timeout_ns,
                              const std::function<void(const std::vector<std::string>&)>& waiting) {
  // `missing` holds the members that have not reached the state. A member that has reached it is not asked again.
  std::vector<Member> missing;
  for (const Member& member : folder_.members()) {
    if (names.empty() || std::find(names.begin(), names.end(), member.name) != names.end()) missing.push_back(member);
  }
  const uint64_t end_ns = Env::now_ns() + timeout_ns;
  for (;;) {
    LOAM_RETURN_IF_ERROR(check_started());
    std::vector<std::string> waited_for;
    for (auto member = missing.begin(); member != missing.end();) {
      const MemberStatus now = status(*member);
      if (now.state >= state) {
        member = missing.erase(member);
        continue;
      }
      // The process has ended, so it will never reach the state.
      if (now.pid == 0) return ended_at_start(*member);
      waited_for.push_back(member->name);
      ++member;
    }
    if (missing.empty()) return ok_status();
    if (Env::now_ns() >= end_ns) {
      return Status(StatusCode::kTimeout,
                    fmt::format("{} is not {} after {}:\n{}", missing.front().name, to_string(state),
                                format_duration(timeout_ns), end_of_log(missing.front())));
    }
    waiting(waited_for);
    std::this_thread::sleep_for(kPollInterval);
  }
}

// Reports the first member that has ended among those that this object started. A dead process can make others fail, so
// its log explains more than theirs.
Status LocalCluster::check_started() const {
  for (const Member& member : folder_.members()) {
    if (log_begin_.contains(member.name) && status(member, false).state == MemberState::kDead)
      return ended_at_start(member);
  }
  return ok_status();
}

Status LocalCluster::ended_at_start(const Member& member) const {
  return Status(StatusCode::kUnavailable, fmt::format("{} ended at its start:\n{}", member.name, end_of_log(member)));
}

std::string LocalCluster::end_of_log(const Member& member) const {
  const auto begin = log_begin_.find(member.name);
  const fs::path log = folder_.log_file(member);
  std::string text = "  (the end of " + log.string() + ")";
  for (const std::string& line : last_lines(log, kLogLinesShown, begin == log_begin_.end() ? 0 : begin->second)) {
    text += "\n  " + line;
  }
  return text;
}

StopOutcome LocalCluster::stop(const Member& member, uint64_t grace_period_ns) {
  const auto process = read_pid_file(folder_.pid_file(member));
  const StopOutcome ending = process ? stop_process(*process, grace_period_ns) : StopOutcome::kNotRunning;
  std::error_code error;
  // The member is kDown from now on. kill() leaves the pid file, so that a killed member is kDead.
  fs::remove(folder_.pid_file(member), error);
  return ending;
}

void LocalCluster::kill(const Member& member) {
  constexpr uint64_t kKillTakesNs = 10'000'000'000;
  const auto process = read_pid_file(folder_.pid_file(member));
  if (process && send_signal(*process, SIGKILL)) wait_exited(*process, kKillTakesNs);
}

bool LocalCluster::signal(const Member& member, int number) const {
  const auto process = read_pid_file(folder_.pid_file(member));
  return process && send_signal(*process, number);
}

MemberStatus LocalCluster::status(const Member& member, bool health) const {
  MemberStatus status{member, MemberState::kDown, 0, 0, folder_.log_file(member).string()};
  const auto process = read_pid_file(folder_.pid_file(member));
  if (!process) return status;
  // The pid file alone proves nothing: the process may have ended, and another process may have its pid.
  // process_state() compares the start time, too.
  const ProcessState life = process_state(*process);
  if (life == ProcessState::kExited) {
    status.state = MemberState::kDead;
    return status;
  }
  status.pid = process->pid;
  status.uptime_ns = uptime_ns(*process);
  status.state = life == ProcessState::kPaused ? MemberState::kPaused
                 : health                      ? fetch_state(member, folder_.manager())
                                               : MemberState::kStarting;
  return status;
}

std::vector<MemberStatus> LocalCluster::status() const {
  std::vector<MemberStatus> all;
  for (const Member& member : folder_.members()) all.push_back(status(member));
  return all;
}

Result<FolderLock> FolderLock::acquire(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  const fs::path path = directory / "lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return Status(StatusCode::kInternal,
                  fmt::format("cannot write {}: {}; --dir names another folder", path.string(), std::strerror(errno)));
  }
  // The kernel releases the lock when the process ends, even by SIGKILL, so a lock never stays behind.
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    close(fd);
    return Status(
        StatusCode::kOverloaded,
        fmt::format("another `loam cluster` is at work in {}; try again when it has ended", directory.string()));
  }
  return FolderLock(fd);
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace loam::cli
