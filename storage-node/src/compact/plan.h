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

}  // namespace loam::storage
