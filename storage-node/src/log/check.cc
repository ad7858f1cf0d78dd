// TableLog::check_invariants(): of its pages, each by itself and all together.
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

/// Counts in its page's garbage_bytes(): each is counted when it becomes so, before its writer is answered.
bool counts_as_garbage(const Entry& entry, const Link& link) {
  const bool superseded = !link.open() && link.valid_to != kPending;
  return entry.tombstone() || !link.live() || superseded;
}

/// "" or what is wrong with the page's entries.
std::string check_entries(Page& page) {
  size_t garbage = 0;
  bool all_visible = true;
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
    if (entry->page_shift != std::countr_zero(page.size_bytes())) return wrong("an entry does not find its page");
    if ((entry->kind == EntryKind::kColumns) != page.has_columns())
      return wrong("an entry is in a page of another kind");
    const Link link = entry->load_link();
    if (counts_as_garbage(*entry, link)) garbage += page.footprint(*entry);
    all_visible = all_visible && link.live() && link.open();
  }
  if (page.all_visible() && !all_visible) return "not every entry of an all-visible page is open: " + describe(page);
  if (page.garbage_bytes() < garbage) {
    return std::to_string(garbage) + " bytes are garbage, but only " + std::to_string(page.garbage_bytes()) +
           " are counted: " + describe(page);
  }
  return {};
}

std::string check_page(Page& page, TableId table) {
  if (page.table() != table) return "a page of another table is in the page list: " + describe(page);
  if (!std::has_single_bit(page.size_bytes()) || reinterpret_cast<uint64_t>(&page) % page.size_bytes() != 0) {
    return "a page is not aligned to its size: " + describe(page);
  }
  if (page.filled_bytes() > page.capacity_bytes()) return "a page is filled beyond its room: " + describe(page);
  if (page.all_visible() && !page.has_columns()) return "a page of rows is all-visible: " + describe(page);
  return check_entries(page);
}

}  // namespace

std::string TableLog::check_invariants() const {
  std::unordered_set<const Page*> heads;
  for (size_t w = 0; w < writers_count_; ++w) {
    for (size_t c = 0; c < kHeads; ++c) {
      const Page* const head = writers_[w].heads[c];
      if (head == nullptr) continue;
      if (!heads.insert(head).second) return "a page is a head twice: " + describe(*head);
      if (head->reserve() != static_cast<Reserve>(c)) return "a head was opened for another class: " + describe(*head);
    }
  }
  // Relaxed: nobody opens a page meanwhile.
  const uint64_t next_number = next_page_number_.load(std::memory_order_relaxed);
  std::unordered_set<uint64_t> numbers;
  for (Page* const page : pages_.pages()) {
    std::string wrong = check_page(*page, table_);
    if (!wrong.empty()) return wrong;
    if (page->number() >= next_number) return "a page has a number of the future: " + describe(*page);
    if (!numbers.insert(page->number()).second) return "a page number is there twice: " + describe(*page);
    const bool head = heads.erase(page) != 0;
    if (page->state() != (head ? PageState::kHead : PageState::kSealed)) {
      return std::string(head ? "a head" : "no head") + " is in state " +
             std::to_string(static_cast<int>(page->state())) + ": " + describe(*page);
    }
  }
  return heads.empty() ? "" : "a head is not in the page list: " + describe(**heads.begin());
}

}  // namespace loam::storage
