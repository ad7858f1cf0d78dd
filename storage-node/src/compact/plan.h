// How large the target pages of a compaction job must be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace loam::storage {

/// Sizes of the pages that take entries of these sizes (bytes), one after another in this order, each entry into the
/// present page if it fits, else into the next one that does. Also enough for every subsequence of the entries: leaving
/// one out never makes a later one lie further behind. Full pages of `page_bytes`, then one or two smaller powers of
/// two that waste at most about a quarter. Each size must fit a page.
std::vector<size_t> plan_targets(std::span<const uint32_t> entry_bytes, size_t page_bytes);

/// A column page that takes the next `rows` of the rows that are left.
struct ColumnPagePlan {
  size_t rows = 0;
  size_t text_bytes = 0;
  size_t page_bytes = 0;
};
/// Pages for rows that have these bytes of texts and take `row_bytes` each besides, in order; a page takes
/// `overhead_bytes` more. As with plan_targets(), the last of them may be smaller ones. Each row fits a page.
std::vector<ColumnPagePlan> plan_column_pages(std::span<const uint32_t> text_bytes, size_t row_bytes,
                                              size_t overhead_bytes, size_t page_bytes);

}  // namespace loam::storage
