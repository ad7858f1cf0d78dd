// Rows of an answer, put in order and cut here, where the cluster does not do it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/status.h"
#include "common/schema/chunk.h"
#include "common/schema/value.h"
#include "deploy/cli/src/query/question.h"

namespace loam::cli {

/// Most rows that are kept to be sorted.
inline constexpr size_t kMaxSortedRows = 2'000'000;

/// Collects rows of a question that outlives it.
class SortedRows {
 public:
  explicit SortedRows(const Question& question) : question_(question) {}

  /// kInvalidArgument beyond kMaxSortedRows.
  Status add(const ChunkView& chunk);
  /// All rows, in the order and up to the limit of the question.
  std::vector<std::vector<Value>> take();

 private:
  bool before(const std::vector<Value>& a, const std::vector<Value>& b) const;

  const Question& question_;
  std::vector<std::vector<Value>> rows_;
};

}  // namespace loam::cli
