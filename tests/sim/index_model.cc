#include "tests/sim/index_model.h"

#include <algorithm>
#include <iterator>
#include <mutex>

namespace loam::sim {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

std::string name(const IndexModel::Entry& entry) {
  std::string key;
  for (const char byte : entry.key) {
    key += kDigits[static_cast<uint8_t>(byte) >> 4];
    key += kDigits[static_cast<uint8_t>(byte) & 15];
  }
  return "record " + std::to_string(entry.record.value) + " under the key " + key;
}

/// The first of `entries` that `others` do not have; both rise. Null: there is none.
const IndexModel::Entry* first_without(std::span<const IndexModel::Entry> entries,
                                       std::span<const IndexModel::Entry> others) {
  const auto lacks = [&](const IndexModel::Entry& entry) { return !std::ranges::binary_search(others, entry); };
  const auto found = std::ranges::find_if(entries, lacks);
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace

void IndexModel::ranged(std::string_view index, std::span<const ScannedRow> rows) {
  const std::lock_guard lock(verdict_.mutex());
  const auto later = [](const ScannedRow& a, const ScannedRow& b) { return a.seen.value > b.seen.value; };
  if (std::ranges::adjacent_find(rows, later) == rows.end()) return;
  verdict_.violate("index-order", "a range of " + std::string(index) + " does not rise");
}

bool IndexModel::found(std::string_view index, TransactionId reader, Place place, const Seen& seen,
                       std::optional<Key> found) {
  const std::lock_guard lock(verdict_.mutex());
  if (found == place.key) return true;
  verdict_.violate("index-lost-key", "transaction " + std::to_string(reader.value) + " has read " + to_string(seen) +
                                         " in " + to_string(place) + ", and by " + std::string(index) + " there is " +
                                         (found ? "another record" : "nothing"));
  return false;
}

void IndexModel::blocked(std::string_view index, int64_t value, const Status& refusal) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.violate("index-blocked",
                   "value " + std::to_string(value) + " of " + std::string(index) + ": " + refusal.to_string());
}

void IndexModel::at_rest(std::string_view index, std::vector<Entry> live, std::vector<Entry> records) {
  const std::lock_guard lock(verdict_.mutex());
  std::ranges::sort(live);
  std::ranges::sort(records);
  if (const Entry* const phantom = first_without(live, records); phantom != nullptr) {
    verdict_.violate("index-phantom", "the tree of " + std::string(index) + " has a live entry of " + name(*phantom) +
                                          ", and the record has another value, or is not there");
  }
  if (const Entry* const lost = first_without(records, live); lost != nullptr) {
    verdict_.violate("index-lost-key", "the tree of " + std::string(index) + " has no live entry of " + name(*lost) +
                                           ", where the record is");
  }
}

}  // namespace loam::sim
