// Starts, watches and ends the processes of a cluster on this host, through the folder that describes them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "deploy/cli/src/cluster/cluster_folder.h"
#include "deploy/cli/src/cluster/process.h"

namespace loam::cli {

/// The state of a server process. The order matters: wait_for() accepts every state from the requested one on.
enum class MemberState : uint8_t {
  kDown,        ///< never started, or ended by `loam cluster down` or `loam cluster stop`
  kDead,        ///< its pid file remains, its process has exited or was killed
  kPaused,      ///< stopped by SIGSTOP
  kStarting,    ///< runs, but does not serve yet
  kRegistered,  ///< a storage node that has registered at the commit manager, but does not serve yet
  kLost,        ///< a storage node that lost its records; its shards wait for accept_loss() (R10)
  kReady,       ///< serves requests
};
/// The state in lower case, as `loam cluster status` prints it.
std::string_view to_string(MemberState state);

/// The state of one server process at the time of the call.
struct MemberStatus {
  Member member;
  MemberState state = MemberState::kDown;
  pid_t pid = 0;  ///< 0 if the process does not run
  uint64_t uptime_ns = 0;
  std::string log;  ///< path of its log file
};

/// Controls the server processes of one folder. The processes outlive this object and this program. Threads: one;
/// callers hold a FolderLock, which keeps other programs from changing the processes of the folder.
class LocalCluster {
 public:
  explicit LocalCluster(ClusterFolder folder) : folder_(std::move(folder)) {}

  const ClusterFolder& folder() const { return folder_; }

  /// Starts one process that does not run, without waiting until it serves. kUnavailable: its port is in use;
  /// kNotFound: the server program is neither in the folder of this program nor in PATH.
  Status start(const Member& member);
  /// Blocks until all named members (all members if `names` is empty) have reached `state`. Calls `waiting` between two
  /// checks with the names of the members that have not. kUnavailable: a process ended meanwhile; kTimeout. Both
  /// messages contain the end of the log of the member in question.
  Status wait_for(const std::vector<std::string>& names, MemberState state, uint64_t timeout_ns,
                  const std::function<void(const std::vector<std::string>&)>& waiting);
  /// Ends a process by SIGTERM, and by SIGKILL if it still runs after `grace_period_ns`. The member is then kDown.
  StopOutcome stop(const Member& member, uint64_t grace_period_ns);
  /// Ends a process by SIGKILL. The member is then kDead, not kDown.
  void kill(const Member& member);
  /// Sends a signal to the process; false if it does not run.
  bool signal(const Member& member, int number) const;

  /// The state of one member. With `health` the function asks a running process whether it serves; without it every
  /// running process counts as kStarting.
  MemberStatus status(const Member& member, bool health = true) const;
  /// The states of all members, in the order of the folder.
  std::vector<MemberStatus> status() const;

 private:
  Status check_started() const;
  Status ended_at_start(const Member& member) const;
  std::string end_of_log(const Member& member) const;

  const ClusterFolder folder_;
  std::map<std::string, uint64_t> log_begin_;  // by name: size of the log when start() started the process
};

/// An exclusive lock on the folder of a cluster, which keeps other programs from changing its processes. Held from
/// acquire() until the destructor.
class FolderLock {
 public:
  /// Creates the folder if it is missing and locks it, without waiting. kOverloaded: another program holds the lock.
  static Result<FolderLock> acquire(const std::filesystem::path& directory);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  int fd_;
};

/// Finds a server program in the folder of this program, or else in PATH. kNotFound: the message says where it
/// searched.
Result<std::filesystem::path> find_program(std::string_view name);

}  // namespace loam::cli
