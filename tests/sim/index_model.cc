// The model of indexes. An index has a name, and under it one id after another. The model judges by requests: an
// index may be gone if a removal of its name was requested in time, whichever id it removed.
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

/// The first of `entries` that is not in `others`; null if there is none. Both spans are sorted.
const IndexModel::Entry* first_without(std::span<const IndexModel::Entry> entries,
                                       std::span<const IndexModel::Entry> others) {
  const auto lacks = [&](const IndexModel::Entry& entry) { return !std::ranges::binary_search(others, entry); };
  const auto found = std::ranges::find_if(entries, lacks);
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace

// ---- which indexes exist ------------------------------------------------------------------------------------------

size_t IndexModel::begin_change(IndexHistory& of, UniqueBy unique) {
  of.changes.push_back({verdict_.next(), kNever, false});
  changes_.push_back({&of, of.changes.size() - 1, unique});
  return changes_.size() - 1;
}

size_t IndexModel::create_called(std::string_view index, TableId table, UniqueBy unique) {
  const std::lock_guard lock(verdict_.mutex());
  IndexHistory& of = history_of(index);
  of.tables[table] = unique;
  const size_t number = begin_change(of, unique);
  Change& change = of.changes.back();
  of.wanted = std::min(of.wanted, change.requested_at);
  // Only a unique creation can remove an index: when it finds records that are not unique.
  if (unique == UniqueBy::kNothing) change.ended = 0;
  return number;
}

void IndexModel::create_returned(size_t create, StatusCode code) {
  const std::lock_guard lock(verdict_.mutex());
  const ChangeRef& number = changes_[create];
  Change& change = number.named->changes[number.change];
  const LogicalTime now = verdict_.next();
  if (number.unique != UniqueBy::kNothing) change.ended = code == StatusCode::kAlreadyExists ? now : 0;
}

void IndexModel::opened(std::string_view index, TableId id, bool ready, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  const LogicalTime now = verdict_.next();
  if (!ready) return;
  IndexHistory& of = history_of(index);
  const auto [entry, fresh] = known_.try_emplace(id, KnownIndex{std::string(index), requested_at, now});
  const std::string text = "index " + std::string(index) + " with number " + std::to_string(id.value);
  if (must_be_damaged(id, requested_at))
    violate("index-undamaged", text + " was returned as ready after a loss was accepted");
  if (entry->second.name != index) violate("table-id-twice", text + ", which was " + entry->second.name);
  // A newer index under the name means that the previous one is gone, for which some client must be the reason.
  if (!fresh || id < of.newest) return;
  if (of.newest != TableId() && !may_be_gone(of, known_.at(of.newest), now)) {
    violate("index-gone", text + " replaced number " + std::to_string(of.newest.value) + ", which no client dropped");
  }
  of.newest = id;
}

bool IndexModel::may_be_gone(const IndexHistory& named, const KnownIndex& known, LogicalTime by) {
  return std::ranges::any_of(named.changes, [&](const Change& change) {
    return change.ended > known.requested_at && change.requested_at <= by;
  });
}

void IndexModel::absent(std::string_view index, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  const IndexHistory& of = history_of(index);
  if (of.newest == TableId()) return;
  const KnownIndex& known = known_.at(of.newest);
  if (known.returned_at >= requested_at || may_be_gone(of, known, verdict_.last())) return;
  violate("index-gone", "index " + known.name + " could not be opened, and no client dropped it");
}

void IndexModel::refused(TableId id, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  const auto known = known_.find(id);
  if (known == known_.end() || known->second.returned_at >= requested_at) return;
  if (may_be_gone(history_of(known->second.name), known->second, verdict_.last())) return;
  violate("index-gone", "index " + known->second.name + " with number " + std::to_string(id.value) +
                            " was answered kNoSuchTable to a transaction that began at event " +
                            std::to_string(requested_at) + ", and no client dropped it");
}

size_t IndexModel::drop_called(std::string_view index) {
  const std::lock_guard lock(verdict_.mutex());
  return begin_change(history_of(index), UniqueBy::kNothing);
}

void IndexModel::drop_returned(size_t drop, StatusCode code) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  if (code != StatusCode::kOk && code != StatusCode::kNoSuchTable) return;  // the drop may still take effect
  const ChangeRef& number = changes_[drop];
  Change& change = number.named->changes[number.change];
  change.ended = verdict_.last();
  change.done = true;
}

// ---- damage --------------------------------------------------------------------------------------------------------

LogicalTime IndexModel::born(const IndexHistory& named, LogicalTime requested_at) {
  LogicalTime born = named.wanted;
  for (const Change& change : named.changes) {
    if (change.done && change.ended < requested_at) born = std::max(born, change.requested_at);
  }
  return born;
}

bool IndexModel::any_damaged(TableId table, LogicalTime requested_at) const {
  return std::ranges::any_of(named_, [&](const auto& entry) {
    return entry.second.tables.contains(table) && damaged(entry.second, requested_at);
  });
}

bool IndexModel::must_be_damaged(TableId id, LogicalTime requested_at) const {
  const auto known = known_.find(id);
  return known != known_.end() && losses_.accepted_between(known->second.returned_at, requested_at);
}

