// The checks of TransactionModel: what one read or one commit must satisfy.
#include <algorithm>
#include <mutex>

#include "tests/sim/transaction_model.h"

namespace loam::sim {
namespace {

/// Number of later begins after which a commit that is not visible is a violation, and not only late.
constexpr TransactionNumber kVisibilityGraceBegins = 16;

}  // namespace

// ---- reads ---------------------------------------------------------------------------------------------------------

void TransactionModel::check_own_write(const ModelTransaction& reader, const Write& own, const ObservedRecord& seen) {
  if (own.leaves_record() ? seen.present() && seen.tag == own.tag && seen.value == own.value : !seen.present()) return;
  // An update of some fields of a lost record leaves no record.
  if (own.of_fields && !seen.present() && losses_.lost_between(own.place, 0, verdict_.last())) return;
  violate("own-write-unread", name(reader) + " saw " + to_string(seen) + " in " + to_string(own.place) +
                                  " after its own " + std::string(to_string(own.kind)) + " of tag " +
                                  std::to_string(own.tag));
}

void TransactionModel::check_read(ModelTransaction& reader, RecordId place, const ObservedRecord& seen,
                                  LogicalTime requested_at, AccessPath way) {
  // An index can answer that no record has a value without reading any record.
  const bool looked = seen.present() || way != AccessPath::kIndex;
  if (looked && losses_.is_unavailable(place, requested_at)) {
    return violate("lost-shard-served", name(reader) + " was told " + to_string(seen) + " of " + to_string(place) +
                                            ", whose node lost its memory, and no operator accepted the loss");
  }
  // Only the first read of a record is compared with the writers. Every later read must equal it.
  const auto [before, first] = reader.reads.emplace(place, seen);
  if (!first) {
    if (!(before->second == seen)) check_repeatable(reader, place, before->second, seen, way);
    return;
  }
  if (seen.present()) {
    ModelTransaction* writer = check_writer(reader, place, seen);
    if (writer == nullptr) return;
    check_not_lost(*writer, place, requested_at);
    mark_observed(*writer, reader, place);
    check_no_newer(reader, place, seen, way);
    check_atomic(reader, *writer);
  } else {
    check_absent(reader, place, way);
  }
}

void TransactionModel::check_scanned_row(ModelTransaction& reader, RecordId place, const ObservedRecord& seen,
                                         LogicalTime requested_at, ScanKind walk) {
  if (const Write* own = reader.write_of(place); own != nullptr) {
    // After a loss, the index may lack the old entry of the record; the update then fails at commit.
    const bool lost = own->kind != WriteKind::kInsert && losses_.lost_between(place, 0, verdict_.last());
    if (seen.present() || !lost) check_own_write(reader, *own, seen);
  } else {
    check_read(reader, place, seen, requested_at, walk == ScanKind::kScan ? AccessPath::kScan : AccessPath::kIndex);
  }
}

void TransactionModel::check_unique(const ModelTransaction& reader, TableId table, std::span<const ScannedRow> rows) {
  if (!indexes_.enforces_unique(table, reader.requested, reader.answered)) return;
  std::map<int64_t, Key> values;
  for (const ScannedRow& row : rows) {
    const auto [other, fresh] = values.emplace(row.seen.value, row.key);
    // The check of the commit judges the transaction's own writes.
    const auto counts = [&](Key key) { return reader.write_of({table, key}) == nullptr; };
    if (fresh || !counts(row.key) || !counts(other->second)) continue;
    violate("index-unique", "a scan of " + name(reader) + " found the value " + std::to_string(row.seen.value) +
                                " twice in table " + std::to_string(table.value));
  }
}

void TransactionModel::check_repeatable(const ModelTransaction& reader, RecordId place, const ObservedRecord& before,
                                        const ObservedRecord& seen, AccessPath way) {
  // A record that was read before may be lost now.
  if (!seen.present() && losses_.lost_between(place, reader.requested, verdict_.last())) return;
  violate(way == AccessPath::kGet ? "non-repeatable-read"
          : seen.present()        ? "scan-snapshot"
                                  : "scan-exactly-once",
          name(reader) + " saw " + to_string(before) + " in " + to_string(place) + ", and then " + to_string(seen));
}

ModelTransaction* TransactionModel::check_writer(const ModelTransaction& reader, RecordId place,
                                                 const ObservedRecord& seen) {
  const auto found = by_id_.find(seen.version);
  ModelTransaction* writer = found == by_id_.end() ? nullptr : &at(found->second);
  const Write* write = writer == nullptr ? nullptr : static_cast<const ModelTransaction*>(writer)->write_of(place);
  if (write == nullptr || !write->leaves_record()) {
    const auto tagged = by_tag_.find(seen.tag);
    violate("unwritten-read", name(reader) + " saw " + to_string(seen) + " in " + to_string(place) +
                                  ", which no transaction wrote there" +
                                  (tagged == by_tag_.end() ? "" : "; the tag is of " + name(at(tagged->second))));
    return nullptr;
  }
  if (!check_writer_state(reader, *writer, place)) return nullptr;
  if (write->tag != seen.tag || write->value != seen.value) {
    violate("wrong-value", name(reader) + " saw " + to_string(seen) + " in " + to_string(place) + ", and " +
                               name(*writer) + " wrote tag " + std::to_string(write->tag >> 32) + ":" +
                               std::to_string(write->tag & UINT32_MAX) + ", value " + std::to_string(write->value));
    return nullptr;
  }
  return writer;
}

bool TransactionModel::check_writer_state(const ModelTransaction& reader, const ModelTransaction& writer,
                                          RecordId place) {
  // Several conditions may hold at once. The first one names the violation.
  std::string_view invariant;
  if (writer.commit_requested == kNever) {
    invariant = writer.outcome == Outcome::kOpen ? "dirty-read" : "abort-visible";
  } else if (reader.must_lack(writer)) {
    invariant = "lost-commit-visible";
  } else if (writer.outcome == Outcome::kAborted && writer.commit_lost == kNever) {
    invariant = "abort-visible";
  } else if (writer.fenced) {
    invariant = "fenced-visible";
  } else if (writer.commit_requested > reader.answered) {
    invariant = "future-read";
  } else if (reader.id.value != 0 && writer.id.value >= reader.id.value) {
    invariant = "version-above-id";
  } else {
    return true;
  }
  violate(invariant, name(reader) + " saw " + to_string(place) + " as " + name(writer) + " wrote it");
  return false;
}

void TransactionModel::check_not_lost(const ModelTransaction& writer, RecordId place, LogicalTime requested_at) {
  if (losses_.any() && losses_.is_lost(place, writer.ended, requested_at) && writer.outcome == Outcome::kCommitted) {
    violate("lost-record-returned", to_string(place) + " was returned as " + name(writer) +
                                        " wrote it, after the loss of its node was accepted");
  }
}

bool TransactionModel::must_see(const ModelTransaction& reader, const ModelTransaction& writer) const {
  // Two reasons: the commit was visible before the reader requested its begin, or the reader has seen another write
  // of the same transaction.
  return writer.certain() && writer.number != reader.number && writer.may_be_visible() &&
         ((writer.visible_by < reader.requested && !reader.may_lack(writer)) || reader.has_seen(writer));
}

void TransactionModel::check_no_newer(const ModelTransaction& reader, RecordId place, const ObservedRecord& seen,
                                      AccessPath way) {
  const Chain& chain = chains_[place];
  // The chain is in the order of ids, which is the order of versions. A newer write that the reader must see
  // contradicts the read.
  for (auto entry = chain.rbegin(); entry != chain.rend() && entry->first > seen.version; ++entry) {
    const ModelTransaction& writer = at(entry->second);
    if (must_see(reader, writer) && !excused(writer, place))
      return report_missed_write(reader, writer, place, seen, way);
  }
}

std::pair<ModelTransaction*, size_t> TransactionModel::removals(const ModelTransaction& reader, RecordId place,
                                                                uint64_t id) {
  std::pair<ModelTransaction*, size_t> found{nullptr, 0};
  Chain& chain = chains_[place];
  for (auto entry = chain.upper_bound(id); entry != chain.end(); ++entry) {
    ModelTransaction& remover = at(entry->second);
    if (remover.write_of(place)->leaves_record() || remover.number == reader.number) continue;
    if (reader.must_lack(remover)) continue;
    if (remover.commit_requested > reader.answered || (reader.id.value != 0 && remover.id.value > reader.id.value))
      continue;
    found.first = &remover;
    ++found.second;
  }
  // With several candidates the reader may have seen any of them, so none is known to be seen.
  if (found.second != 1) found.first = nullptr;
  return found;
}

void TransactionModel::check_absent(const ModelTransaction& reader, RecordId place, AccessPath way) {
  const Chain& chain = chains_[place];
  const ModelTransaction* newest = nullptr;
  for (auto entry = chain.rbegin(); entry != chain.rend() && newest == nullptr; ++entry) {
    const ModelTransaction& writer = at(entry->second);
    if (must_see(reader, writer) && !excused(writer, place)) newest = &writer;
  }
  // Nothing contradicts the read if the reader must see no write, or if the newest one that it must see is a removal.
  // Otherwise a later removal must be the reason.
  if (newest == nullptr || !newest->write_of(place)->leaves_record()) return;
  const auto [remover, count] = removals(reader, place, newest->id.value);
  if (count == 0) return report_missed_write(reader, *newest, place, ObservedRecord(), way);
  if (remover != nullptr && !excused(*remover, place)) {
    mark_observed(*remover, reader, place);
    check_atomic(reader, *remover);
  }
}

void TransactionModel::report_missed_write(const ModelTransaction& reader, const ModelTransaction& writer,
                                           RecordId place, const ObservedRecord& seen, AccessPath way) {
  const bool unknown = writer.outcome == Outcome::kUnknown;
  const bool seen_here = writer.write_of(place)->seen;
  std::string_view invariant = "begin-after-ack";
  if (way != AccessPath::kGet && !seen.present() && !unknown) {
    invariant = "scan-exactly-once";
  } else if (reader.has_seen(writer)) {
    invariant = unknown ? "half-commit" : "fractured-read";
  } else if (way != AccessPath::kGet && !unknown) {
    invariant = "scan-snapshot";
  } else if (unknown) {
    invariant = seen_here ? "outcome-changed" : "half-commit";
  } else if (seen_here || reader.number > writer.begins_then + kVisibilityGraceBegins) {
    invariant = "commit-lost";
  }
  violate(invariant, name(reader) + " saw " + to_string(seen) + " in " + to_string(place) + ", and must see the " +
                         std::string(to_string(writer.write_of(place)->kind)) + " by " + name(writer));
}

void TransactionModel::check_atomic(const ModelTransaction& reader, const ModelTransaction& writer) {
  if (!writer.may_be_visible()) return;
  for (const Write& write : writer.writes) {
    const auto read = reader.reads.find(write.place);
    if (read == reader.reads.end() || excused(writer, write.place)) continue;
    // The other read is consistent if it returned the write or a later one, or nothing after a removal that the
    // reader may have seen.
    if (read->second.present() ? read->second.version >= writer.id.value
                               : !write.leaves_record() || removals(reader, write.place, writer.id.value).second != 0) {
      continue;
    }
    return report_missed_write(reader, writer, write.place, read->second, AccessPath::kGet);
  }
}

void TransactionModel::check_total(const ModelTransaction& reader, TableId table, const Total& found) {
  const auto should = totals_.find(table);
  // A loss also removes the values of the lost records, so the sum is unknown.
  if (should == totals_.end() || found == should->second.total || losses_.any()) return;
  violate("scan-sum", "a scan of " + name(reader) + " over table " + std::to_string(table.value) + " found " +
                          std::to_string(found.count) + " records of sum " + std::to_string(found.sum) + ", not " +
                          std::to_string(should->second.total.count) + " of " +
                          std::to_string(should->second.total.sum));
}

void TransactionModel::mark_observed(ModelTransaction& writer, const ModelTransaction& reader, RecordId place) {
  writer.write_of(place)->seen = true;
  if (!writer.seen && writer.outcome == Outcome::kUnknown) ++resolved_;
  writer.seen = true;
  if (writer.commit_lost != kNever && !commits_may_go_) {
    violate("durable-commit-lost",
            name(reader) + " has seen " + to_string(place) + " as " + name(writer) + " wrote it");
  }
  if (writer.visible_by == kNever) writer.begins_then = static_cast<TransactionNumber>(transactions_.size());
  writer.visible_by = std::min(writer.visible_by, reader.answered);
}

// ---- commits -------------------------------------------------------------------------------------------------------

void TransactionModel::check_commit(const ModelTransaction& writer) {
  if (writer.commit_lost != kNever) return;
  for (const Write& write : writer.writes) {
    if (excused(writer, write.place)) continue;
    const Chain& chain = chains_[write.place];
    const auto self = chain.find(writer.id.value);
    if (self == chain.end()) continue;
    // A transaction without an outcome is checked when it has one, or at the end of the run. Until then it permits no
    // conclusion.
    bool next_to = true;
    const auto skip = [&](const ModelTransaction& other) {
      if (other.commit_lost != kNever) return true;  // a power cut undid it
      const bool uncertain = !other.certain() || !other.may_be_visible();
      next_to = next_to && !uncertain;
      return uncertain;
    };
    auto before = std::make_reverse_iterator(self);
    while (before != chain.rend() && skip(at(before->second))) ++before;
    if (before != chain.rend()) {
      check_adjacent_writers(at(before->second), writer, write.place, next_to);
    } else if (next_to) {
      check_write_kinds(nullptr, writer, write.place);
    }
    next_to = true;
    auto after = std::next(self);
    while (after != chain.end() && skip(at(after->second))) ++after;
    if (after != chain.end()) check_adjacent_writers(writer, at(after->second), write.place, next_to);
  }
}

void TransactionModel::check_adjacent_writers(const ModelTransaction& before, const ModelTransaction& after,
                                              RecordId place, bool next_to) {
  if (excused(before, place) || excused(after, place)) return;
  const auto read = after.reads.find(place);
  const std::string text = name(after) + " wrote " + to_string(place) + " over " + name(before);
  if (read != after.reads.end()) {
    const ObservedRecord& seen = read->second;
    // If the reader found no record, a removal between the two writers may be the reason.
    if (seen.present() ? seen.version < before.id.value : next_to && before.write_of(place)->leaves_record()) {
      return violate("lost-update", text + ", having seen " + to_string(seen));
    }
  }
  if (before.commit_requested > after.answered) {
    return violate("conflict-missed", text + ", which had not requested its commit when the other began");
  }
  if (next_to) check_write_kinds(&before, after, place);
}

void TransactionModel::check_write_kinds(const ModelTransaction* before, const ModelTransaction& after,
                                         RecordId place) {
  const Write& write = *after.write_of(place);
  const bool there = before != nullptr && before->write_of(place)->leaves_record();
  if (there == (write.kind != WriteKind::kInsert)) return;
  if (losses_.any() && losses_.lost_between(place, 0, verdict_.last())) return;
  violate(there ? "insert-over-record" : "update-of-nothing",
          name(after) + ": " + std::string(to_string(write.kind)) + " of " + to_string(place) + ", which " +
              (before == nullptr ? "no transaction wrote it before" : name(*before) + " wrote before"));
}

LogicalTime TransactionModel::last_seen(const ModelTransaction& writer, const Write& write) const {
  if (!write.leaves_record() || writer.commit_requested == kNever) return 0;
  const bool was_there = writer.commit_lost != kNever && writer.certain();
  if (!writer.may_be_visible() && !was_there) return 0;
  LogicalTime last = writer.commit_lost;
  const auto chain = chains_.find(write.place);
  if (chain == chains_.end()) return last;
  for (auto next = chain->second.upper_bound(writer.id.value); next != chain->second.end(); ++next) {
    const ModelTransaction& successor = transactions_[next->second];
    if (successor.certain() && successor.commit_lost == kNever) last = std::min(last, successor.visible_by);
  }
  return last;
}

bool TransactionModel::may_violate_unique(const ModelTransaction& writer, const Write& write) const {
  const TableId table = write.place.table;
  if (indexes_.any_damaged(table, writer.requested)) return true;
  if (!indexes_.may_enforce_unique(table)) return false;
  const auto others = [&](const Write& other) {
    return other.place.table == table && other.place.key != write.place.key && other.value == write.value;
  };
  for (const ModelTransaction& holder : transactions_) {
    for (const Write& other : holder.writes) {
      if (!others(other)) continue;
      if (&holder == &writer ? other.leaves_record() : last_seen(holder, other) >= writer.requested) return true;
    }
  }
  return false;
}

void TransactionModel::index_refused(std::string_view index, TableId table, UniqueBy unique, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  const LogicalTime now = verdict_.next();
  if (indexes_.requested_for_newer_table(index, table) || losses_.any()) return;
  struct Held {
    Key key;
    LogicalTime from, to;
  };
  std::map<int64_t, std::vector<Held>> values;
  for (const ModelTransaction& holder : transactions_) {
    for (const Write& write : holder.writes) {
      if (write.place.table != table || unique != UniqueBy::kValue) continue;
      // The time from the request of the commit to the last snapshot that may contain the write. Two records whose
      // times overlap may have had the value at once.
      const Held held{write.place.key, holder.commit_requested, last_seen(holder, write)};
      if (held.to < requested_at) continue;
      for (const Held& other : values[write.value]) {
        if (other.key != held.key && other.from <= held.to && held.from <= other.to) return;
      }
      values[write.value].push_back(held);
    }
  }
  violate("index-refused", "the creation of " + std::string(index) + " from event " + std::to_string(requested_at) +
                               " to " + std::to_string(now) + ", although no two records can have had the same values");
}

void TransactionModel::check_refusal(const ModelTransaction& writer) {
  const bool exists = writer.answer == StatusCode::kAlreadyExists;
  if (!exists && writer.answer != StatusCode::kNotFound) return;
  for (const Write& write : writer.writes) {
    if (exists && write.leaves_record() && may_violate_unique(writer, write)) return;
    if ((write.kind == WriteKind::kInsert) != exists) continue;
    const auto read = writer.reads.find(write.place);
    // this write may be the reason for the refusal
    if (read == writer.reads.end() || read->second.present() == exists) return;
    if (losses_.lost_between(write.place, writer.requested, verdict_.last())) return;
  }
  violate("wrong-refusal", name(writer) + " had read that its " + (exists ? "inserts" : "changes") + " are possible");
}

}  // namespace loam::sim
