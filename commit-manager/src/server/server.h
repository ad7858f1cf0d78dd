// The server of the commit manager: it connects the core to a transport and a clock, and runs tasks of other threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <loam/commit/core.h>

#include "commit-manager/src/log/commit_log_file.h"
#include "common/base/thread.h"
#include "common/latency/batch_timer.h"
#include "common/latency/recorder.h"
#include "common/net/transport/transport.h"

namespace loam::commit {

/// Connects the core to a transport. Each connection is a peer. All messages of a frame are executed as one batch,
/// and the replies leave together at the end of the poll round.
///
/// Owner: CommitManager, which calls step() on the server thread. Threads: only the server thread calls the
/// functions, except post() and close_task_queue().
///
/// Invariants:
/// 1. The context of a connection is the PeerEntry of its peer until the core or the network ends the connection, and
///    null afterwards.
/// 2. A peer ends once while the server runs: the core closes it, or on_closed() reports it to the core.
class Server final : public net::Handler, public Outbox {
 public:
  using Clock = std::function<uint64_t()>;

  /// State store, stored state and commit log: see Core::Core(). All of them outlive the server.
  struct Persistence {
    StateStore* state_store = nullptr;
    Bytes state{};
    CommitLogFile* log = nullptr;
  };

  /// `transport` outlives the server. It calls no handler of the server after the server's end. The threads of the
  /// log wake the transport when progress() has news.
  Server(const CoreOptions& options, net::Transport& transport, Clock clock)
      : Server(options, transport, std::move(clock), Persistence()) {}
  Server(const CoreOptions& options, net::Transport& transport, Clock clock, const Persistence& persistence);
  ~Server() override;

  /// Starts to accept connections. The errors are those of net::Transport::listen().
  Result<net::Address> listen(const net::Address& address);

  /// Runs one poll round: posted tasks, progress of the log, due work of the core, network events. Waits up to
  /// `timeout_ns` for events. Returns true if the core may have changed.
  bool step(uint64_t timeout_ns);

  /// Stops accepting, and closes all connections after their replies. The core is not told: clients and nodes treat
  /// it as a lost connection and try the next commit manager. step() is not called afterwards.
  void close_connections();

  /// Runs `task` on the server thread soon. Returns false and drops the task after close_task_queue(). Any thread.
  bool post(std::function<void(Core&)> task);
  /// Refuses further tasks, and drops those that have not run. Any thread.
  void close_task_queue();

  Core& core() { return core_; }
  /// Returns the network address of a peer; empty if its connection has ended.
  std::string address_of(PeerId peer) const;
  const net::TransportCounters& counters() const { return transport_.counters(); }
  /// Returns the latencies of requests. Any thread may read them.
  const latency::Recorder& latencies() const { return latencies_; }

  // net::Handler
  void on_connected(net::Connection& connection) override;
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_closed(net::Connection& connection, const Status& status) override;
  // Outbox
  bool send(PeerId peer, Bytes message) override;
  void close(PeerId peer, const Status& why) override;
  void log(const LogLine& line, std::source_location where) override;

 private:
  struct PeerEntry {
    PeerId id;
    net::Connection* connection = nullptr;
  };

  bool run_tasks();
  /// Passes the positions of the commit log to the core. Returns true if they have risen.
  bool poll_log_progress();

  net::Transport& transport_;
  const Clock clock_;
  std::unordered_map<PeerId, std::unique_ptr<PeerEntry>> peers_;
  uint64_t last_peer_ = 0;
  net::Listener* listener_ = nullptr;  // owned by the transport

  Mutex mutex_;  // guards tasks_ and open_
  std::vector<std::function<void(Core&)>> tasks_;
  bool open_ = true;

  CommitLogFile* const log_;
  CommitLogProgress log_progress_;

  latency::Recorder latencies_;
  std::optional<latency::BatchTimer> timer_;  // from the first round on, because the server thread makes it

  Core core_;  // declared last: its destructor may call the outbox
};

}  // namespace loam::commit