void IndexModel::read(TableId id, LogicalTime begun) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  if (!must_be_damaged(id, begun)) return;
  violate("index-undamaged", "index " + known_.at(id).name + " with number " + std::to_string(id.value) +
                                 " answered a transaction that began at event " + std::to_string(begun) +
                                 ", after a loss was accepted");
}

void IndexModel::malformed(std::string_view index, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  if (damaged(history_of(index), requested_at)) return;
  violate("index-damaged", "index " + std::string(index) + " was answered kMalformed to a request of event " +
                               std::to_string(requested_at) + ", and no node was lost since it was created");
}

void IndexModel::malformed_commit(std::span<const TableId> tables, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  if (std::ranges::any_of(tables, [&](TableId table) { return any_damaged(table, requested_at); })) return;
  violate("index-damaged",
          "a commit of a transaction that began at event " + std::to_string(requested_at) +
              " was answered kMalformed, and no node was lost since the indexes of its tables were created");
}

// ---- uniqueness ----------------------------------------------------------------------------------------------------

bool IndexModel::enforces_unique(TableId table, LogicalTime from, LogicalTime to) const {
  return std::ranges::any_of(named_, [&](const auto& entry) {
    const IndexHistory& of = entry.second;
    const auto wanted = of.tables.find(table);
    // Only if this table is the newest for which the index was requested: otherwise an index of another table may
    // have the name.
    if (wanted == of.tables.end() || wanted->second != UniqueBy::kValue || std::next(wanted) != of.tables.end()) {
      return false;
    }
    if (of.newest == TableId()) return false;
    const KnownIndex& known = known_.at(of.newest);
    return known.returned_at < from && !may_be_gone(of, known, to);
  });
}

bool IndexModel::may_enforce_unique(TableId table) const {
  return std::ranges::any_of(named_, [&](const auto& entry) {
    const auto wanted = entry.second.tables.find(table);
    return wanted != entry.second.tables.end() && wanted->second == UniqueBy::kValue;
  });
}

bool IndexModel::requested_for_newer_table(std::string_view index, TableId table) const {
  const auto found = named_.find(index);
  return found != named_.end() && found->second.tables.upper_bound(table) != found->second.tables.end();
}

// ---- what indexes contain -----------------------------------------------------------------------------------------

void IndexModel::ranged(std::string_view index, std::span<const ScannedRow> rows) {
  const std::lock_guard lock(verdict_.mutex());
  const auto later = [](const ScannedRow& a, const ScannedRow& b) { return a.seen.value > b.seen.value; };
  if (std::ranges::adjacent_find(rows, later) == rows.end()) return;
  verdict_.violate("index-order", "a range of " + std::string(index) + " is not ascending");
}

bool IndexModel::found(std::string_view index, TransactionId reader, RecordId place, const ObservedRecord& seen,
                       std::optional<Key> found) {
  const std::lock_guard lock(verdict_.mutex());
  if (found == place.key) return true;
  verdict_.violate("index-lost-key", "transaction " + std::to_string(reader.value) + " has read " + to_string(seen) +
                                         " in " + to_string(place) + ", and " + std::string(index) + " has " +
                                         (found ? "another record" : "nothing"));
  return false;
}

bool IndexModel::check_changed_count(std::string_view index, TransactionId writer, size_t count, size_t shown,
                                     LogicalTime begun) {
  const std::lock_guard lock(verdict_.mutex());
  if (count == shown) return true;
  // A loss since the begin may have removed records of the range.
  if (losses_.any_since(begun)) return false;
  violate("index-hits", "a change by " + std::string(index) + " of transaction " + std::to_string(writer.value) +
                            " changed " + std::to_string(count) + " records, and the same range had shown it " +
                            std::to_string(shown));
  return false;
}

void IndexModel::insert_refused(std::string_view index, int64_t value, const Status& refusal) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.violate("index-blocked",
                   "value " + std::to_string(value) + " of " + std::string(index) + ": " + refusal.to_string());
}

void IndexModel::check_swept(std::string_view index, size_t strays) {
  const std::lock_guard lock(verdict_.mutex());
  if (strays == 0) return;
  verdict_.violate("index-stray-node",
                   std::to_string(strays) + " nodes lay outside of the tree of " + std::string(index));
}

void IndexModel::check_entries(std::string_view index, std::vector<Entry> live, std::vector<Entry> records) {
  const std::lock_guard lock(verdict_.mutex());
  std::ranges::sort(live);
  std::ranges::sort(records);
  // Both lists are sorted. An entry without its record is a phantom, a record without its entry is lost to readers.
  if (const Entry* const phantom = first_without(live, records); phantom != nullptr) {
    verdict_.violate("index-phantom", "the tree of " + std::string(index) + " has a live entry of " + name(*phantom) +
                                          ", and the record has another value or does not exist");
  }
  if (const Entry* const lost = first_without(records, live); lost != nullptr) {
    verdict_.violate("index-lost-key", "the tree of " + std::string(index) + " has no live entry of " + name(*lost) +
                                           ", where the record is");
  }
}

}  // namespace loam::sim
