// Each record is a register whose versions form a chain, because every write names the version that it replaces. One
// reply or one read of a version fixes its link in the chain.
#include "tests/sim/plain_model.h"

#include <algorithm>
#include <mutex>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "common/wire/system_tables.h"

namespace loam::sim {

PlainModel::WriteNumber PlainModel::write_called(uint32_t process, RecordId place, Kind kind, uint64_t expected,
                                                 uint64_t tag, std::optional<int64_t> value) {
  const std::lock_guard lock(verdict_.mutex());
  Register& record = registers_[place];
  Write write;
  write.process = process;
  write.place = place;
  write.kind = kind;
  write.expected = expected;
  write.tag = tag;
  const auto replaced = record.by_version.find(expected);
  write.value = value || replaced == record.by_version.end() ? value : writes_[replaced->second].value;
  write.requested_at = record.changed = verdict_.next();
  write.starts = record.starts++;
  // A write that meets no other write and names the newest version must succeed. check_refusal() uses this.
  write.alone = record.open.empty() && record.live.contains(expected);
  const auto number = static_cast<WriteNumber>(writes_.size());
  writes_.push_back(write);
  record.open.insert(number);
  if (tag != 0) by_tag_[tag] = number;
  keys_[place.table].insert(place.key);
  return number;
}

void PlainModel::write_returned(WriteNumber number, StatusCode code, uint64_t version) {
  const std::lock_guard lock(verdict_.mutex());
  Write& write = writes_[number];
  write.ended = registers_[write.place].changed = verdict_.next();
  if (code == StatusCode::kUnknownOutcome) {
    write.state = State::kUnknown;
    return;
  }
  if (code == StatusCode::kOk) {
    ++acknowledged_;
    write.state = State::kApplied;
    return applied(number, version, write.ended);
  }
  write.state = State::kRefused;
  registers_[write.place].open.erase(number);
  if (write.seen)
    violate("plain-refused-visible", name(write) + " was seen, and then answered " + std::string(to_string(code)));
  if (code == StatusCode::kConflict || code == StatusCode::kNotFound) check_refusal(write);
}

void PlainModel::check_refusal(const Write& write) {
  const Register& record = registers_[write.place];
  // Another write that was called meanwhile may be the reason for the refusal, and so may a loss.
  if (!write.alone || record.starts != write.starts + 1 || !record.live.contains(write.expected)) return;
  if (losses_.lost_between(write.place, 0, verdict_.last())) return;
  violate("plain-wrong-refusal", name(write) + " was a conflict, and no other client has written since that version");
}

void PlainModel::applied(WriteNumber number, uint64_t version, LogicalTime by) {
  Write& write = writes_[number];
  Register& record = registers_[write.place];
  record.open.erase(number);
  if (write.kind != Kind::kRemove) {
    // A write that was executed twice gets two versions (R3, idempotent requests).
    if (write.version != 0 && write.version != version) {
      violate("plain-applied-twice", name(write) + " made version " + std::to_string(write.version) + " and version " +
                                         std::to_string(version));
    }
    write.version = version;
    const auto [maker, fresh] = record.by_version.emplace(version, number);
    if (maker->second != number) {
      violate("plain-version-returned", "version " + std::to_string(version) + " was made by " +
                                            name(writes_[maker->second]) + " and by " + name(write));
    }
    if (fresh && !record.taken.contains(version)) record.live.insert(version);
  }
  take(record, number, by);
}

void PlainModel::take(Register& record, WriteNumber number, LogicalTime by) {
  const Write& write = writes_[number];
  const auto gone = [&](uint64_t version) {
    record.live.erase(version);
    const auto [since, fresh] = record.taken_by.emplace(version, by);
    if (!fresh) since->second = std::min(since->second, by);
  };
  // An update or removal replaces the version that it names. Two such writes of one version are a lost update.
  if (write.kind != Kind::kInsert) {
    const auto [taker, fresh] = record.taken.emplace(write.expected, number);
    if (taker->second != number) {
      violate("plain-lost-update", name(write) + " and " + name(writes_[taker->second]));
    }
    // Every other unanswered write that expects this version must fail.
    std::erase_if(record.open, [&](WriteNumber open) {
      const Write& other = writes_[open];
      return other.state == State::kUnknown && other.kind != Kind::kInsert && other.expected == write.expected;
    });
    return gone(write.expected);
  }
  // The insert found no record, so another client has removed the previous one, and has not been told yet.
  const std::set<uint64_t> live = record.live;
  for (const uint64_t version : live) {
    const Write& maker = writes_[record.by_version.at(version)];
    if (version == write.version || maker.ended >= write.requested_at) continue;
    const bool removed = std::any_of(record.open.begin(), record.open.end(), [&](WriteNumber open) {
      return writes_[open].kind == Kind::kRemove && writes_[open].expected == version;
    });
    if (!removed && !may_be_lost(maker)) {
      violate("plain-lost-update", name(write) + " over " + name(maker) + ", which no client removed");
    }
    gone(version);
  }
}

void PlainModel::read(uint32_t process, RecordId place, const ObservedRecord& seen, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  Register& record = registers_[place];
  const std::string reader =
      "process " + std::to_string(process) + " saw " + to_string(seen) + " in " + to_string(place);
  if (check_observed(reader, record, place, seen, requested_at))
    check_live_versions(record, place, seen.version, requested_at);
}

bool PlainModel::check_observed(const std::string& reader, Register& record, RecordId place, const ObservedRecord& seen,
                                LogicalTime requested_at) {
  const auto wrong = [&](std::string_view invariant, const std::string& text) {
    violate(invariant, reader + text);
    return false;
  };
  if (losses_.is_unavailable(place, requested_at)) {
    return wrong("lost-shard-served", ", whose node lost its memory, and no operator accepted the loss");
  }
  if (!seen.present()) return true;
  const auto tagged = by_tag_.find(seen.tag);
  if (tagged == by_tag_.end() || writes_[tagged->second].place != place) return wrong("plain-unwritten-read", "");
  Write& write = writes_[tagged->second];
  write.seen = true;
  if (write.state == State::kRefused) return wrong("plain-refused-visible", " of " + name(write));
  if (write.value && *write.value != seen.value) {
    return wrong("plain-wrong-value", " of " + name(write) + ", whose value is " + std::to_string(*write.value));
  }
  if (write.state == State::kApplied && losses_.any() && losses_.is_lost(place, write.ended, requested_at)) {
    return wrong("lost-record-returned", " of " + name(write));
  }
  // A read of its record shows that a write took effect, even if its client was told nothing.
  applied(tagged->second, seen.version, verdict_.last());
  // A version that was certainly replaced before the read was requested must not be returned.
  const auto replaced = record.taken_by.find(seen.version);
  if (replaced == record.taken_by.end() || replaced->second >= requested_at) return true;
  const auto taker = record.taken.find(seen.version);
  return wrong("plain-stale-read", ", requested at event " + std::to_string(requested_at) + ", and by event " +
                                       std::to_string(replaced->second) + " it had been replaced" +
                                       (taker == record.taken.end() ? "" : " by " + name(writes_[taker->second])));
}

void PlainModel::scanned(uint32_t process, TableId table, std::span<const ScannedRow> rows, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  std::map<Key, size_t> found;
  for (const ScannedRow& row : rows) {
    ++found[row.key];
    const RecordId place{table, row.key};
    check_observed(
        "a scan of process " + std::to_string(process) + " saw " + to_string(row.seen) + " in " + to_string(place),
        registers_[place], place, row.seen, requested_at);
  }
  for (const Key key : keys_[table]) {
    const RecordId place{table, key};
    const Register& record = registers_[place];
    // A scan guarantees nothing about a record that a client may have changed while it ran.
    if (!record.open.empty() || record.changed >= requested_at || losses_.lost_between(place, 0, verdict_.last()))
      continue;
    const size_t rows_found = found.contains(key) ? found[key] : 0;
    if (rows_found == record.live.size()) continue;
    violate("scan-exactly-once", "a scan of process " + std::to_string(process) + " returned " + to_string(place) +
                                     " " + std::to_string(rows_found) + " times, and no client changed it meanwhile");
  }
}

void PlainModel::check_live_versions(Register& record, RecordId place, uint64_t seen_version,
                                     LogicalTime requested_at) {
  for (const uint64_t version : record.live) {
    const Write& maker = writes_[record.by_version.at(version)];
    if (version == seen_version || maker.state != State::kApplied || maker.ended >= requested_at || may_be_lost(maker))
      continue;
    // A write without a reply may have replaced the version.
    const bool replaced = std::any_of(record.open.begin(), record.open.end(),
                                      [&](WriteNumber open) { return writes_[open].expected == version; });
    if (replaced) continue;
    violate("plain-write-lost", to_string(place) + " was read at event " + std::to_string(requested_at) +
                                    " as version " + std::to_string(seen_version) +
                                    ", and no client replaced the version made by " + name(maker));
  }
}

bool PlainModel::may_be_lost(const Write& write) const {
  return losses_.any() && losses_.may_be_lost(write.place, write.requested_at, verdict_.last());
}

void PlainModel::client_crashed(uint32_t process) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  for (Write& write : writes_) {
    if (write.process != process || write.state != State::kCalled) continue;
    write.state = State::kUnknown;
    write.ended = verdict_.last();
  }
}

