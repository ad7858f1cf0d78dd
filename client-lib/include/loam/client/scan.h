// Streams of shared scans.
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

/// One query of a batch.
struct ScanRequest {
  Table table;
  Query query;
};

/// What a query cost, summed over the storage nodes; complete when the stream has ended. Before that it is what the
/// nodes have told, if the scan's options ask for progress.
struct ScanStatistics {
  uint64_t nodes = 0;
  uint64_t pages = 0;          ///< pages read
  uint64_t pages_skipped = 0;  ///< pages that could hold nothing that the query selects
  uint64_t pages_total = 0;    ///< pages of the table when the query joined
  uint64_t records = 0;        ///< entries looked at
  uint64_t rows = 0;           ///< rows that matched
  uint64_t chunks = 0;         ///< received from the nodes
  uint64_t bytes = 0;          ///< of those chunks
  uint64_t busy_ns = 0;        ///< time of the nodes' scan threads; of what queries share, each has an equal part
  uint64_t queued_ns = 0;      ///< from a node's receipt to its first page, the longest of the nodes
  uint64_t elapsed_ns = 0;     ///< from the call to the end of the stream
};

/// The result of one query, as column-wise chunks in the Arrow layout (common/schema/arrow.h hands them out without a
/// copy). Projections stream while the nodes scan, in no order; aggregates, groups and top-k come at the end.
///
/// Move-only; used by one fiber or thread at a time; destroyed before its Client. Destroying it early cancels the query
/// at the nodes. Chunks stay valid after the stream.
class ScanStream {
 public:
  ~ScanStream();
  ScanStream(ScanStream&&) noexcept;
  ScanStream& operator=(ScanStream&&) noexcept;

  /// Columns of every chunk.
  const ResultSchema& schema() const;

  /// The next chunk, or null at the end. May suspend or block. Errors end the stream: kNoSuchTable (dropped
  /// meanwhile), kSnapshotTooOld, kFenced (the session has ended), kOverflow, kUnavailable (a connection was lost:
  /// scans are not repeated), kCancelled.
  Result<std::shared_ptr<const Chunk>> next();
  /// All chunks that are left. For results that fit into memory. If it fails, also by the end of a CallScope, the
  /// stream has ended.
  Result<std::vector<std::shared_ptr<const Chunk>>> collect();
  /// Ends the query at the nodes; next() then gives kCancelled.
  void cancel();

  ScanStatistics statistics() const;
  /// After the end of a scan that was only to be explained (ScanOptions::explain): how a node would evaluate it, in
  /// lines of text.
  std::string plan() const;

  class Impl;
  explicit ScanStream(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam::client
