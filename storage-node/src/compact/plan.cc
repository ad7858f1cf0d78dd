#include "storage-node/src/compact/plan.h"

#include <algorithm>
#include <bit>

#include "common/base/assert.h"
#include "storage-node/src/log/page.h"

namespace loam::storage {
namespace {

/// True if the entries fit pages of these sizes in order.
bool fits(std::span<const uint32_t> entry_bytes, std::span<const size_t> pages) {
  size_t page = 0;
  size_t filled = 0;
  for (const uint32_t size : entry_bytes) {
    while (page < pages.size() && filled + size > pages[page] - Page::kHeaderBytes) {
      ++page;
      filled = 0;
    }
    if (page == pages.size()) return false;
    filled += size;
  }
  return true;
}

}  // namespace

std::vector<size_t> plan_targets(std::span<const uint32_t> entry_bytes, size_t page_bytes) {
  std::vector<size_t> pages;
  size_t first = 0;  // of the present page
  size_t filled = 0;
  for (size_t i = 0; i < entry_bytes.size(); ++i) {
    LOAM_CHECK(entry_bytes[i] <= page_bytes - Page::kHeaderBytes, "an entry is larger than a page");
    if (filled + entry_bytes[i] > page_bytes - Page::kHeaderBytes) {
      pages.push_back(page_bytes);
      first = i;
      filled = 0;
    }
    filled += entry_bytes[i];
  }
  if (filled == 0) return pages;
  const std::span<const uint32_t> rest = entry_bytes.subspan(first);
  const size_t whole = std::max(Page::kMinPageBytes, std::bit_ceil(Page::kHeaderBytes + filled));
  const size_t split[] = {whole / 2, whole / 4};
  if (whole / 4 >= Page::kMinPageBytes && fits(rest, split)) {
    pages.insert(pages.end(), std::begin(split), std::end(split));
  } else {
    pages.push_back(whole);
  }
  return pages;
}

std::vector<ColumnPagePlan> plan_column_pages(std::span<const uint32_t> text_bytes, size_t row_bytes,
                                              size_t overhead_bytes, size_t page_bytes) {
  /// The rows that fit a page of this size.
  const auto fill = [&](std::span<const uint32_t> left, size_t size) {
    ColumnPagePlan plan{.page_bytes = size};
    size_t filled = overhead_bytes;
    for (const uint32_t text : left) {
      filled += row_bytes + text;
      if (filled > size) break;
      ++plan.rows;
      plan.text_bytes += text;
    }
    return plan;
  };
  std::vector<ColumnPagePlan> plans;
  for (std::span<const uint32_t> left = text_bytes; !left.empty();) {
    ColumnPagePlan plan = fill(left, page_bytes);
    LOAM_CHECK(plan.rows > 0, "a row is larger than a column page");
    // The rest: a page of half the size, if what is left then fits one of a quarter.
    for (size_t size = page_bytes / 2; size >= Page::kMinPageBytes && plan.rows == left.size(); size /= 2) {
      const ColumnPagePlan smaller = fill(left, size);
      const size_t after = left.size() - smaller.rows;
      const bool enough =
          smaller.rows > 0 &&
          (after == 0 || (size / 2 >= Page::kMinPageBytes && fill(left.subspan(smaller.rows), size / 2).rows == after));
      if (!enough) break;
      plan = smaller;
    }
    plans.push_back(plan);
    left = left.subspan(plan.rows);
  }
  return plans;
}

}  // namespace loam::storage
