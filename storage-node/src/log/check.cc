// TableLog::check_invariants(): checks each page by itself, then the head pages and the page list together.
#include <bit>
#include <string>
#include <unordered_set>

#include "storage-node/src/log/table_log.h"

namespace loam::storage {
namespace {

std::string describe(const Page& page) {
  return "page " + std::to_string(page.number()) + " of " + std::to_string(page.size_bytes()) + " bytes, filled to " +
         std::to_string(page.filled_bytes());
}

/// True if the page has counted the entry in garbage_bytes(). Writers count an entry before they get their reply.
bool counts_as_garbage(const Entry& entry, const Link& link) {
  const bool superseded = !link.open() && link.valid_to != kPending;
  return entry.tombstone() || !link.live() || superseded;
}

/// Checks the entries of a page. Returns the first breach, or "".
std::string check_entries(Page& page) {
  size_t garbage = 0;
  bool all_visible = true;
  // Walks by size without Page::for_each(), because a broken size must not lead the check out of the page.
  const Entry* const end = page.end();
  for (Entry* entry = page.begin(); entry != end; entry = Page::next(entry)) {
    const auto left =
        static_cast<size_t>(reinterpret_cast<const std::byte*>(end) - reinterpret_cast<std::byte*>(entry));
    const auto wrong = [&](const char* what) {
      return std::string(what) + ": key " + std::to_string(entry->key) + " version " +
             std::to_string(entry->valid_from) + ", " + std::to_string(left) + " bytes before the fill mark of " +
             describe(page);
    };
    if (left < sizeof(Entry) || entry->size_bytes > left) return wrong("an entry ends behind the fill mark");
    if (entry->size_bytes < sizeof(Entry) + entry->row_padding || entry->size_bytes % alignof(Entry) != 0) {
      return wrong("an entry has an impossible size");
    }
    if (entry->page_shift != std::countr_zero(page.size_bytes()))
      return wrong("an entry has the page size of another page");
    if ((entry->kind == EntryKind::kColumns) != page.has_columns())
      return wrong("an entry with a row lies in a column page, or one without in a row page");
    const Link link = entry->load_link();
    if (counts_as_garbage(*entry, link)) garbage += page.footprint(*entry);
    all_visible = all_visible && link.live() && link.open();
  }
  if (page.all_visible() && !all_visible) return "an all-visible page has an entry that is not open: " + describe(page);
  if (page.garbage_bytes() < garbage) {
    return std::to_string(garbage) + " bytes are garbage, but only " + std::to_string(page.garbage_bytes()) +
           " are counted: " + describe(page);
  }
  return {};
}

/// Checks a page of the list and its entries. Returns the first breach, or "".
std::string check_page(Page& page, TableId table) {
  if (page.table() != table) return "a page of another table is in the page list: " + describe(page);
  if (!std::has_single_bit(page.size_bytes()) || reinterpret_cast<uint64_t>(&page) % page.size_bytes() != 0) {
    return "a page is not aligned to its size: " + describe(page);
  }
  if (page.filled_bytes() > page.capacity_bytes())
    return "the fill mark of a page is beyond its capacity: " + describe(page);
  if (page.all_visible() && !page.has_columns()) return "a page without columns is all-visible: " + describe(page);
  return check_entries(page);
}

}  // namespace

std::string TableLog::check_invariants() const {
  // Invariant 2, first part: each head page belongs to one writer and one class.
  std::unordered_set<const Page*> heads;
  for (size_t w = 0; w < writers_count_; ++w) {
    for (size_t c = 0; c < kHeads; ++c) {
      const Page* const head = writers_[w].heads[c];
      if (head == nullptr) continue;
      if (!heads.insert(head).second) return "a page is the head page of two writers or classes: " + describe(*head);
      if (head->reserve() != static_cast<Reserve>(c))
        return "a head page was opened for another memory class: " + describe(*head);
    }
  }
  // Relaxed: no other thread opens a page meanwhile.
  const uint64_t next_number = next_page_number_.load(std::memory_order_relaxed);
  std::unordered_set<uint64_t> numbers;
  for (Page* const page : pages_.pages()) {
    std::string wrong = check_page(*page, table_);
    if (!wrong.empty()) return wrong;
    if (page->number() >= next_number) return "a page has a number that was not given out: " + describe(*page);
    if (!numbers.insert(page->number()).second) return "two pages have one number: " + describe(*page);
    // Invariant 2, second part: a listed page is kHead if it is a head page, else kSealed.
    const bool head = heads.erase(page) != 0;
    if (page->state() != (head ? PageState::kHead : PageState::kSealed)) {
      return std::string(head ? "a head page" : "a page without a writer") + " is in state " +
             std::to_string(static_cast<int>(page->state())) + ": " + describe(*page);
    }
  }
  return heads.empty() ? "" : "a head page is not in the page list: " + describe(**heads.begin());
}

}  // namespace loam::storage
