// Merging of the results of several storage nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/status.h"
#include "common/result/aggregate.h"
#include "common/schema/chunk.h"
#include "common/schema/query.h"

namespace loam {

/// Merges the partial chunks of any number of storage nodes (Query::partial_schema()) into the result of a query
/// (Query::result_schema()).
///
/// The rows of a projection pass through as they arrive, up to the limit. A top-k keeps its k best rows and returns
/// them in order at the end. Aggregates are merged group by group and returned at the end, those that Query::groups
/// selects in its order.
///
/// Groups beyond kMaxGroups or kMaxGroupBytes go to a temporary file (GroupRuns). Groups with an order are in memory
/// while they are sorted, with a limit only the first ones; more than kMaxRankedBytes of them are an error.
///
/// Owner: one thread. The schema outlives the merger.
class ResultMerger {
 public:
  /// Memory of the groups that are sorted, in bytes.
  static constexpr size_t kMaxRankedBytes = size_t{256} << 20;
  /// Bounds of memory. Tests set others than the defaults.
  struct Limits {
    size_t groups = kMaxGroups;
    size_t ranked_bytes = kMaxRankedBytes;
  };

  /// Receives chunks of the result schema.
  using Sink = std::function<Status(std::shared_ptr<const Chunk>)>;

  /// `query` was checked against `schema`.
  ResultMerger(const Schema& schema, Query query, Sink sink)
      : ResultMerger(schema, std::move(query), std::move(sink), Limits()) {}
  ResultMerger(const Schema& schema, Query query, Sink sink, const Limits& limits);
  ~ResultMerger();
  ResultMerger(const ResultMerger&) = delete;
  ResultMerger& operator=(const ResultMerger&) = delete;

  const std::shared_ptr<const ResultSchema>& partial_schema() const;
  const std::shared_ptr<const ResultSchema>& result_schema() const;

  /// Adds a partial chunk of a storage node. kInvalidArgument: there are too many groups, or their rows need too much
  /// memory. Other errors come from the sink.
  Status add(const std::shared_ptr<const Chunk>& partial);
  /// Whether the limit is reached. The merger drops further chunks, so the caller may cancel the scans.
  bool limit_reached() const;
  /// Ends the result, after the chunks of all storage nodes were added. kOverflow: an integer sum does not fit into
  /// int64. Other errors are those of expressions over groups.
  Status finish();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace loam
