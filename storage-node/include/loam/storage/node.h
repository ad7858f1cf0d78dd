// The storage node as one object: what its program, `loam dev` and the tests build and run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace loam::storage {

/// How a node is set up. Everything here is a run-time option of the programs; `check()` tells what is out of range.
struct NodeOptions {
  std::string listen = "tcp://127.0.0.1:0";  ///< data path; port 0 takes a free one; loopback unless told otherwise
  std::string advertise{};  ///< where clients reach the data path, if not at `listen`: behind a proxy or a NAT
  std::string manager = "tcp://127.0.0.1:7400";  ///< the commit manager
  std::string admin_listen = "127.0.0.1:0";      ///< gRPC administration, host:port; empty for none
  uint64_t memory_bytes = uint64_t{1} << 30;     ///< the node's limit: records, indexes, and what queries collect
  /// The part of memory_bytes that all scan queries together may use for groups, rows of a top-k and results on their
  /// way. Queries take it as they need it; a query beyond it gets kOverloaded. The rest is for records and indexes,
  /// mapped and faulted in at start.
  double query_memory_share = 0.125;
  uint64_t page_bytes = uint64_t{8} << 20;  ///< log page; a power of two; a row must fit into one
  bool huge_pages = true;                   ///< ask for transparent huge pages
  unsigned network_threads = 1;
  unsigned batch_group = 16;   ///< operations of a batch whose cache misses overlap; 1: one after another
  bool batch_prefetch = true;  ///< fetch what a group's operations will read and write ahead of them
  unsigned scan_threads = 1;
  uint64_t spin_ns = 100'000;  ///< how long an idle network thread polls before it sleeps
  bool never_sleep = false;    ///< network threads poll without end, a core each
  /// Cores of the network threads, such as "2,4-7": the first one for the first thread, and so on, from the start again
  /// when there are fewer. Empty: where the system puts them.
  std::string network_cores{};
  double compact_dead_share = 0.25;  ///< a table with a larger share of dead bytes is compacted
  double compact_core_share = 0.25;  ///< of a core, for compaction while memory is short: network threads give way
  double compact_watermark = 0.8;    ///< memory is short above this share of what writes may use
  /// Which tables' cold pages are rewritten column by column: "never", "scanned" (those that are scanned), "always".
  std::string columns = "scanned";
  size_t column_rows = 256;       ///< fewer rows that a compaction could write column by column stay rows
  unsigned background_nice = 10;  ///< priority of the compactor's thread below the network threads
  unsigned scan_nice = 5;         ///< the same of the scan threads
  uint32_t max_queries = 256;     ///< concurrent scan queries; more get kOverloaded
  uint64_t scan_stall_limit_ns =
      30'000'000'000;  ///< queries whose clients take no chunk for so long get kTimeout (R25)
  uint64_t register_timeout_ns = 10'000'000'000;  ///< start() tries to reach the commit manager for so long

  Status check() const;
};

/// A table's share of a node's statistics.
struct TableStatistics {
  uint64_t table = 0;
  std::string name;
  std::string index_of;  ///< the table that this is an index of: then its records are nodes of a tree; else empty
  uint64_t keys = 0;     ///< removed ones whose tombstone is not collected yet among them
  uint64_t pages = 0;
  uint64_t log_bytes = 0;      ///< entries in those pages
  uint64_t column_pages = 0;   ///< of the pages, those whose rows lie in columns
  uint64_t garbage_bytes = 0;  ///< estimate from above: what is superseded, removed or reverted
  uint64_t index_bytes = 0;
  uint64_t gets = 0;
  uint64_t hops = 0;  ///< versions that gets walked beyond the first
  uint64_t writes = 0;
  uint64_t reverts = 0;
  uint64_t conflicts = 0;
  uint64_t no_space = 0;  ///< writes refused for want of memory
};

