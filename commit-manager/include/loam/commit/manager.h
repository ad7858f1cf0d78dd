// The commit manager as one object, which its program, `loam dev` and the tests build and run.
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
#include <loam/commit/stable_storage.h>
#include <loam/commit/statistics.h>

#include "common/base/status.h"
#include "common/latency/recorder.h"

/// The commit manager, which hands out transaction ids and snapshots and decides which transactions are committed.
namespace loam::commit {

/// Settings of a commit manager. The programs offer each as a run-time option.
struct ManagerOptions {
  /// Address to which clients and storage nodes connect. Port 0 takes a free port, which address() returns. The
  /// default is the loopback interface, because peers are not authenticated.
  std::string listen = "tcp://127.0.0.1:7400";
  /// Address of the gRPC administration as host:port. Port 0 takes a free port. Empty: no administration.
  std::string admin_listen = "127.0.0.1:7410";
  /// File with the token that a change by HTTP needs, at the status page for instance. Empty: HTTP changes nothing.
  std::string admin_token_file;
  /// Folder of the state and the commit log (R11, commit log and restart of the commit manager). It is created if its
  /// parent exists. At most one commit manager uses it. Empty: nothing survives, and the cluster ends with the
  /// process.
  std::string data;
  /// Storage of the state and the commit log, in place of `data`. Not owned; it outlives the manager.
  StableStorage* store = nullptr;
  /// When a commit counts as accepted (R11). Default: kOs with a folder or a storage, kNone without. check() refuses
  /// kNone with a folder, because a restart would undo commits that clients were told.
  std::optional<CommitLogMode> commit_log;
  /// Time for which the idle server thread polls for messages before it sleeps.
  uint64_t spin_ns = 100'000;
  /// Minimum interval between two sweeps of the indexes (R31, structure changes of the Bd-tree). A sweep removes
  /// orphaned tree nodes after a session that may have left some is fenced everywhere.
  uint64_t sweep_interval_ns = 10'000'000'000;
  /// Time after which an administrative request that waits for storage nodes gets DEADLINE_EXCEEDED.
  uint64_t admin_timeout_ns = 10'000'000'000;
  /// Settings of the state machine.
  CoreOptions core;
  /// Called once, from a thread of the manager, when the manager failed to write its state or its commit log. It then
  /// answers no peer any more, and the owner has to stop it. The callback must not call the manager. May be empty.
  std::function<void(const Status&)> on_failure;

  /// Returns ok, or kInvalidArgument with the name of the option that is out of range.
  Status check() const;
};

/// A running commit manager with its threads.
///
/// Owner: main(), `loam dev` or a test. start() creates the threads, and stop() or the destructor ends them. The
/// server thread polls the transport and runs the core. The recoverer's thread undoes transactions of ended sessions.
/// The threads of gRPC only post tasks to the server thread. With a data folder the next manager continues from the
/// stored state and the commit log, whether this one was stopped or killed (R11).
///
/// Threads: one thread calls stop() and the destructor. Any thread may call the other functions.
class CommitManager {
 public:
  /// Opens the data folder or the storage, listens on both addresses and serves. kInvalidArgument: an option or
  /// address is wrong, or the folder cannot be written. kUnavailable: a port or the folder is in use; the message
  /// names it. kInternal: the stored state cannot be read.
  static Result<std::unique_ptr<CommitManager>> start(const ManagerOptions& options);
  ~CommitManager();
  CommitManager(const CommitManager&) = delete;
  CommitManager& operator=(const CommitManager&) = delete;

  /// Refuses new connections, sends the replies that are ready, and closes all connections. Clients and storage nodes
  /// treat this as a lost connection and try again. Idempotent.
  void stop();

  /// Returns the data address with the actual port, for example "tcp://127.0.0.1:7400".
  const std::string& address() const;
  /// Returns the address of the administration, for example "127.0.0.1:7410"; empty if there is none.
  const std::string& admin_address() const;

  /// Returns the number of rounds that the server thread has made. It rises many times a second while the thread works.
  /// Any thread, before stop().
  uint64_t rounds() const;

  /// Returns the present counters and levels. Waits for the server thread. All are zero after stop().
  ManagerStatistics statistics() const;
  /// Copies the latencies of requests, and the slowest operations of the last minute. Any thread; waits for a short
  /// lock at most.
  latency::Latencies latencies() const;
  /// Runs `task` on the server thread between two of its poll rounds. Administration uses it. Returns false if the
  /// manager has stopped; the task then never runs.
  bool post(std::function<void(Core&)> task);

 private:
  struct Parts;
  explicit CommitManager(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace loam::commit
