// Table::check_invariants(): checks index, chains and log together.
#include <string>
#include <unordered_set>

#include "storage-node/src/log/page.h"
#include "storage-node/src/version/table.h"

namespace loam::storage {
namespace {

/// The entry as messages name it.
std::string describe(const Entry& entry) {
  const Link link = entry.load_link();
  return "key " + std::to_string(entry.key) + " version " + std::to_string(entry.valid_from) + " {valid_to " +
         (link.open() ? "open" : std::to_string(link.valid_to)) + ", state " +
         std::to_string(static_cast<int>(link.state)) + "}";
}

/// Checks the chain of one key. Returns the first breach, or "". Adds to `chained` the entries that were not superseded
/// up to the horizon.
std::string check_chain(const Entry* head, bool transactional, Version horizon,
                        std::unordered_set<const Entry*>& chained) {
  if (!head->load_link().open()) return "the newest version is not open: " + describe(*head);
  const Entry* newer = nullptr;
  for (const Entry* entry = head; entry != nullptr;) {
    const Link link = entry->load_link();
    if (!link.live()) return "a chain leads to a frozen entry: " + describe(*entry);
    if (link.valid_to > horizon.value && !chained.insert(entry).second) {
      return "two chains share an entry: " + describe(*entry);
    }
    if (entry->key != head->key) return "a chain leads to another key: " + describe(*entry);
    if (newer != nullptr) {
      if (!transactional) return "a non-transactional record has two versions: " + describe(*entry);
      if (link.open()) return "an older version is open: " + describe(*entry);
      if (entry->valid_from >= newer->valid_from) return "a chain is not sorted: " + describe(*entry);
      if (link.valid_to <= entry->valid_from || link.valid_to > newer->valid_from) {
        return "a version's valid-to is not between it and the next newer one: " + describe(*entry);
      }
    }
    newer = entry;
    // The pointer of a version at or below the horizon may lead into a freed page.
    entry = transactional && entry->version() <= horizon ? nullptr : link.address;
  }
  return {};
}

}  // namespace

std::string Table::check_invariants() {
  index_->check_invariants();
  // First the log: the walk over the pages below relies on its invariants.
  std::string wrong = log_.check_invariants();
  if (!wrong.empty()) return wrong;
  std::unordered_set<const Entry*> chained;
  std::unordered_set<uint64_t> keys;
  index_->for_each([&](Entry* head) {
    if (!wrong.empty()) return;
    if (!keys.insert(head->key).second) wrong = "the index has a key twice: " + describe(*head);
    if (wrong.empty()) wrong = check_chain(head, kind() == TableKind::kTransactional, horizon(), chained);
  });
  if (!wrong.empty()) return wrong;
  // In the other direction: each live entry of the log is in a chain. Equal numbers then prove that the sets are equal.
  size_t live = 0;
  for (Page* const page : pages().pages()) {
    page->for_each([&](const Entry& entry) {
      const Link link = entry.load_link();
      if (link.state == EntryState::kMoved) wrong = "a listed page has a moved entry: " + describe(entry);
      if (!link.live() || link.valid_to <= horizon().value) return;
      ++live;
      if (!chained.contains(&entry)) wrong = "a live entry is in no chain: " + describe(entry);
    });
    if (!wrong.empty()) return wrong;
  }
  if (live != chained.size()) {
    return std::to_string(chained.size()) + " entries are in chains, but " + std::to_string(live) +
           " live entries are in listed pages";
  }
  return {};
}

}  // namespace loam::storage