/// Counters of a node since its start; for people, not consistent to the last operation.
struct NodeStatistics {
  uint64_t node = 0;  ///< 0 before it is registered
  uint64_t incarnation = 0;
  bool connected = false;      ///< to the commit manager
  bool lease_holds = false;    ///< requests are served (R9), unless memory_lost
  bool memory_lost = false;    ///< an operator must accept the loss before the shards are served (R10)
  std::string cluster;         ///< 32 hexadecimal digits; empty before the node is registered
  uint64_t manager_epoch = 0;  ///< of the commit manager at the last registration
  /// Why the commit manager that answers at the address is refused: it is of another cluster, or its state is not the
  /// newest of this one. The node keeps its records, and serves nothing once its lease has run out (R10). Empty: it is
  /// not.
  std::string manager_refusal;
  uint64_t uptime_ns = 0;
  uint64_t memory_limit_bytes = 0;  ///< for records and indexes
  uint64_t memory_used_bytes = 0;
  uint64_t query_memory_limit_bytes = 0;  ///< for all queries together
  uint64_t query_memory_used_bytes = 0;
  uint64_t query_memory_refused = 0;  ///< times that a query could not have what it needed
  uint64_t batches = 0;               ///< frames executed
  uint64_t operations = 0;            ///< point operations in them
  uint64_t malformed = 0;             ///< connections ended for bytes that are no message
  uint64_t sessions = 0;              ///< known now: with a connection, or with answers that are kept (R3)
  uint64_t fenced = 0;                ///< requests refused because their session has ended (R7)
  uint64_t refused = 0;               ///< requests refused without a lease, without the records, or while stopping
  uint64_t repeated = 0;              ///< requests that came again and were not executed again (R3)
  uint64_t reconnects = 0;            ///< times that the commit manager was found again
  uint64_t scans = 0;                 ///< queries finished
  uint64_t scan_pages = 0;            ///< pages walked, each once for all queries that met there
  uint64_t scan_records = 0;          ///< entries walked
  uint64_t compacted_pages = 0;
  uint64_t freed_pages = 0;
  uint64_t messages_in = 0, messages_out = 0;
  uint64_t frames_in = 0, frames_out = 0;
  uint64_t bytes_in = 0, bytes_out = 0;
  uint64_t flushes = 0;                          ///< calls that gave bytes to the network; verbs: doorbells
  uint64_t work_requests = 0;                    ///< verbs: sends of all doorbells
  uint64_t direct_writes = 0, direct_bytes = 0;  ///< verbs: writes into clients' memory by their devices
  uint64_t polls = 0, empty_polls = 0;           ///< rounds of the network threads; those without an event
  std::vector<TableStatistics> tables;
};

/// A running storage node.
///
/// Owner and life: main(), `loam dev` or a test; start() brings up its threads (network threads, scan threads, a
/// background thread for the compactor, a control thread that talks to the commit manager, and gRPC's own), stop() or
/// the destructor ends them and drops all records: storage is memory, and without replication it is gone (R10).
/// Threads: any.
class StorageNode {
 public:
  /// Takes memory, listens, registers with the commit manager and serves. Blocks until the node is registered, or the
  /// commit manager says that it waits for other nodes before it takes this one; a commit
  /// manager that is not there yet is waited for, up to register_timeout_ns. kInvalidArgument (an option), kNoSpace
  /// (memory), kUnavailable (port in use, commit manager unreachable), kTimeout (it does not answer), kWrongCluster
  /// (its state is not the newest of its cluster).
  ///
  /// `on_ended` is called at most once, by a thread of the node, when the commit manager says that this node was
  /// replaced (kFenced, R10): it serves nothing any more, and whoever owns it shall end it, not from within the call.
  static Result<std::unique_ptr<StorageNode>> start(const NodeOptions& options,
                                                    std::function<void(const Status&)> on_ended = {});
  ~StorageNode();
  StorageNode(const StorageNode&) = delete;
  StorageNode& operator=(const StorageNode&) = delete;

  /// Refuses new requests (kUnavailable), answers those that were received, ends the threads, frees the memory; at most
  /// a few seconds. Harmless the second time.
  void stop();

  /// "tcp://127.0.0.1:41234", with the port that was taken.
  const std::string& address() const;
  /// "127.0.0.1:41235", or empty.
  const std::string& admin_address() const;

  NodeStatistics statistics() const;
  /// Looks through every table, its chains and pages, and the page pool: what is wrong, or nothing. Slow; only while
  /// nobody writes (tests, the simulator).
  std::string check_invariants() const;

 private:
  struct Impl;
  explicit StorageNode(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::storage
