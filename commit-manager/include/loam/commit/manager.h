// The commit manager as a process runs it: the core, its server thread, and the administration.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <loam/commit/core.h>

#include "common/base/status.h"

namespace loam::commit {

/// Options of `loam-commit-manager`; `loam dev` fills them in itself.
struct ManagerOptions {
  /// Data path. Port 0 takes a free one: see CommitManager::address(). Loopback unless told otherwise: nothing is
  /// authenticated yet.
  std::string listen = "tcp://127.0.0.1:7400";
  /// gRPC administration, host:port; empty for none.
  std::string admin_listen = "127.0.0.1:7410";
  /// How long the server thread looks for messages before it sleeps.
  uint64_t spin_ns = 20'000;
  /// An administrative request that waits for storage nodes is answered DEADLINE_EXCEEDED after this.
  uint64_t admin_timeout_ns = 10'000'000'000;
  /// `admin_address` is filled in by start().
  CoreOptions core;
};

/// A running commit manager.
///
/// Owner: main(), `loam dev`, or a test. Life: start() returns when it listens; stop() (or the destructor) ends its
/// threads and connections. Threads: its own server thread polls the transport and runs the core; gRPC's threads only
/// post to it. Every member function may be called from any thread.
class CommitManager {
 public:
  /// kUnavailable: a port is in use (the message names it); kInvalidArgument: an address or option is wrong.
  static Result<std::unique_ptr<CommitManager>> start(const ManagerOptions& options);
  ~CommitManager();
  CommitManager(const CommitManager&) = delete;
  CommitManager& operator=(const CommitManager&) = delete;

  /// Ends orderly: administration first, then the connections. Harmless the second time.
  void stop();

  /// "tcp://127.0.0.1:7400", with the port that was really taken.
  const std::string& address() const;
  /// "127.0.0.1:7410"; empty if there is none.
  const std::string& admin_address() const;

  /// As of now; waits for the server thread. After stop(): all zero.
  Statistics statistics() const;

 private:
  struct Impl;
  explicit CommitManager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::commit
