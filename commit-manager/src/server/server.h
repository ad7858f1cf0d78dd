// The commit manager on a transport: bytes to messages, time to deadlines, and tasks from other threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <loam/commit/core.h>

#include "commit-manager/src/log/commit_log_file.h"
#include "common/base/thread.h"
#include "common/net/transport.h"

namespace loam::commit {

/// Connects the core to a transport: each connection is a peer; all messages of a frame are executed as one batch, and
/// their answers leave together at the end of the poll round.
///
/// Owner: CommitManager, which runs step() on a thread of its own. Threads: everything is for the thread that calls
/// step(), except post(), close_posts() and wake().
///
/// Invariants: a connection's context is the Link of its peer until the core or the network has ended it, then null;
/// the core hears of the end of every peer exactly once, from whichever side it came.
class Server final : public net::Handler, public Outbox {
 public:
  using Clock = std::function<uint64_t()>;

  /// What survives: see Core::Core(). All of it outlives the server.
  struct Durables {
    Durable* durable = nullptr;
    Bytes state{};
    CommitLogFile* log = nullptr;
  };

  /// `transport` outlives the server, and is destroyed (or closes its connections) without calling it again. The log's
  /// threads wake it when progress() has something new.
  Server(const CoreOptions& options, net::Transport& transport, Clock clock)
      : Server(options, transport, std::move(clock), Durables()) {}
  Server(const CoreOptions& options, net::Transport& transport, Clock clock, const Durables& durables);
  ~Server() override;

  /// Begins to accept. The errors are net::Transport::listen's.
  Result<net::Address> listen(const net::Address& address);

  /// One round: posted tasks, the core's deadlines, and the network; waits up to `timeout_ns` for something to do. True
  /// if there was something: the core may have changed.
  bool step(uint64_t timeout_ns);

  /// Accepts no connections from now on, and says goodbye to those that are there, after what they were answered. The
  /// core hears nothing of it: its sessions go on when a manager is there again. step() is not called afterwards.
  void close_connections();

  /// Runs `task` on the server's thread, soon. False after close_posts(): the task is dropped. Any thread.
  bool post(std::function<void(Core&)> task);
  /// No tasks from now on; drops those that have not run. Any thread.
  void close_posts();

  Core& core() { return core_; }
  const net::TransportCounters& counters() const { return transport_.counters(); }

  // net::Handler
  void on_connected(net::Connection& connection) override;
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_closed(net::Connection& connection, const Status& status) override;
  // Outbox
  bool send(PeerId peer, Bytes message) override;
  void close(PeerId peer, const Status& why) override;
  void note(const std::string& line, std::source_location where) override;

 private:
  struct Link {
    PeerId id;
    net::Connection* connection = nullptr;
  };

  bool run_tasks();
  /// Tells the core how far the commit log has come; true if it has.
  bool take_log_progress();

  net::Transport& transport_;
  const Clock clock_;
  std::unordered_map<PeerId, std::unique_ptr<Link>> links_;
  uint64_t last_peer_ = 0;
  net::Listener* listener_ = nullptr;  // the transport's

  Mutex mutex_;  // guards tasks_ and open_
  std::vector<std::function<void(Core&)>> tasks_;
  bool open_ = true;

  CommitLogFile* const log_;
  CommitLogProgress log_progress_;

  Core core_;  // last: it may call the outbox while it is destroyed
};

}  // namespace loam::commit
