// Sorts the rows of a result in this program, for queries that the cluster does not sort.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/schema/chunk.h"
#include "common/schema/value.h"
#include "deploy/cli/src/query/query_plan.h"

namespace loam::cli {

/// Upper bound on the rows that are kept in memory for sorting.
inline constexpr size_t kMaxSortedRows = 2'000'000;

/// Collects the rows of a query and sorts them. The plan outlives it. Threads: one.
class SortedRows {
 public:
  explicit SortedRows(const QueryPlan& plan) : plan_(plan) {}

  /// Adds the rows of a chunk. kInvalidArgument: more than kMaxSortedRows rows.
  Status add(const ChunkView& chunk);
  /// Removes and returns all rows, in the plan's order and up to its limit.
  std::vector<std::vector<Value>> take();

 private:
  bool before(const std::vector<Value>& a, const std::vector<Value>& b) const;

  const QueryPlan& plan_;
  std::vector<std::vector<Value>> rows_;
};

}  // namespace loam::cli
