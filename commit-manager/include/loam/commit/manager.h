// The commit manager as one object: what its program, `loam dev` and the tests build and run.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <loam/commit/core.h>
#include <loam/commit/log_device.h>
#include <loam/commit/statistics.h>
#include <loam/commit/store.h>

#include "common/base/status.h"

namespace loam::commit {

/// How a commit manager is set up. Everything here is a run-time option of the programs.
struct ManagerOptions {
  /// Data path: what clients and storage nodes connect to. Port 0 takes a free one: see address(). Loopback unless told
  /// otherwise: nothing is authenticated yet.
  std::string listen = "tcp://127.0.0.1:7400";
  /// gRPC administration, host:port; port 0 takes a free one; empty: none.
  std::string admin_listen = "127.0.0.1:7410";
  /// Folder of what must survive a restart (R11), made if only it is missing; one manager's alone. Empty: nothing
  /// survives, the end of the manager is the cluster's end.
  std::string data;
  /// Instead of `data`: what holds the state and the commit log, and outlives the manager.
  Store* store = nullptr;
  /// When a commit counts (R11): by default kOs where something survives, kNone where nothing does. kNone with a folder
  /// is refused: a restart would take back commits that clients were told.
  std::optional<CommitLogMode> commit_log;
  /// How long the idle server thread looks for messages before it sleeps.
  uint64_t spin_ns = 100'000;
  /// Indexes are swept for what ended sessions have left half made (R31) when such a session is fenced, but not sooner
  /// after the last time.
  uint64_t sweep_interval_ns = 10'000'000'000;
  /// An administrative request that waits for storage nodes is answered DEADLINE_EXCEEDED after this.
  uint64_t admin_timeout_ns = 10'000'000'000;
  CoreOptions core;
  /// Called once, from a thread of the manager, when it cannot go on: its data folder could not be written. It answers
  /// nobody any more; stop it. Must not call the manager. May be empty.
  std::function<void(const Status&)> on_failure;

  /// kInvalidArgument names the option that is out of its range.
  Status check() const;
};

/// A running commit manager.
///
/// Owner and life: made by main(), `loam dev` or a test; start() brings up its threads (the server's, which polls the
/// transport and runs the core, the recoverer's, and gRPC's own, which only post to the server's); stop() or the
/// destructor ends them. With a data folder the next one goes on where it ended, stopped or killed (R11). Threads:
/// stop() and the destructor from one thread; the rest from any.
class CommitManager {
 public:
  /// Opens the data folder or reads the store, listens on both addresses and serves. kInvalidArgument (an option, an
  /// address, a folder that cannot be written), kUnavailable (a port or the folder is in use: the message names it),
  /// kInternal (the state found there cannot be read).
  static Result<std::unique_ptr<CommitManager>> start(const ManagerOptions& options);
  ~CommitManager();
  CommitManager(const CommitManager&) = delete;
  CommitManager& operator=(const CommitManager&) = delete;

  /// Accepts nobody, lets go what is answered, and closes the connections. Clients and nodes take it for a lost
  /// connection and try again. Idempotent.
  void stop();

  /// "tcp://127.0.0.1:7400", with the port that was taken.
  const std::string& address() const;
  /// "127.0.0.1:7410", or empty.
  const std::string& admin_address() const;

  /// As of now; waits for the server thread. All zero after stop().
  ManagerStatistics statistics() const;
  /// Runs `task` on the server's thread, between two of its rounds: what administration does. False: the manager has
  /// stopped, the task will not run.
  bool post(std::function<void(Core&)> task);

 private:
  struct Parts;
  explicit CommitManager(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace loam::commit
