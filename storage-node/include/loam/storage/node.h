// The storage node as one object. Its program, `loam dev`, the simulator and the tests build and run it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <loam/storage/statistics.h>

#include "common/base/status.h"
#include "common/latency/recorder.h"

/// The storage node, which keeps records in memory.
namespace loam::storage {

/// The configuration of a storage node. Every field is a run-time option of the program; main.cc names the options.
/// Role: plain data, copied by start(). Threads: one at a time. Errors: check() reports the first field out of range.
struct NodeOptions {
  /// Address at which the node accepts requests of clients, `scheme://host:port`. Port 0 selects a free port.
  std::string listen = "tcp://127.0.0.1:0";
  /// Address that clients connect to, if it differs from `listen` (proxy, NAT). Empty: the address of `listen`.
  std::string advertise{};
  /// Address of the commit manager.
  std::string manager = "tcp://127.0.0.1:7400";
  /// Address of the gRPC administration service, `host:port`. Empty: no administration service.
  std::string admin_listen = "127.0.0.1:0";
  /// Memory limit of the node: records, indexes, and the results that queries collect. Intents are outside of it.
  uint64_t memory_bytes = uint64_t{1} << 30;
  /// Share of memory_bytes that all scan queries together may use for groups, top-k rows and results in transit.
  /// Queries allocate it on demand, and a query beyond it gets kOverloaded. The node maps the rest for records and
  /// indexes and faults it in at start.
  double query_memory_share = 0.125;
  /// Memory for the intents of all open transactions (R5, intents), in addition to memory_bytes. The node allocates it
  /// on demand. It is separate so that a node that is full of records can still note what an undo needs. A write beyond
  /// it gets kOverloaded. 0: a thirty-second of memory_bytes, at least 16 MiB.
  uint64_t intent_memory_bytes = 0;
  /// Size of a log page, a power of two. The largest row fits into one page.
  uint64_t page_bytes = uint64_t{8} << 20;
  /// Ask the kernel for transparent huge pages.
  bool huge_pages = true;
  /// Threads that execute point operations.
  unsigned network_threads = 1;
  /// Operations of a batch whose cache misses overlap. 1: each operation waits for its own misses.
  unsigned batch_group = 16;
  /// Prefetch the memory that the operations of a group read and write.
  bool batch_prefetch = true;
  /// Threads that execute shared scans.
  unsigned scan_threads = 1;
  /// Time for which an idle network thread polls before it sleeps.
  uint64_t spin_ns = 100'000;
  /// Network threads poll without end and never sleep. Each of them occupies one core.
  bool never_sleep = false;
  /// Cores for the network threads, such as "2,4-7". Thread i runs on core i of the list, modulo its length. Empty: the
  /// operating system places the threads.
  std::string network_cores{};
  /// A table whose share of garbage is larger than this is compacted.
  double compact_dead_share = 0.25;
  /// Share of one core that compaction gets while memory is short; network threads sleep to grant it. 0: none.
  double compact_core_share = 0.25;
  /// Memory is short when this share of the memory that ordinary writes may use is in use.
  double compact_watermark = 0.8;
  /// Tables whose cold pages become column pages: "never", "scanned" (tables that are scanned), "always".
  std::string columns = "scanned";
  /// A compaction that has fewer rows for a column page than this writes them as rows.
  size_t column_rows = 256;
  /// Niceness of the compactor's thread, 0 to 19; a higher number is a lower priority. Network threads keep the
  /// niceness of the process.
  unsigned background_nice = 10;
  /// Niceness of the scan threads, 0 to 19.
  unsigned scan_nice = 5;
  /// Scan queries that may run at the same time. A further query gets kOverloaded.
  uint32_t max_queries = 256;
  /// A query ends with kTimeout when its client accepts no chunk for this time (R25, stalled queries).
  uint64_t scan_stall_limit_ns = 30'000'000'000;
  /// Time for which start() tries to reach the commit manager.
  uint64_t register_timeout_ns = 10'000'000'000;

  /// Checks the range of every field. kInvalidArgument names the option that is wrong and its range.
  Status check() const;
};

/// A storage node keeps records in memory and answers the requests of clients.
///
/// Role: owns the threads, the memory and the connections of one node. start() creates the network threads, the scan
/// threads, a background thread for the compactor, and a control thread that talks to the commit manager; the
/// administration service adds the threads of gRPC.
/// Owner: main(), `loam dev`, the simulator or a test. Life: from start() until stop() or the destructor, which end the
/// threads. The destructor drops all records: memory is the only storage, and without replication they are lost (R10,
/// incarnations).
/// Threads: any thread may call any function.
/// Source: docs/architecture.md.
class StorageNode {
 public:
  /// Starts a storage node: allocates memory, listens, registers with the commit manager, and serves requests.
  ///
  /// Blocks until the node is registered, or until the commit manager answers that it waits for other nodes before it
  /// admits this one. If the commit manager does not run yet, start() waits for it up to register_timeout_ns.
  /// Errors: kInvalidArgument (an option), kNoSpace (not enough memory), kUnavailable (port in use, commit manager
  /// unreachable), kTimeout (the commit manager does not answer), kWrongCluster (the commit manager belongs to another
  /// cluster, or its state is not the newest of its cluster).
  ///
  /// `on_replaced` tells the owner that another node has replaced this one (kFenced, R10). The node then serves no
  /// requests, and the owner ends it. A thread of the node makes the call, at most once; the owner must not destroy the
  /// node inside the call.
  static Result<std::unique_ptr<StorageNode>> start(const NodeOptions& options,
                                                    std::function<void(const Status&)> on_replaced = {});
  ~StorageNode();
  StorageNode(const StorageNode&) = delete;
  StorageNode& operator=(const StorageNode&) = delete;

  /// Ends the service: refuses new requests with kUnavailable, answers the requests already received, and ends the
  /// threads. Blocks for a few seconds at most. A second call has no effect.
  void stop();

  /// The address at which the node listens, with the selected port: "tcp://127.0.0.1:41234".
  const std::string& address() const;
  /// The address of the administration service, "127.0.0.1:41235". Empty if there is none.
  const std::string& admin_address() const;

  /// Reads the counters of the node and of its tables. May block on short locks.
  NodeStatistics statistics() const;
  /// Copies the latencies of the requests, and the slowest operations of the last minute. Waits for short locks at
  /// most.
  latency::Latencies latencies() const;
  /// Checks the invariants of every table (index, chains, pages) and of the page pool. Returns the first breach, or "".
  /// The check visits every entry, so it is slow. No other thread may write meanwhile (tests, the simulator).
  std::string check_invariants() const;

 private:
  struct Impl;
  explicit StorageNode(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::storage
