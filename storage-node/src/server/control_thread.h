// The thread that talks to the commit manager.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/thread.h"
#include "common/memory/epoch.h"
#include "common/net/transport.h"
#include "storage-node/src/request/manager_link.h"
#include "storage-node/src/request/session_table.h"

namespace loam::storage {

/// Role: keeps the connection to the commit manager, opens it again for ever when it is lost, and drives the
/// ManagerLink. Owner: the node. Threads: its own; start() and stop() by the owner.
///
/// While there is no connection the node goes on until its lease has run out, under the last publication: nothing
/// becomes collectable by its age, and every later snapshot still sees what that publication says.
///
/// A commit manager of another cluster, or one whose state is not the newest of this cluster, is refused: the node
/// keeps its records, its lease runs out, and it asks again until the right one answers (R10).
class ControlThread : public net::Handler {
 public:
  /// `on_ended` is called once, by this thread, if the commit manager has replaced this node.
  ControlThread(Registry& registry, SessionTable& sessions, EpochDomain& epochs,
                std::function<void(const Status&)> on_ended);
  ~ControlThread() override;

  /// Connects, registers, and returns when the node is in service, or when the commit manager says that it waits for
  /// other nodes first. kUnavailable, kTimeout: no commit manager answers there within the time. Otherwise the
  /// reason why the registration failed.
  Status start(const net::Address& manager, const NodeIdentity& identity, uint64_t timeout_ns);
  void stop();

  /// Connections to the commit manager beyond the first.
  uint64_t reconnects() const { return reconnects_.load(std::memory_order_relaxed); }  // relaxed: statistics
  bool connected() const { return connected_.load(std::memory_order_relaxed); }        // relaxed: the same
  /// What the node was told at its last registration; before the first one it names no cluster.
  wire::KnownHistory known() const;
  /// Why the commit manager that answers now is refused; empty while none is.
  std::string refusal() const;

  // net::Handler
  void on_connected(net::Connection& connection) override;
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_closed(net::Connection& connection, const Status& status) override;

 private:
  void loop(const net::Address& manager, const NodeIdentity& identity);
  void connect(const net::Address& manager, uint64_t now_ns);
  uint64_t poll_ns(uint64_t now_ns, bool waiting) const;
  void end(const Status& status);
  /// The connection ends because of this, and why it does is remembered.
  Status not_registered(Status status);
  void tell_start(Status status);

  // Constant after construction.
  Registry& registry_;
  SessionTable& sessions_;
  EpochDomain& epochs_;
  const std::function<void(const Status&)> on_ended_;
  // Its own thread only, but for wake().
  std::unique_ptr<net::Transport> transport_;
  std::unique_ptr<EpochThread> epoch_thread_;
  std::unique_ptr<ManagerLink> link_;
  net::Connection* connection_ = nullptr;
  uint64_t backoff_ns_ = 0;
  uint64_t connect_at_ns_ = 0;
  bool was_registered_ = false;
  bool ended_ = false;
  std::string last_error_;  // said once
  // Any thread.
  std::atomic<bool> stopping_{false};
  Thread thread_;
  mutable Mutex mutex_;
  Condition started_;
  std::optional<Status> start_status_;  // guarded by mutex_
  Status last_failure_;                 // guarded by mutex_: of the attempts before the first registration
  wire::KnownHistory known_;            // guarded by mutex_
  std::string refusal_;                 // guarded by mutex_
  std::atomic<uint64_t> reconnects_{0};
  std::atomic<bool> connected_{false};
};

}  // namespace loam::storage
