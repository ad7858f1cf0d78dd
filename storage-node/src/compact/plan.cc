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

}  // namespace loam::storage
