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

/// Bytes that each record that a transaction writes, and each change that it makes in an index, counts towards
/// ClientOptions::max_transaction_bytes, beside its row or its key: what the storage node remembers until the
/// transaction is complete, and what the client keeps.
inline constexpr size_t kTransactionBytesPerRecord = 32;
/// Queries in one Client::scan call.
inline constexpr size_t kMaxScanBatch = 256;

struct ClientOptions {
  /// For operators: shown in the commit manager's list of sessions. Empty: the program's name.
  std::string name{};
  /// Until the session is open. A cluster whose storage nodes are still starting, or whose commit manager is
  /// recovering, is waited for.
  uint64_t connect_timeout_ns = 5'000'000'000;
  /// For one request and its answer: kTimeout (a plain write or a change of the catalog that may have
  /// happened: kUnknownOutcome).
  uint64_t request_timeout_ns = 10'000'000'000;
  /// For each step of a commit, longer, because a step whose answer does not come costs the session (R2); and for the
  /// question what became of a commit whose answer did not come (R4).
  uint64_t commit_timeout_ns = 30'000'000'000;
  /// How often the session's lease is renewed. 0: four times in the lease that the commit manager gives.
  uint64_t renew_every_ns = 0;
  /// Read-write transactions open at once; a begin beyond it waits for one to end, as long as a request may take.
  /// More of them are of no use: a few hundred keep all cores of a cluster's node busy.
  size_t max_transactions = 1'024;
  /// Begins that wait so; those beyond get kOverloaded at once.
  size_t max_waiting_begins = 8'192;
  /// Size of one transaction's writes: their rows, the keys of the index entries that they change, and
  /// kTransactionBytesPerRecord for each record and each index entry. A write, or for index entries the commit, beyond
  /// it gets kInvalidArgument: split the transaction. There is no limit on the number of writes.
  size_t max_transaction_bytes = size_t{64} << 20;
  /// Fibers alive at once; spawn() beyond it waits for one to end.
  size_t max_fibers = 4'096;
  /// Stack of each fiber, at least 16 KiB, for the application's functions that run in fibers and the library's calls.
  /// Memory is taken for the pages that are used. A guard of 64 KiB lies below: an overflow ends the process by
  /// SIGSEGV.
  size_t fiber_stack_bytes = 128 * 1024;
  /// The worker looks for events so long before it sleeps (TransportOptions::spin_ns).
  uint64_t spin_ns = 100'000;
  /// Of a node of an index's tree, 128 to 16,384: an insert reads one, and sends a part of one. The storage nodes'
  /// pages must be larger.
  size_t index_node_bytes = 4'096;
  /// Of inner nodes kept in this process, for each index.
  size_t index_cache_bytes = size_t{16} << 20;
  /// False, for comparison: every transaction begins with an empty cache, as TellStore's did (thesis 3.3).
  bool index_cache_shared = true;
  /// Changes of one index node by several transactions travel in one message.
  bool index_combine = true;
  /// Told, on the worker's thread, what an operator should know: a fiber that held the thread for over 10 ms, at most
  /// once a second. Empty: written to the log (stderr). An exception of it is logged and ends there.
  std::function<void(std::string_view)> on_warning{};
};

/// Bounded exponential back-off with full jitter: attempt n waits a random time below min(max, initial * 2^n). After
/// kOverloaded and kUnavailable the waits are longer (up to 0.5 s), and no shorter than the server advised.
struct RetryOptions {
  uint32_t max_attempts = 32;  ///< including the first; at least 1
  uint64_t initial_backoff_ns = 50'000;
  uint64_t max_backoff_ns = 20'000'000;
  /// No attempt begins later than this after the first.
  uint64_t max_elapsed_ns = 30'000'000'000;
};

struct RecordRef {
  Table table;
  Key key;
};

struct TransactionOptions {
  /// A registered snapshot and no id: writes are refused, nothing is logged, commit() costs no round trip.
  bool read_only = false;
  /// For callers that do not know whether the transaction will write: it begins as a read-only one, and its first write
  /// draws the id, which costs that write a round trip. Without a write commit() costs no round trip. Like a read-write
  /// transaction it keeps the storage nodes from collecting tombstones (R20) and takes a place of
  /// ClientOptions::max_transactions.
  bool upgradable = false;

  // Of run_transaction() only.
  RetryOptions retry{};
  /// Records that this transaction writes, and that many others of this client do, too. Of those that overlap one would
  /// lose, and begin anew; those that name such a record run one after the other instead, in the order of their coming.
  /// Costs the others nothing. Without it, whoever has lost against another of this client stands in line at that
  /// record.
  std::vector<RecordRef> contended{};
};

struct ScanOptions {
  /// Chunks that each node may have on their way to this client. A slow reader slows its own query only.
  uint32_t credits = 8;
  /// Beyond, the stream ends with kTimeout. 0: none.
  uint64_t time_limit_ns = 0;
  /// Called on the client's worker thread when a node tells how far it has come, about once per progress_interval_ns
  /// and node. It must neither block nor call the client. An exception cancels the scan and arrives at the caller of
  /// ScanStream::next() or collect().
  std::function<void(const ScanStatistics&)> on_progress{};
  uint64_t progress_interval_ns = 100'000'000;
  /// Reads nothing; ScanStream::plan() says what would be done.
  bool explain = false;
};

}  // namespace loam::client
