// Puts the results of several storage nodes together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/schema/chunk.h"
#include "common/schema/query.h"

namespace loam {

/// Turns partial chunks (Query::partial_schema) of any number of nodes into the result (Query::result_schema).
///
/// Projections pass through as they come (up to the limit); a top-k keeps the best k and comes at the end, in order;
/// aggregates are merged group by group and come at the end. Owned by one thread; the schema outlives it. Does no I/O.
class ResultMerger {
 public:
  /// Receives chunks of the result schema.
  using Sink = std::function<Status(std::shared_ptr<const Chunk>)>;

  /// `query` was checked against `schema`.
  ResultMerger(const Schema& schema, Query query, Sink sink);
  ~ResultMerger();
  ResultMerger(const ResultMerger&) = delete;
  ResultMerger& operator=(const ResultMerger&) = delete;

  const std::shared_ptr<const ResultSchema>& partial_schema() const;
  const std::shared_ptr<const ResultSchema>& result_schema() const;

  /// One chunk from a node, of the partial schema. Errors: the sink's, or kInvalidArgument for too many groups.
  Status add(const std::shared_ptr<const Chunk>& partial);
  /// The limit is reached: more chunks would be dropped, the nodes' scans may be cancelled.
  bool satisfied() const;
  /// Every node is done. kOverflow if an integer sum leaves int64.
  Status finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam
