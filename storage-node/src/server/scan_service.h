// The service of a storage node that executes scans on its scan threads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <loam/storage/node.h>

#include "common/base/thread.h"
#include "common/latency/histogram.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/admin/query_status.h"
#include "storage-node/src/request/peer.h"
#include "storage-node/src/request/registry.h"
#include "storage-node/src/scan/scan_scheduler.h"
#include "storage-node/src/server/network_thread.h"
#include "storage-node/src/server/scan_worker.h"

namespace loam::storage {

/// Upper bound on the chunks of one scan that are under way to the client. It limits the queues of a scan to 64 times
/// 256 KiB.
inline constexpr uint32_t kMaxScanCredits = 64;

/// Executes the scans of all clients of a storage node.
///
/// Role: takes scans from the network threads, runs them on scan threads, and posts their chunks to the outbox of the
/// network thread that serves the peer. The service cuts a scan into one part for each scan thread. Each part gets a
/// share of the credits, and the client merges the parts as it merges the results of storage nodes. Owner: the storage
/// node. Threads: any network thread calls the functions of ScanHandler and PeerObserver.
class ScanService : public ScanHandler, public PeerObserver {
 public:
  struct Options {
    unsigned threads = 1;  ///< number of scan threads
    /// Upper bound on the queries under way; further ones get kOverloaded.
    uint32_t max_queries = 256;
    /// A query that waits for credits for longer than this ends with kTimeout (R25, limit for stalled queries).
    uint64_t stall_limit_ns = 30'000'000'000;
    /// The memory of all queries; null: no limit. It outlives the service and the outboxes.
    QueryMemory* memory = nullptr;
    /// Nice value of the scan threads. Network threads have 0, so they get a core first when both want it.
    int nice = 5;
  };

  /// The messages for peer p go to outboxes[p % outboxes.size()].
  ScanService(Registry& registry, EpochDomain& epochs, PagePool& pool, std::vector<Outbox*> outboxes,
              const Options& options);
  ~ScanService() override;

  /// Starts the scan threads.
  void run();
  /// Ends the scan threads and joins them.
  void stop();
  /// Ends the scans under way with `status`. Blocks until the ends of all scans are in the outboxes, or `timeout_ns` is
  /// over. Returns whether they are. Threads: any.
  bool end_all(const Status& status, uint64_t timeout_ns);
  void add_statistics(NodeStatistics& statistics) const;
  /// Returns how long the ended scans took, from arrival to end. Threads: any.
  latency::Histogram durations() const;

  /// Lists the queries under way. Each scan thread reports its parts between two steps, so that reading costs nothing
  /// while no operator looks. Blocks until all have reported, or `timeout_ns` is over; a part that has not reported
  /// counts as one that has read nothing. Threads: any, except scan threads.
  std::vector<QueryStatus> queries(uint64_t timeout_ns);
  /// Ends the queries with this id with `status`. Returns their number. Threads: any.
  size_t cancel(const QueryId& id, const Status& status);

  Status start(Peer& peer, uint64_t sequence, wire::Scan scan) override;
  void credit(Peer& peer, uint64_t sequence, uint32_t credits) override;
  void cancel(Peer& peer, uint64_t sequence) override;
  void peer_disconnected(PeerId peer) override;

 private:
  /// Receives the results of part `part` of every scan from its scheduler.
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

  /// What operators see of a scan beside its progress.
  struct Description {
    QueryId id;
    std::string address;
    std::string table;
    Version snapshot;
    uint64_t arrived_ns = 0;
  };

  /// A scan under way.
  struct ActiveScan {
    Description description;
    PeerId peer = 0;
    uint64_t sequence = 0;
    size_t parts_left = 0;
    net::RemoteRegion region{};  // memory of the client for chunks; id 0: none
    uint32_t slots = 0;          // number of chunks that fit into `region`
    uint64_t slots_used = 0;     // chunks written into `region` so far
    std::vector<bool> part_ended;
    std::vector<uint32_t> outstanding;             // for each part: chunks sent whose credits have not come back
    Status status{};                               // the first error of a part
    std::vector<wire::ScanStatistics> statistics;  // for each part: the newest that are known

    /// Returns the part that reports the progress of all parts to the client: the first one that has not ended.
    size_t reporting_part() const {
      return static_cast<size_t>(std::ranges::find(part_ended, false) - part_ended.begin());
    }
  };

  /// Checks a scan and resolves it: table, shards, snapshot, query and page list.
  Result<ScanSpec> make_spec(wire::Scan& scan) const;
  /// Describes a scan for operators. The caller holds an epoch guard.
  Description describe(const Peer& peer, const wire::Scan& scan) const;
  /// Cancels all parts of a scan. The caller holds `mutex_`.
  void cancel_parts(ScanId id, const Status& why);
  /// Makes `why` the result of a scan that has none yet, and cancels its parts, also those that have not joined their
  /// scheduler. The caller holds `mutex_`.
  void end(ScanId id, ActiveScan& active, const Status& why);
  /// Returns the state of a scan whose parts have reported `parts`. The caller holds `mutex_`.
  static QueryStatus status_of(const ActiveScan& active, const std::vector<QueryState>& parts, uint64_t now_ns);
  // The scan threads call these functions.
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

  mutable Mutex mutex_;
  Condition idle_;  // signalled when no scan is under way, and the end of each is in its outbox
  // Guarded by mutex_.
  std::unordered_map<ScanId, ActiveScan> active_;
  size_t unposted_ends_ = 0;  // scans that have left active_, and whose end is not in an outbox yet
  std::map<std::pair<PeerId, uint64_t>, ScanId> by_request_;
  ScanId last_id_ = 0;
  latency::Histogram durations_;  // how long each ended scan took
};

}  // namespace loam::storage
