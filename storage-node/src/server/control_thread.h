// The thread that talks to the commit manager.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "common/memory/epoch.h"
#include "common/net/transport.h"
#include "storage-node/src/request/manager_link.h"

namespace loam::storage {

/// Role: keeps the connection to the commit manager and drives the ManagerLink. Owner: the node. Threads: its own;
/// start() and stop() by the owner.
///
/// When the connection is lost the node goes on under the last publication: nothing becomes collectable by its age, and
/// every later snapshot still sees what that publication says. New tables and new publications do not reach it.
class ControlThread : public net::Handler {
 public:
  ControlThread(Registry& registry, EpochDomain& epochs);
  ~ControlThread() override;

  /// Connects, registers, and returns when the node is in service. kUnavailable: nobody answers there within the time;
  /// otherwise why the registration failed.
  Status start(const net::Address& manager, const NodeIdentity& identity, uint64_t timeout_ns);
  void stop();

  // net::Handler
  void on_connected(net::Connection& connection) override;
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_closed(net::Connection& connection, const Status& status) override;

 private:
  void loop(const net::Address& manager, const NodeIdentity& identity);
  void tell_start(Status status);

  // Constant after construction.
  Registry& registry_;
  EpochDomain& epochs_;
  // Its own thread only, but for wake().
  std::unique_ptr<net::Transport> transport_;
  std::unique_ptr<EpochThread> epoch_thread_;
  std::unique_ptr<ManagerLink> link_;
  net::Connection* connection_ = nullptr;
  // Any thread.
  std::atomic<bool> stopping_{false};
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable started_;
  std::optional<Status> start_status_;  // guarded by mutex_
};

}  // namespace loam::storage
