// The rules of index entries: conflicts between transactions that give or take a value, the undo, and garbage (R27,
// index entries; R28, unique indexes). The class does no I/O; the tree stores the payload.
#include <algorithm>

#include <loam/bdtree/index_entries.h>

#include "common/base/bytes.h"

namespace loam::bdtree {
namespace {

bool before(const IndexEntry& a, const IndexEntry& b) {
  return a.key != b.key ? a.key < b.key : a.valid_from < b.valid_from;
}

bool has(const IndexEntry& entry, const Snapshot& snapshot) {
  return snapshot.visible(entry.valid_from) && (entry.valid_to == Version() || !snapshot.visible(entry.valid_to));
}

}  // namespace

Result<IndexEntries> IndexEntries::decode(std::optional<std::string_view> payload, std::optional<Key> record) {
  IndexEntries entries;
  entries.record_ = record;
  if (!payload) return entries;
  ByteReader in(as_bytes(*payload));
  while (!in.at_end() && !in.failed()) {
    const Key key = record ? *record : Key(in.get_varint());
    const Version from(in.get_varint());
    const Version to(in.get_varint());
    const IndexEntry entry{key, from, to};
    // Rising entries also mean that none occurs twice (the invariants).
    if (!entries.entries_.empty() && !before(entries.entries_.back(), entry)) in.fail();
    entries.entries_.push_back(entry);
  }
  LOAM_RETURN_IF_ERROR(in.status("index entries"));
  return entries;
}

std::optional<Version> IndexEntries::obsolete_at(std::string_view payload, bool shared) {
  Version last;
  ByteReader in(as_bytes(payload));
  while (!in.at_end() && !in.failed()) {
    if (shared) in.get_varint();
    in.get_varint();  // from
    const Version to(in.get_varint());
    if (to == Version()) return std::nullopt;
    last = std::max(last, to);
  }
  if (in.failed()) return std::nullopt;
  return last;
}

std::string IndexEntries::encode() const {
  Buffer bytes;
  ByteWriter out(bytes);
  for (const IndexEntry& entry : entries_) {
    if (!record_) out.put_varint(entry.key.value);
    out.put_varint(entry.valid_from.value);
    out.put_varint(entry.valid_to.value);
  }
  return std::string(as_text(bytes));
}

Status IndexEntries::insert(Key key, TransactionId me, const Snapshot& snapshot, bool unique) {
  const Version mine = version_of(me);
  bool taken = false;
  for (IndexEntry& entry : entries_) {
    if (entry.key == key && entry.valid_from == mine) {
      entry.valid_to = Version();  // the transaction has given, taken, and given the value again
      return ok_status();
    }
    // In other indexes no two records share a key, so nothing else can conflict: the record is claimed (R1, commit
    // order).
    if (!unique) continue;
    // A change that the snapshot does not see is open or newer. In both cases this transaction cannot decide whether
    // the value is free.
    const bool foreign_from = entry.valid_from != mine && !snapshot.visible(entry.valid_from);
    const bool foreign_to = entry.valid_to != Version() && entry.valid_to != mine && !snapshot.visible(entry.valid_to);
    if (foreign_from || foreign_to) {
      return {StatusCode::kConflict, "another transaction has just given or taken the value of a unique index"};
    }
    taken |= entry.valid_to == Version() && entry.key != key;
  }
  if (taken) return {StatusCode::kAlreadyExists, "another record has the value in a unique index"};
  if (entries_.size() >= kMaxEntries) {
    return {StatusCode::kOverloaded,
            "a value of an index changed its records too often while a snapshot is open; try later"};
  }
  put({key, mine, Version()});
  return ok_status();
}

Status IndexEntries::remove(Key key, TransactionId me, const Snapshot& snapshot, bool building) {
  const Version mine = version_of(me);
  bool found = false;
  bool taken = false;
  for (IndexEntry& entry : entries_) {
    if (entry.key != key) continue;
    // An entry without an end is the record's present one. If it ended with this transaction already, the call is a
    // repetition.
    if (entry.valid_to == Version()) entry.valid_to = mine;
    found |= entry.valid_to == mine;
    taken |= entry.valid_to != mine && !snapshot.visible(entry.valid_to);
  }
  if (found) return ok_status();
  if (taken) return {StatusCode::kConflict, "another transaction has just taken the value from an index"};
  // A finished index has an entry for every value of every record, unless a storage node has lost its memory, and
  // with it entries of records on other nodes (decision 0015).
  if (!building) return {StatusCode::kMalformed, "the index has no entry for the value of a record"};
  // The build has not entered the record yet. The transaction leaves an entry that no snapshot sees, as a mark for
  // the build. An undo removes the mark completely, because transactions that began before the index may change the
  // record afterwards, and they do not maintain entries.
  put({key, mine, mine});
  return ok_status();
}

Status IndexEntries::backfill(Key key, const Snapshot& snapshot, bool unique) {
  const auto holds = [&](const IndexEntry& entry) {
    return entry.valid_to == Version() || !snapshot.visible(entry.valid_to);
  };
  // The mark of a transaction that took the value after the snapshot of the build (remove()).
  const auto taker = std::ranges::find_if(entries_, [&](const IndexEntry& entry) {
    return entry.key == key && entry.valid_from == entry.valid_to && entry.valid_from != Version() &&
           !snapshot.visible(entry.valid_from);
  });
  // The record's entries that the snapshot of the build sees.
  bool there = false;
  bool ended = true;
  for (const IndexEntry& entry : entries_) {
    if (entry.key != key || !snapshot.visible(entry.valid_from)) continue;
    there = true;
    ended = ended && !holds(entry);
  }
  // Uniqueness is decided already only if the record's entry has ended. A live entry does not prove that no other
  // record has the value: a transaction that took the value before it was entered has not checked for other records.
  const bool decided = !unique || (there && ended);
  for (const IndexEntry& entry : entries_) {
    if (decided || entry.key == key || !holds(entry)) continue;
    if (snapshot.visible(entry.valid_from) && entry.valid_to == Version()) {
      return {StatusCode::kAlreadyExists, "record " + std::to_string(entry.key.value) + " and record " +
                                              std::to_string(key.value) + " have the same value"};
    }
    return {StatusCode::kConflict, "another transaction has just given or taken the value of a unique index"};
  }
  if (there) return ok_status();
  // The entry of the build begins before all snapshots that may read the index. If a transaction has taken the value
  // since, the entry ends there.
  IndexEntry entered{key, Version(), Version()};
  if (taker != entries_.end()) {
    entered.valid_to = taker->valid_to;
    entries_.erase(taker);
  }
  put(entered);
  return ok_status();
}

void IndexEntries::put(const IndexEntry& entry) {
  entries_.insert(std::ranges::upper_bound(entries_, entry, before), entry);
}

void IndexEntries::undo(Key key, TransactionId me) {
  const Version mine = version_of(me);
  // Only what this transaction has set is changed, so the entries of others stay as they are.
  std::erase_if(entries_, [&](const IndexEntry& entry) { return entry.key == key && entry.valid_from == mine; });
  for (IndexEntry& entry : entries_) {
    if (entry.key == key && entry.valid_to == mine) entry.valid_to = Version();
  }
}

bool IndexEntries::collect(Version seen_by_all) {
  bool changed = std::erase_if(entries_, [&](const IndexEntry& e) {
                   return e.valid_to != Version() && e.valid_to <= seen_by_all;
                 }) > 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    // A begin that every snapshot sees is stored as 0, which takes one byte. Only the first entry of a record: two
    // begins of 0 would not be distinct.
    const bool first = entry == entries_.begin() || std::prev(entry)->key != entry->key;
    if (first && entry->valid_from != Version() && entry->valid_from <= seen_by_all) {
      entry->valid_from = Version();
      changed = true;
    }
  }
  return changed;
}

bool IndexEntries::coalesce(const Snapshot& snapshot, Version durable) {
  const auto final = [&](const IndexEntry& entry) {
    return entry.valid_to != Version() && entry.valid_from <= durable && entry.valid_to <= durable &&
           snapshot.visible(entry.valid_from) && snapshot.visible(entry.valid_to);
  };
  const size_t before = entries_.size();
  // Compacts in place: `last` is the last entry that stays.
  auto last = entries_.begin();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry == last) continue;
    if (entry->key == last->key && final(*last) && final(*entry)) {
      last->valid_to = std::max(last->valid_to, entry->valid_to);
    } else {
      *++last = *entry;
    }
  }
  if (last != entries_.end()) entries_.erase(std::next(last), entries_.end());
  return entries_.size() != before;
}

std::vector<Key> IndexEntries::visible(const Snapshot& snapshot) const {
  std::vector<Key> keys;
  for (const IndexEntry& entry : entries_) {
    // Entries of one record follow each other, so this comparison finds every repetition.
    if (has(entry, snapshot) && (keys.empty() || keys.back() != entry.key)) keys.push_back(entry.key);
  }
  return keys;
}

}  // namespace loam::bdtree
