// The thread that exchanges messages with the commit manager.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/base/thread.h"
#include "common/memory/epoch.h"
#include "common/net/transport/transport.h"
#include "storage-node/src/request/manager_protocol.h"
#include "storage-node/src/request/session_table.h"

namespace loam::storage {

/// Runs the control thread of a storage node.
///
/// Role: keeps the connection to the commit manager, reconnects for ever when it is lost, and drives the
/// ManagerProtocol. Owner: the storage node. Threads: one of its own; the owner calls start() and stop().
///
/// Without a connection the storage node serves on until its lease has run out, under the last publication. That is
/// safe: a version becomes garbage by a publication alone and never by its age, and every later snapshot sees the ids
/// that the last publication names.
///
/// The thread refuses a commit manager of another cluster, and one whose state is not the newest of this cluster (R10,
/// cluster identity and incarnations). The storage node then keeps its records, its lease runs out, and the thread
/// tries again until the right commit manager answers.
class ControlThread : public net::Handler {
 public:
  /// The thread calls `on_replaced` once, if the commit manager has replaced this incarnation.
  ControlThread(Registry& registry, SessionTable& sessions, EpochDomain& epochs,
                std::function<void(const Status&)> on_replaced);
  ~ControlThread() override;

  /// Starts the thread, connects and registers. Blocks until the storage node is in service, or until the commit
  /// manager answers that it waits for other storage nodes first.
  ///   kUnavailable, kTimeout: no commit manager answers at the address within `timeout_ns`.
  ///   Other codes: the registration failed.
  Status start(const net::Address& manager, const NodeIdentity& identity, uint64_t timeout_ns);
  /// Closes the connection and joins the thread.
  void stop();

  /// Returns the number of registrations after the first.
  uint64_t reconnects() const { return reconnects_.load(std::memory_order_relaxed); }  // relaxed: a statistic
  /// Returns whether the storage node is connected and registered.
  bool connected() const { return connected_.load(std::memory_order_relaxed); }  // relaxed: a statistic
  /// Returns the history point as of the last registration; before the first registration it names no cluster.
  wire::HistoryPoint known() const;
  /// Returns why the storage node refuses the commit manager that answers now; empty if it does not.
  std::string refusal() const;

  // net::Handler
  void on_connected(net::Connection& connection) override;
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_closed(net::Connection& connection, const Status& status) override;

 private:
  void loop(const net::Address& manager, const NodeIdentity& identity);
  void connect(const net::Address& manager, uint64_t now_ns);
  /// Returns the time for which the next poll may wait.
  uint64_t poll_ns(uint64_t now_ns, bool waiting) const;
  void handle_replaced(const Status& status);
  /// Records why a registration failed. Returns the status with which the connection closes.
  Status handle_registration_failure(Status status);
  /// Ends the wait of start() with this status, unless it has ended.
  void complete_start(Status status);

  // Constant after construction.
  Registry& registry_;
  SessionTable& sessions_;
  EpochDomain& epochs_;
  const std::function<void(const Status&)> on_replaced_;
  // Used by the control thread alone, except that stop() calls transport_->wake().
  std::unique_ptr<net::Transport> transport_;
  std::unique_ptr<EpochThread> epoch_thread_;
  std::unique_ptr<ManagerProtocol> protocol_;
  net::Connection* connection_ = nullptr;
  uint64_t backoff_ns_ = 0;
  uint64_t connect_at_ns_ = 0;
  bool was_registered_ = false;
  bool replaced_ = false;
  std::string last_error_;  // the last logged error; it is not logged again
  // Any thread.
  std::atomic<bool> stopping_{false};
  Thread thread_;
  mutable Mutex mutex_;
  Condition started_;
  std::optional<Status> start_status_;  // guarded by mutex_
  Status last_failure_;                 // guarded by mutex_: the last failure to connect, for start()
  wire::HistoryPoint known_;            // guarded by mutex_
  std::string refusal_;                 // guarded by mutex_
  std::atomic<uint64_t> reconnects_{0};
  std::atomic<bool> connected_{false};
};

}  // namespace loam::storage
