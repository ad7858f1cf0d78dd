// Queries over whole tables: ScanStream delivers the result of a shared scan.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <loam/client/options.h>
#include <loam/client/table.h>

#include "common/base/status.h"
#include "common/schema/chunk.h"
#include "common/schema/query.h"

namespace loam::client {

/// One query of a batch (Client::scan()).
struct ScanRequest {
  Table table;  ///< the whole table, not a projection
  Query query;  ///< must pass Query::check() for the table's schema
};

/// The cost of a query, summed over the storage nodes. The numbers are complete when the stream has ended. Before
/// that they contain the progress reports of the storage nodes, if ScanOptions::on_progress is set.
struct ScanStatistics {
  uint64_t nodes = 0;          ///< storage nodes that the query runs on
  uint64_t pages = 0;          ///< pages read
  uint64_t pages_skipped = 0;  ///< pages not read, because they cannot contain a row of the result
  uint64_t pages_total = 0;    ///< pages of the table when the query joined the shared scan
  uint64_t records = 0;        ///< entries examined
  uint64_t rows = 0;           ///< rows that matched
  uint64_t chunks = 0;         ///< chunks received from the storage nodes
  uint64_t bytes = 0;          ///< bytes of these chunks
  uint64_t busy_ns = 0;        ///< time of the scan threads; queries that share work have equal parts of its time
  uint64_t queued_ns = 0;      ///< wait of the query at a storage node before its first page; maximum over the nodes
  uint64_t elapsed_ns = 0;     ///< time from the call to the end of the stream
};

/// The result of one query, as a stream of column-wise chunks in the Arrow layout. common/schema/arrow.h exports a
/// chunk to Arrow without a copy. Plain rows arrive while the storage nodes scan, in no order; aggregates, groups and
/// top-k results arrive at the end.
///
/// Move-only. One fiber or thread uses a stream at a time, and destroys it before its Client. Chunks may outlive the
/// stream.
class ScanStream {
 public:
  /// Cancels the query at the storage nodes if it has not ended.
  ~ScanStream();
  /// The source may only be destroyed or assigned to. An assignment ends the query of the target, as the destructor
  /// does.
  /// @{
  ScanStream(ScanStream&&) noexcept;
  ScanStream& operator=(ScanStream&&) noexcept;
  /// @}

  /// The columns of every chunk.
  const ResultSchema& schema() const;

  /// Returns the next chunk, or null at the end of the result. May suspend the fiber or block the thread. An error
  /// ends the stream: kNoSuchTable (the table was dropped meanwhile), kSnapshotTooOld, kFenced (the session has
  /// ended), kOverflow (a sum), kUnavailable (a connection was lost; scans are not repeated), kCancelled, kTimeout
  /// (ScanOptions::time_limit_ns). The stream survives only a kTimeout of the caller's CallScope.
  Result<std::shared_ptr<const Chunk>> next();
  /// Returns all remaining chunks, for results that fit into memory. An error ends the stream, also the end of the
  /// caller's CallScope.
  Result<std::vector<std::shared_ptr<const Chunk>>> collect();
  /// Ends the query at the storage nodes. next() then returns kCancelled.
  void cancel();

  /// The cost of the query so far.
  ScanStatistics statistics() const;
  /// How a storage node would evaluate the query, in lines of text. Available after the end of a stream with
  /// ScanOptions::explain; otherwise empty.
  std::string plan() const;

  class Impl;
  /// For the library.
  explicit ScanStream(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::client