std::vector<Key> PlainModel::keys(TableId table) const {
  const auto found = keys_.find(table);
  return found == keys_.end() ? std::vector<Key>() : std::vector<Key>(found->second.begin(), found->second.end());
}

std::string PlainModel::name(const Write& write) const {
  constexpr std::string_view kKinds[] = {"insert", "update", "remove"};
  return "the " + std::string(kKinds[static_cast<size_t>(write.kind)]) + " of " + to_string(write.place) +
         " by process " + std::to_string(write.process) + " (tag " + std::to_string(write.tag >> 32) + ":" +
         std::to_string(write.tag & UINT32_MAX) + ", expected version " + std::to_string(write.expected) +
         ", made version " + std::to_string(write.version) + ", events " + std::to_string(write.requested_at) + ".." +
         (write.ended == kNever ? "" : std::to_string(write.ended)) + ")";
}

// ---- counters ------------------------------------------------------------------------------------------------------

void CounterModel::drew(uint64_t object, std::string_view counter, uint64_t number) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  ++numbers_;
  // A counter whose record is lost may start again.
  const Key key(XXH3_64bits(counter.data(), counter.size()));
  if (losses_.any() && losses_.lost_between({wire::kCounterTableId, key}, 0, verdict_.last())) return;
  const std::string text = "number " + std::to_string(number) + " of counter " + std::string(counter);
  auto& drawn = drawn_[std::string(counter)];
  const auto [other, fresh] = drawn.emplace(number, object);
  if (!fresh || number == 0) {
    verdict_.violate("counter-twice", text + " was drawn by objects " + std::to_string(object) + " and " +
                                          std::to_string(other->second));
  }
  uint64_t& last = last_[object];
  if (number <= last && fresh) {
    verdict_.violate("counter-order", text + " was drawn after " + std::to_string(last) + " of the same object");
  }
  last = number;
}

}  // namespace loam::sim
