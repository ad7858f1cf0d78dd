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

// ---- which there are -----------------------------------------------------------------------------------------------

size_t IndexModel::begin_change(Named& of, UniqueBy unique) {
  of.changes.push_back({verdict_.next(), kNever, false});
  numbers_.push_back({&of, of.changes.size() - 1, unique});
  return numbers_.size() - 1;
}

size_t IndexModel::create_called(std::string_view index, TableId table, UniqueBy unique) {
  const std::lock_guard lock(verdict_.mutex());
  Named& of = named(index);
  of.tables[table] = unique;
  const size_t number = begin_change(of, unique);
  Change& change = of.changes.back();
  of.wanted = std::min(of.wanted, change.asked);
  // Only records that are not unique end an index by its creation.
  if (unique == UniqueBy::kNothing) change.ended = 0;
  return number;
}

void IndexModel::create_returned(size_t create, StatusCode code) {
  const std::lock_guard lock(verdict_.mutex());
  const Number& number = numbers_[create];
  Change& change = number.named->changes[number.change];
  const Moment now = verdict_.next();
  if (number.unique != UniqueBy::kNothing) change.ended = code == StatusCode::kAlreadyExists ? now : 0;
}

void IndexModel::opened(std::string_view index, TableId id, bool ready, Moment asked) {
  const std::lock_guard lock(verdict_.mutex());
  const Moment now = verdict_.next();
  if (!ready) return;
  Named& of = named(index);
  const auto [entry, fresh] = known_.try_emplace(id, Known{std::string(index), asked, now});
  const std::string text = "index " + std::string(index) + " of number " + std::to_string(id.value);
  if (must_be_damaged(id, asked)) violate("index-undamaged", text + " was shown as ready after a loss was accepted");
  if (entry->second.name != index) violate("table-id-twice", text + ", which was " + entry->second.name);
  if (!fresh || id < of.newest) return;
  if (of.newest != TableId() && !may_be_gone(of, known_.at(of.newest), now)) {
    violate("index-gone",
            text + " took the place of number " + std::to_string(of.newest.value) + ", which nobody has dropped");
  }
  of.newest = id;
}

bool IndexModel::may_be_gone(const Named& named, const Known& known, Moment by) {
  return std::ranges::any_of(named.changes,
                             [&](const Change& change) { return change.ended > known.asked && change.asked <= by; });
}

void IndexModel::absent(std::string_view index, Moment asked) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  const Named& of = named(index);
  if (of.newest == TableId()) return;
  const Known& known = known_.at(of.newest);
  if (known.told >= asked || may_be_gone(of, known, verdict_.last())) return;
  violate("index-gone", "index " + known.name + " could not be opened, and nobody has dropped it");
}

void IndexModel::refused(TableId id, Moment asked) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  const auto known = known_.find(id);
  if (known == known_.end() || known->second.told >= asked) return;
  if (may_be_gone(named(known->second.name), known->second, verdict_.last())) return;
  violate("index-gone", "index " + known->second.name + " of number " + std::to_string(id.value) +
                            " is none for a transaction that began at event " + std::to_string(asked) +
                            ", and nobody has dropped it");
}

size_t IndexModel::drop_called(std::string_view index) {
  const std::lock_guard lock(verdict_.mutex());
  return begin_change(named(index), UniqueBy::kNothing);
}

void IndexModel::drop_returned(size_t drop, StatusCode code) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  if (code != StatusCode::kOk && code != StatusCode::kNoSuchTable) return;  // it may still happen
  const Number& number = numbers_[drop];
  Change& change = number.named->changes[number.change];
  change.ended = verdict_.last();
  change.done = true;
}

// ---- damage --------------------------------------------------------------------------------------------------------

Moment IndexModel::born(const Named& named, Moment asked) {
  Moment born = named.wanted;
  for (const Change& change : named.changes) {
    if (change.done && change.ended < asked) born = std::max(born, change.asked);
  }
  return born;
}

bool IndexModel::any_damaged(TableId table, Moment asked) const {
  return std::ranges::any_of(
      named_, [&](const auto& entry) { return entry.second.tables.contains(table) && damaged(entry.second, asked); });
}

bool IndexModel::must_be_damaged(TableId id, Moment asked) const {
  const auto known = known_.find(id);
  return known != known_.end() && losses_.settled(known->second.told, asked);
}

void IndexModel::read(TableId id, Moment begun) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  if (!must_be_damaged(id, begun)) return;
  violate("index-undamaged", "index " + known_.at(id).name + " of number " + std::to_string(id.value) +
                                 " answered a transaction that began at event " + std::to_string(begun) +
                                 ", after a loss was accepted");
}

void IndexModel::malformed(std::string_view index, Moment asked) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  if (damaged(named(index), asked)) return;
  violate("index-damaged", "index " + std::string(index) + " is damaged for a request of event " +
                               std::to_string(asked) + ", and no node was lost since it was created");
}

void IndexModel::malformed_commit(std::span<const TableId> tables, Moment asked) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  if (std::ranges::any_of(tables, [&](TableId table) { return any_damaged(table, asked); })) return;
  violate("index-damaged", "a commit of a transaction that began at event " + std::to_string(asked) +
                               " met a damaged index, and no node was lost since its tables' were created");
}

// ---- uniqueness ----------------------------------------------------------------------------------------------------

bool IndexModel::keeps_values_apart(TableId table, Moment from, Moment to) const {
  return std::ranges::any_of(named_, [&](const auto& entry) {
    const Named& of = entry.second;
    const auto wanted = of.tables.find(table);
    // Of the last table that it was wanted for: no other's index has its name now.
    if (wanted == of.tables.end() || wanted->second != UniqueBy::kValue || std::next(wanted) != of.tables.end()) {
      return false;
    }
    if (of.newest == TableId()) return false;
    const Known& known = known_.at(of.newest);
    return known.told < from && !may_be_gone(of, known, to);
  });
}

bool IndexModel::may_keep_values_apart(TableId table) const {
  return std::ranges::any_of(named_, [&](const auto& entry) {
    const auto wanted = entry.second.tables.find(table);
    return wanted != entry.second.tables.end() && wanted->second == UniqueBy::kValue;
  });
}

bool IndexModel::wanted_for_later(std::string_view index, TableId table) const {
  const auto found = named_.find(index);
  return found != named_.end() && found->second.tables.upper_bound(table) != found->second.tables.end();
}

// ---- what they show ------------------------------------------------------------------------------------------------

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

bool IndexModel::hit(std::string_view index, TransactionId writer, size_t count, size_t shown, Moment begun) {
  const std::lock_guard lock(verdict_.mutex());
  if (count == shown) return true;
  if (losses_.any_since(begun)) return false;
  violate("index-hits", "a change by " + std::string(index) + " of transaction " + std::to_string(writer.value) +
                            " hit " + std::to_string(count) + " records, and the same range had shown it " +
                            std::to_string(shown));
  return false;
}

void IndexModel::blocked(std::string_view index, int64_t value, const Status& refusal) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.violate("index-blocked",
                   "value " + std::to_string(value) + " of " + std::string(index) + ": " + refusal.to_string());
}

void IndexModel::swept(std::string_view index, size_t strays) {
  const std::lock_guard lock(verdict_.mutex());
  if (strays == 0) return;
  verdict_.violate("index-stray-node",
                   std::to_string(strays) + " nodes lay outside of the tree of " + std::string(index));
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
