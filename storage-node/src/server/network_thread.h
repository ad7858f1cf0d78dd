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
#include "common/net/transport.h"
#include "storage-node/src/request/executor.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/request/session_table.h"
#include "storage-node/src/scan/query_memory.h"
#include "storage-node/src/server/compaction_share.h"
#include "storage-node/src/server/write_pace.h"

namespace loam::storage {

/// What other threads have for a peer of this one.
struct Outgoing {
  PeerId peer = 0;
  Buffer message{};  ///< of a scan
  Buffer written{};  ///< what is written into `region` at `offset` before the message leaves; may be empty
  net::RemoteRegion region{};
  uint64_t offset = 0;
  std::optional<Status> close{};  ///< instead of a message: end the connection
  ChunkMemory memory{};           ///< of the message and of `written`, if they hold a chunk
};

/// Messages that may wait for one peer that does not read, bytes; beyond it the connection is ended with kOverloaded.
/// Credits bound one scan to 16 MiB (kMaxScanCredits).
inline constexpr size_t kMaxWaitingBytes = size_t{64} << 20;
/// A network thread that stops waits at most so long for its peers to take the last answers.
inline constexpr uint64_t kDrainNs = 1'000'000'000;

/// Where other threads leave messages for peers. Threads: any.
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual void post(Outgoing outgoing) = 0;
};

/// Told when a peer is gone, so that its scans end.
class PeerListener {
 public:
  virtual ~PeerListener() = default;
  virtual void peer_gone(PeerId peer) = 0;
};

/// Role: polls the transport, and runs every batch of requests to completion; never blocks but in poll(), and when it
/// gives way to the background thread while memory is short (compaction_share.h, write_pace.h). Owner: the node. Life:
/// run() starts its thread, stop() ends it. Threads: its own; post(), stop() and the counters from any.
class NetworkThread : public net::Handler, public Outbox {
 public:
  /// `number` counts the node's network threads from 0 and is its writer number towards tables. `threads` is how many
  /// there are: peers' names are dealt so that they are unique in the node.
  NetworkThread(size_t number, size_t threads, std::unique_ptr<net::Transport> transport, Registry& registry,
                SessionTable& sessions, EpochDomain& epochs, const PagePool& pool, const CompactionShare& share,
                const ExecuteOptions& execution = {});
  ~NetworkThread() override;

  /// The port that this thread's peers scan through; known before run().
  void set_scans(ScanPort& scans, PeerListener& listener);
  /// `core`: the only one that its thread runs on.
  void run(std::optional<unsigned> core = {});
  /// What has been received is answered, and the answers sent, for at most kDrainNs; then the connections are closed.
  void stop();

  net::Transport& transport() { return *transport_; }
  const net::TransportCounters& transport_counters() const { return transport_->counters(); }
  /// Times that it gave way to the background thread.
  uint64_t gave_way() const { return gave_way_.load(std::memory_order_relaxed); }  // relaxed: a statistic
  /// Null before run().
  const ExecutorCounters* counters() const;

  void post(Outgoing outgoing) override;

  // net::Handler
  void on_connected(net::Connection& connection) override;
  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override;
  void on_writable(net::Connection& connection) override;
  void on_closed(net::Connection& connection, const Status& status) override;

 private:
  class ConnectionPeer;

  void loop();
  void drain();
  void give_way();
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
  ScanPort* scans_ = nullptr;
  PeerListener* listener_ = nullptr;
  Thread thread_;

  // Its own thread only.
  std::unique_ptr<EpochThread> epoch_thread_;
  std::unique_ptr<ThreadContext> context_;
  std::unordered_map<PeerId, std::unique_ptr<ConnectionPeer>> peers_;
  uint64_t peers_made_ = 0;
  std::vector<Outgoing> delivering_;
  WritePace pace_;
  uint64_t appends_seen_ = 0;

  // Written by its own thread, read by any.
  std::atomic<Executor*> executor_{nullptr};
  std::unique_ptr<Executor> executor_owner_;
  std::atomic<uint64_t> gave_way_{0};
  // Any thread.
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::vector<Outgoing> posted_;  // guarded by mutex_
};

}  // namespace loam::storage
