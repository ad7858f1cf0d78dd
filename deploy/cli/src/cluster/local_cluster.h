// A cluster on this host as processes: a commit manager and storage nodes, started, watched and ended through the
// folder that describes them.
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

enum class MemberState : uint8_t {
  kDown,        ///< not started, or ended by `down` or `stop`
  kDead,        ///< ended by itself, or killed
  kPaused,      ///< stopped by SIGSTOP
  kStarting,    ///< runs, and does not serve yet
  kRegistered,  ///< a storage node that the commit manager knows, and that does not serve yet
  kLost,        ///< a storage node that was started anew: its shards refuse requests until the loss is accepted (R10)
  kReady,
};
std::string_view to_string(MemberState state);

struct MemberStatus {
  Member member;
  MemberState state = MemberState::kDown;
  pid_t pid = 0;  ///< 0 if it does not run
  uint64_t uptime_ns = 0;
  std::string log;
};

/// The processes of one folder. They outlive this object and this program. One thread; other programs are kept away
/// from the folder by FolderLock.
class LocalCluster {
 public:
  explicit LocalCluster(ClusterFolder folder) : folder_(std::move(folder)) {}

  const ClusterFolder& folder() const { return folder_; }

  /// Starts one process that does not run, and does not wait for it. kUnavailable: its port is in use; kNotFound: the
  /// program is neither beside this one nor in PATH.
  Status start(const Member& member);
  /// Until all the members named (all, if none is) have come to that state. `waiting` is called every now and then with
  /// the names of those that have not. kUnavailable: one ended meanwhile, and the message has the end of its log;
  /// kTimeout: the same.
  Status wait_for(const std::vector<std::string>& names, MemberState state, uint64_t timeout_ns,
                  const std::function<void(const std::vector<std::string>&)>& waiting);
  /// SIGTERM, then SIGKILL after `patience_ns`.
  Ending stop(const Member& member, uint64_t patience_ns);
  /// SIGKILL; the member counts as dead, not as down.
  void kill(const Member& member);
  /// Any signal; false if it does not run.
  bool signal(const Member& member, int number) const;

  /// `health` asks each process that runs whether it serves; without it those are all kStarting.
  MemberStatus status(const Member& member, bool health = true) const;
  std::vector<MemberStatus> status() const;

 private:
  Status check_started() const;
  Status ended_at_start(const Member& member) const;
  std::string end_of_log(const Member& member) const;

  const ClusterFolder folder_;
  std::map<std::string, uint64_t> log_begin_;  // where a process that was started here began to write
};

/// Keeps other programs from changing what runs in a folder, for as long as it lives.
class FolderLock {
 public:
  /// Makes the folder if it is missing. kOverloaded: another program works there now.
  static Result<FolderLock> take(const std::filesystem::path& directory);
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  int fd_;
};

/// Beside this program, or in PATH. kNotFound says where was looked.
Result<std::filesystem::path> find_program(std::string_view name);

}  // namespace loam::cli
