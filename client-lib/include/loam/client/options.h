// Options of a client, a transaction and a scan, with their limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <loam/client/table.h>

#include "common/base/ids.h"

namespace loam::client {

struct ScanStatistics;

/// Fixed bytes that each written record and each index change adds to a transaction's size, beside the row or the key
/// (ClientOptions::max_transaction_bytes). They stand for the intent that the storage node keeps until the
/// transaction is complete, and for the client's own bookkeeping.
inline constexpr size_t kTransactionBytesPerRecord = 32;
/// Most queries in one Client::scan() call.
inline constexpr size_t kMaxScanBatch = 256;

/// Options of Client::connect(), which returns kInvalidArgument for a time-out of 0, max_transactions of 0, and a
/// max_fibers or fiber_stack_bytes outside of its limits.
struct ClientOptions {
  /// Name of the client in the commit manager's list of sessions, for operators; at most 256 bytes are used. Empty:
  /// the program's name with process id and host.
  std::string name{};
  /// Time-out of Client::connect(). Within it the client waits for a commit manager that recovers and for storage
  /// nodes that are still starting.
  uint64_t connect_timeout_ns = 5'000'000'000;
  /// Time-out of one request and its reply. Beyond it the call returns kTimeout; a plain write or a change of the
  /// catalog that may have happened returns kUnknownOutcome.
  uint64_t request_timeout_ns = 10'000'000'000;
  /// Time-out of each step of a commit, and of the question for the outcome of a commit whose reply was lost (R4,
  /// outcomes from the commit log). It is longer than the request's, because a step without a reply costs the
  /// session (R2, abort order).
  uint64_t commit_timeout_ns = 30'000'000'000;
  /// Interval between two renewals of the session's lease. 0: a fourth of the lease that the commit manager grants.
  uint64_t renew_every_ns = 0;
  /// Most read-write and upgradable transactions that are open at once. A further begin waits for one of them to end,
  /// up to request_timeout_ns. A higher limit rarely helps: a few hundred transactions keep all cores of a storage
  /// node busy.
  size_t max_transactions = 1'024;
  /// Most begins that wait for max_transactions. A further begin gets kOverloaded at once.
  size_t max_waiting_begins = 8'192;
  /// Largest size of one transaction's writes: their rows, the keys of the index entries that they change, and
  /// kTransactionBytesPerRecord for each record and each index entry. A write beyond it gets kInvalidArgument, or
  /// commit() does if index entries exceed it: split the transaction. The number of writes has no limit.
  size_t max_transaction_bytes = size_t{64} << 20;
  /// Most fibers that are alive at once. A further spawn() waits for one of them to end.
  size_t max_fibers = 4'096;
  /// Stack size of each fiber, at least 16 KiB, for the application's functions that run in fibers and the library's
  /// calls in them. The system takes memory only for pages of the stack that are used. A guard of 64 KiB lies below
  /// the stack: an overflow ends the process by SIGSEGV.
  size_t fiber_stack_bytes = 128 * 1024;
  /// Time for which the idle worker thread polls for events before it sleeps (TransportOptions::spin_ns).
  uint64_t spin_ns = 100'000;
  /// Largest size of a tree node of an index, 128 to 16,384; larger nodes are split. An insert reads one node and
  /// sends a part of one. The storage nodes' pages must be larger.
  size_t index_node_bytes = 4'096;
  /// Size of the cache of inner tree nodes in this process, for each index.
  size_t index_cache_bytes = size_t{16} << 20;
  /// True: all transactions of the client share the cache of tree nodes. False, for comparison: every transaction
  /// begins with an empty cache.
  bool index_cache_shared = true;
  /// True: changes of one tree node by several transactions of the client travel in one message.
  bool index_combine = true;
  /// Called with warnings for operators: a fiber has held the worker thread for over 10 ms; at most once a second.
  /// Runs on the worker thread. Empty: the client writes the warning to the log (stderr). An exception that it throws
  /// is logged and dropped.
  std::function<void(std::string_view)> on_warning{};
};

/// Retry policy of Client::run_transaction(): bounded exponential back-off with full jitter. Before retry n (from 0)
/// the call waits a random time below min(max_backoff_ns, initial_backoff_ns * 2^n). After kOverloaded and
/// kUnavailable it waits longer (up to 0.5 s), and at least as long as the server advised.
struct RetryOptions {
  uint32_t max_attempts = 32;            ///< most attempts, the first one included; at least 1
  uint64_t initial_backoff_ns = 50'000;  ///< bound of the first random wait
  uint64_t max_backoff_ns = 20'000'000;  ///< highest bound of a random wait
  /// No attempt begins later than this after the first one.
  uint64_t max_elapsed_ns = 30'000'000'000;
};

/// Names one record of the cluster.
struct RecordRef {
  Table table;  ///< the table of the record
  Key key;      ///< the key of the record in the table
};

/// Options of Client::begin() and Client::run_transaction().
struct TransactionOptions {
  /// The transaction only reads. It has a registered snapshot and no id; writes are refused, the commit log has no
  /// record of it, and commit() costs no round trip.
  bool read_only = false;
  /// The transaction begins read-only, and its first write draws the id, which costs that write a round trip. For
  /// callers that do not know whether they will write. Without a write commit() costs no round trip. Like a
  /// read-write transaction it keeps the storage nodes from collecting tombstones (R20, garbage and tombstones), and
  /// it counts towards ClientOptions::max_transactions.
  bool upgradable = false;

  /// Retry policy, for run_transaction() only.
  RetryOptions retry{};
  /// Hot records, for run_transaction() only: records that this transaction writes and that many other transactions
  /// of this client write, too. Transactions that name the same record run one after the other, in the order of their
  /// arrival, instead of aborting each other. Other transactions are not delayed. Without this option,
  /// run_transaction() queues at a record after it has lost there against another transaction of this client.
  std::vector<RecordRef> contended{};
};

/// Options of Client::scan() and Transaction::scan().
struct ScanOptions {
  /// Credits of each storage node: the most chunks that it may have sent and the caller has not taken yet. A slow
  /// reader slows its own query only.
  uint32_t credits = 8;
  /// Time limit of the query; the stream then ends with kTimeout. 0: no limit.
  uint64_t time_limit_ns = 0;
  /// Called with the statistics so far when a storage node reports its progress. Runs on the client's worker thread;
  /// must neither block nor call the client. An exception cancels the scan and arrives at the caller of
  /// ScanStream::next() or collect().
  std::function<void(const ScanStatistics&)> on_progress{};
  /// Interval between two progress reports of each storage node.
  uint64_t progress_interval_ns = 100'000'000;
  /// The query reads no record; ScanStream::plan() says how a storage node would evaluate it.
  bool explain = false;
};

}  // namespace loam::client
