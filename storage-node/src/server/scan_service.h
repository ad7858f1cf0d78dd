// The scan threads of a storage node.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <loam/storage/node.h>

#include "common/base/thread.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/request/peer.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/scan/scan_scheduler.h"
#include "storage-node/src/server/network_thread.h"
#include "storage-node/src/server/scan_worker.h"

namespace loam::storage {

/// Chunks of one scan that may be under way to the client: bounds what a scan costs in queues (64 × 256 KiB).
inline constexpr uint32_t kMaxScanCredits = 64;

/// Role: takes scans from the network threads, runs them on threads of its own, and leaves their chunks in the outbox
/// of the network thread that serves the peer. A scan is cut into one part for each scan thread; each part has a share
/// of the credits, and the client merges parts as it merges nodes. Owner: the node. Threads: ScanPort and PeerListener
/// by any network thread.
class ScanService : public ScanPort, public PeerListener {
 public:
  struct Options {
    unsigned threads = 1;
    uint32_t max_queries = 256;
    /// A query whose client takes no chunk for so long ends with kTimeout (R25).
    uint64_t stall_limit_ns = 30'000'000'000;
    /// What the queries draw their memory from; null: no limit. Outlives the service and the outboxes.
    QueryMemory* memory = nullptr;
    /// Priority below the network threads (0): they get a core first when both want it.
    int nice = 5;
  };

  /// Peer p is served by outboxes[p % outboxes.size()].
  ScanService(Registry& registry, EpochDomain& epochs, PagePool& pool, std::vector<Outbox*> outboxes,
              const Options& options);
  ~ScanService() override;

  void run();
  void stop();
  /// Ends the scans under way, and waits until their clients' outboxes have that, at most `timeout_ns`. Any thread.
  void end_all(const Status& status, uint64_t timeout_ns);
  void add_statistics(NodeStatistics& statistics) const;

  Status start(Peer& peer, uint64_t sequence, wire::Scan scan) override;
  void credit(Peer& peer, uint64_t sequence, uint32_t credits) override;
  void cancel(Peer& peer, uint64_t sequence) override;
  void peer_gone(PeerId peer) override;

 private:
  /// Where part `part` of every scan leaves its results.
  class PartSink : public ScanSink {
   public:
    PartSink(ScanService& service, size_t part) : service_(service), part_(part) {}
    void chunk(ScanId id, Bytes bytes, ChunkMemory memory) override {
      service_.send_chunk(id, part_, bytes, std::move(memory));
    }
    void progress(ScanId id, const wire::ScanStatistics& statistics) override {
      service_.part_progress(id, part_, statistics);
    }
    void done(ScanId id, const Status& status, const wire::ScanStatistics& statistics) override {
      service_.part_done(id, part_, status, statistics);
    }

   private:
    ScanService& service_;
    const size_t part_;
  };

  /// A scan under way.
  struct Active {
    PeerId peer = 0;
    uint64_t sequence = 0;
    size_t parts_left = 0;
    net::RemoteRegion region{};  // of the client, for chunks; id 0: none
    uint32_t slots = 0;          // in it
    uint64_t slots_used = 0;     // chunks written into it
    std::vector<bool> part_ended;
    std::vector<uint32_t> outstanding;             // chunks sent and not credited again, by part
    Status status{};                               // the first part's error
    std::vector<wire::ScanStatistics> statistics;  // as far as they are known, by part

    /// The first part that has not ended tells the client how far all of them are.
    size_t speaker() const { return static_cast<size_t>(std::ranges::find(part_ended, false) - part_ended.begin()); }
  };

  Result<ScanSpec> make_spec(wire::Scan& scan) const;
  void cancel_parts(ScanId id, const Status& why);  // caller holds mutex_
  // Called by the scan threads.
  void send_chunk(ScanId id, size_t part, Bytes bytes, ChunkMemory memory);
  bool has_failed(ScanId id);
  void part_progress(ScanId id, size_t part, const wire::ScanStatistics& statistics);
  void part_done(ScanId id, size_t part, const Status& status, const wire::ScanStatistics& statistics);
  template <class Message>
  void post(PeerId peer, uint64_t sequence, const Message& message);
  Outbox& outbox_of(PeerId peer) { return *outboxes_[peer % outboxes_.size()]; }

  // Constant after construction.
  Registry& registry_;
  const std::vector<Outbox*> outboxes_;
  const Options options_;
  std::vector<std::unique_ptr<PartSink>> sinks_;
  std::vector<std::unique_ptr<ScanWorker>> workers_;  // part p of every scan runs on workers_[p]

  Mutex mutex_;
  Condition idle_;
  // Guarded by mutex_.
  std::unordered_map<ScanId, Active> active_;
  std::map<std::pair<PeerId, uint64_t>, ScanId> by_request_;
  ScanId last_id_ = 0;
  // Any thread.
  std::atomic<uint64_t> finished_{0};
};

}  // namespace loam::storage
