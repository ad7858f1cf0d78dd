// The storage node as one object: what its program, `loam dev` and the tests build and run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <loam/storage/statistics.h>

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
  /// What all sessions together may use for the intents of their open transactions, beside memory_bytes and taken as it
  /// is needed, like the windows of answers: a node that is full of records can still remember what it undoes. A write
  /// beyond it gets kOverloaded. 0: a thirty-second of memory_bytes, at least 16 MiB.
  uint64_t intent_memory_bytes = 0;
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
