// One network thread of a storage node.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/thread.h"
#include "common/memory/epoch.h"
#include "common/net/transport/transport.h"
#include "storage-node/src/request/executor.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/request/session_table.h"
#include "storage-node/src/scan/query_memory.h"
#include "storage-node/src/server/compaction_share.h"
#include "storage-node/src/server/write_throttle.h"

namespace loam::storage {

/// A message of another thread for a peer of a network thread, or the order to close the peer's connection.
struct OutgoingMessage {
  PeerId peer = 0;
  Buffer message{};            ///< a message of a scan
  Buffer region_data{};        ///< bytes to write into `region` at `offset` before the message leaves; may be empty
  net::RemoteRegion region{};  ///< memory of the client, for `region_data`
  uint64_t offset = 0;
  std::optional<Status> close{};  ///< if set: close the connection, and send nothing
  ChunkMemory memory{};           ///< the memory of `message` and `region_data`, if they hold a chunk
};

/// Upper bound on the bytes of messages that wait for one peer that does not read. Beyond it the thread closes the
/// connection with kOverloaded. Credits bound the messages of one scan to 16 MiB (kMaxScanCredits).
inline constexpr size_t kMaxPeerQueueBytes = size_t{64} << 20;
/// Upper bound on the time that a stopping network thread waits for its peers to read the last replies.
inline constexpr uint64_t kDrainNs = 1'000'000'000;

/// Accepts messages of other threads for the peers of a network thread. Threads: any.
class Outbox {
 public:
  virtual ~Outbox() = default;
  /// Queues the message. It is dropped if its peer is gone.
  virtual void post(OutgoingMessage outgoing) = 0;
};

/// Receives the news that a connection has ended, so that its scans end.
class PeerObserver {
 public:
  virtual ~PeerObserver() = default;
  /// Ends everything that runs for the peer. The peer's network thread calls it; a second call has no effect.
  virtual void peer_disconnected(PeerId peer) = 0;
};

/// Runs one network thread of a storage node.
///
/// Role: polls the transport and executes every batch of requests to its end. The thread blocks in two places: in
/// poll(), and in a sleep for the background thread while memory is short (compaction_share.h, write_throttle.h).
/// Owner: the storage node. Life: run() starts the thread, stop() ends it. Threads: its own; any thread may call
/// post(), stop() and the readers of counters.
class NetworkThread : public net::Handler, public Outbox {
 public:
  /// `number` counts the network threads of the storage node from 0; it is also the thread's writer number at tables.
  /// `threads` is the number of network threads. A peer's id modulo `threads` is the number of its thread, so ids are
  /// unique in the storage node.
  NetworkThread(size_t number, size_t threads, std::unique_ptr<net::Transport> transport, Registry& registry,
                SessionTable& sessions, EpochDomain& epochs, const PagePool& pool, const CompactionShare& share,
                const ExecuteOptions& execution = {});
  ~NetworkThread() override;

  /// Sets the handler of scans and the observer of closed connections. Call it before run().
  void set_scans(ScanHandler& scans, PeerObserver& observer);
  /// Starts the thread. `core` binds the thread to one core.
  void run(std::optional<unsigned> core = {});
  /// Answers the requests that were received, sends the replies for at most kDrainNs, closes the connections, and joins
  /// the thread.
  void stop();

  net::Transport& transport() { return *transport_; }
  const net::TransportCounters& transport_counters() const { return transport_->counters(); }
  /// Returns the number of sleeps for the background thread.
  uint64_t throttle_count() const { return throttle_count_.load(std::memory_order_relaxed); }  // relaxed: a statistic
  /// Returns the counters of the executor; null before run().
  const ExecutorCounters* counters() const;
  /// Returns the latencies of the requests; null before run().
  const latency::Recorder* latencies() const;

  void post(OutgoingMessage outgoing) override;

  // net::Handler
  void on_connected(net::Connection& connection) override;
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_writable(net::Connection& connection) override;
  void on_closed(net::Connection& connection, const Status& status) override;

 private:
  class ConnectionPeer;

  void loop();
  /// Executes and answers the requests that have arrived, until all replies are sent or kDrainNs is over.
  void drain();
  /// Sleeps if CompactionShare or WriteThrottle demand it.
  void throttle();
  /// Hands the posted messages to their peers.
  void deliver_posted();

  // Constant after run().
  const size_t number_;
  const size_t threads_;
  const std::unique_ptr<net::Transport> transport_;
  Registry& registry_;
  SessionTable& sessions_;
  EpochDomain& epochs_;
  const PagePool& pool_;
  const CompactionShare& share_;
  const ExecuteOptions execution_;
  ScanHandler* scans_ = nullptr;
  PeerObserver* observer_ = nullptr;
  Thread thread_;

  // Used by the network thread alone.
  std::unique_ptr<EpochThread> epoch_thread_;
  std::unique_ptr<ThreadContext> context_;
  std::unordered_map<PeerId, std::unique_ptr<ConnectionPeer>> peers_;
  uint64_t peers_made_ = 0;
  std::vector<OutgoingMessage> delivering_;
  WriteThrottle write_throttle_;
  uint64_t appends_seen_ = 0;  // value of the executor's counter at the last throttle()

  // Written by the network thread, read by any thread.
  std::atomic<Executor*> executor_{nullptr};
  std::unique_ptr<Executor> executor_owner_;
  std::atomic<uint64_t> throttle_count_{0};
  // Any thread.
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::vector<OutgoingMessage> posted_;  // guarded by mutex_
};

}  // namespace loam::storage
