#include "deploy/cli/src/query/sorted_rows.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace loam::cli {

Status SortedRows::add(const ChunkView& chunk) {
  if (rows_.size() + chunk.rows() > kMaxSortedRows) {
    return Status(StatusCode::kInvalidArgument,
                  fmt::format("--order-by: the result has more than {} rows, too many to sort here; say --where, or "
                              "--limit with one selected field to sort by",
                              kMaxSortedRows));
  }
  for (size_t i = 0; i < chunk.rows(); ++i) {
    std::vector<Value>& row = rows_.emplace_back();
    row.reserve(chunk.columns());
    for (size_t c = 0; c < chunk.columns(); ++c) row.push_back(chunk.value(c, i));
  }
  return ok_status();
}

std::vector<std::vector<Value>> SortedRows::take() {
  // Stable, so that rows with equal values stay in the order in which they arrived.
  std::stable_sort(rows_.begin(), rows_.end(), [this](const auto& a, const auto& b) { return before(a, b); });
  if (plan_.limit > 0 && rows_.size() > plan_.limit) rows_.resize(plan_.limit);
  return std::move(rows_);
}

bool SortedRows::before(const std::vector<Value>& a, const std::vector<Value>& b) const {
  for (const SortColumn& sort : plan_.sort) {
    const std::weak_ordering order = a[sort.column].compare(b[sort.column]);
    if (order != 0) return sort.descending ? order > 0 : order < 0;
  }
  return false;
}

}  // namespace loam::cli
