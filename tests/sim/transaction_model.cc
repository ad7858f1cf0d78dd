// The reports about transactions, and the state that they change. transaction_checks.cc has the checks of one read or
// one commit, order_check.h the check of the whole run.
#include "tests/sim/transaction_model.h"

#include <algorithm>
#include <mutex>

#include "common/base/assert.h"
#include "tests/sim/order_check.h"

namespace loam::sim {

std::string_view to_string(WriteKind kind) {
  switch (kind) {
    case WriteKind::kInsert:
      return "insert";
    case WriteKind::kUpdate:
      return "update";
    case WriteKind::kRemove:
      return "remove";
    case WriteKind::kTouch:
      return "touch";
  }
  return "";
}

std::string_view to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kOpen:
      return "open";
    case Outcome::kCommitting:
      return "committing";
    case Outcome::kCommitted:
      return "committed";
    case Outcome::kAborted:
      return "aborted";
    case Outcome::kUnknown:
      return "unknown";
  }
  return "";
}

// ---- ModelTransaction ----------------------------------------------------------------------------------------------

const Write* ModelTransaction::write_of(RecordId place) const {
  const auto found =
      std::find_if(writes.begin(), writes.end(), [place](const Write& write) { return write.place == place; });
  return found == writes.end() ? nullptr : &*found;
}

Write* ModelTransaction::write_of(RecordId place) {
  return const_cast<Write*>(static_cast<const ModelTransaction*>(this)->write_of(place));
}

bool ModelTransaction::has_seen(const ModelTransaction& writer) const {
  return std::any_of(writer.writes.begin(), writer.writes.end(), [&](const Write& write) {
    const auto read = reads.find(write.place);
    return read != reads.end() && read->second.version == writer.id.value;
  });
}

// ---- one transaction -----------------------------------------------------------------------------------------------

TransactionNumber TransactionModel::begin_called(uint32_t process, bool read_only, bool upgradable) {
  const std::lock_guard lock(verdict_.mutex());
  ModelTransaction transaction;
  transaction.number = static_cast<TransactionNumber>(transactions_.size());
  transaction.process = process;
  transaction.read_only = read_only;
  transaction.upgradable = upgradable;
  transaction.requested = verdict_.next();
  transaction.id_floor = highest_id_;
  transactions_.push_back(std::move(transaction));
  return transactions_.back().number;
}

void TransactionModel::begun(TransactionNumber number, TransactionId id) {
  const std::lock_guard lock(verdict_.mutex());
  ModelTransaction& transaction = at(number);
  transaction.answered = verdict_.next();
  transaction.begun = true;
  transaction.id = id;
  ++begun_;
  if (id.value == 0) {
    const bool writes = !transaction.read_only && !transaction.upgradable;
    if (writes) violate("unexpected-answer", name(transaction) + " writes and has no id");
    return;
  }
  if (transaction.upgradable) violate("unexpected-answer", name(transaction) + " has an id before its first write");
  register_id(transaction, id);
}

void TransactionModel::id_requested(TransactionNumber number) {
  const std::lock_guard lock(verdict_.mutex());
  at(number).id_floor = highest_id_;
}

void TransactionModel::id_drawn(TransactionNumber number, TransactionId id) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  at(number).id = id;
  register_id(at(number), id);
}

void TransactionModel::register_id(ModelTransaction& transaction, TransactionId id) {
  transaction.id_assigned = verdict_.last();
  const auto [other, fresh] = by_id_.emplace(id.value, transaction.number);
  if (!fresh) {
    violate("id-twice", name(transaction) + " and " + name(at(other->second)));
  } else if (id.value <= transaction.id_floor) {
    violate("id-order", name(transaction) + " requested its id after id " + std::to_string(transaction.id_floor) +
                            " had been assigned");
  }
  highest_id_ = std::max(highest_id_, id.value);
}

void TransactionModel::begin_failed(TransactionNumber number) {
  const std::lock_guard lock(verdict_.mutex());
  end(at(number), Outcome::kAborted);
}

void TransactionModel::wrote(TransactionNumber number, const Write& write) {
  const std::lock_guard lock(verdict_.mutex());
  ModelTransaction& transaction = at(number);
  if (transaction.id == TransactionId()) violate("unexpected-answer", name(transaction) + " writes without an id");
  // An update by an index keeps the tag.
  if (write.kind != WriteKind::kTouch && write.tag != 0) by_tag_.try_emplace(write.tag, number);
  if (Write* before = transaction.write_of(write.place); before != nullptr) {
    // For other transactions, an insert followed by an update is an insert, and a remove followed by an insert is an
    // update.
    const WriteKind kind = before->kind;
    *before = write;
    if (kind == WriteKind::kInsert && write.leaves_record()) before->kind = WriteKind::kInsert;
    if (kind == WriteKind::kRemove && write.leaves_record()) before->kind = WriteKind::kUpdate;
  } else {
    transaction.writes.push_back(write);
  }
  keys_[write.place.table].insert(write.place.key);
}

void TransactionModel::read(TransactionNumber number, RecordId place, const ObservedRecord& seen,
                            LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  ++reads_;
  ModelTransaction& reader = at(number);
  if (const Write* own = reader.write_of(place); own != nullptr) {
    check_own_write(reader, *own, seen);
  } else {
    check_read(reader, place, seen, requested_at, AccessPath::kGet);
  }
}

void TransactionModel::scanned(TransactionNumber number, TableId table, std::span<const ScannedRow> rows,
                               LogicalTime requested_at, ScanKind walk) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  ++scans_;
  ModelTransaction& reader = at(number);
  std::set<Key> found;
  Total total;
  for (const ScannedRow& row : rows) {
    if (!found.insert(row.key).second) {
      violate("scan-exactly-once", "a scan of " + name(reader) + " returned " + to_string(RecordId{table, row.key}) +
                                       " twice, the second time as " + to_string(row.seen));
    }
    total.sum += row.seen.value;
    ++total.count;
    check_scanned_row(reader, {table, row.key}, row.seen, requested_at, walk);
  }
  check_unique(reader, table, rows);
  // A scan by an index contains own writes, so its total is not that of the snapshot.
  const bool whole = std::ranges::none_of(reader.writes, [&](const Write& own) { return own.place.table == table; });
  // A key that the scan did not return counts as read and absent.
  for (const Key key : keys_[table]) {
    if (!found.contains(key)) check_scanned_row(reader, {table, key}, ObservedRecord(), requested_at, walk);
  }
  if (!whole) return;
  check_total(reader, table, total);
  reader.scanned[table] = total;
}

void TransactionModel::ranged(TransactionNumber number, TableId table, std::pair<int64_t, int64_t> values,
                              std::span<const ScannedRow> rows, LogicalTime requested_at, ScanKind walk) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  ModelTransaction& reader = at(number);
  const auto in_range = [&](int64_t value) { return value >= values.first && value <= values.second; };
  std::set<Key> found;
  for (const ScannedRow& row : rows) {
    check_scanned_row(reader, {table, row.key}, row.seen, requested_at, walk);
    if (found.insert(row.key).second && in_range(row.seen.value)) continue;
    violate("scan-predicate", "a range of " + name(reader) + " from " + std::to_string(values.first) + " to " +
                                  std::to_string(values.second) + " found " + to_string(row.seen) + " in " +
                                  to_string(RecordId{table, row.key}));
  }
  // The records that the transaction must find.
  for (const Key key : keys_[table]) {
    const RecordId place{table, key};
    const Write* own = reader.write_of(place);
    const auto read = reader.reads.find(place);
    const bool there = own != nullptr
                           ? own->leaves_record() && in_range(own->value)
                           : read != reader.reads.end() && read->second.present() && in_range(read->second.value);
    if (there && !found.contains(key)) check_scanned_row(reader, place, ObservedRecord(), requested_at, walk);
  }
}

void TransactionModel::summed(TransactionNumber number, TableId table, int64_t count, int64_t sum,
                              LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  ++scans_;
  ModelTransaction& reader = at(number);
  const Total found{count, sum};
  check_total(reader, table, found);
  const auto before = reader.scanned.find(table);
  if (before == reader.scanned.end() || before->second == found ||
      losses_.any_since(std::min(requested_at, reader.requested)))
    return;
  violate("scan-sum", "a scan of " + name(reader) + " over table " + std::to_string(table.value) + " found " +
                          std::to_string(count) + " records of sum " + std::to_string(sum) +
                          ", and another in the same snapshot " + std::to_string(before->second.count) + " of " +
                          std::to_string(before->second.sum));
}

void TransactionModel::selected(TransactionNumber number, TableId table, int64_t least,
                                std::span<const ScannedRow> rows, LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  ++scans_;
  ModelTransaction& reader = at(number);
  // The expected rows are known only if the transaction has scanned the whole table before.
  if (!reader.scanned.contains(table) || losses_.any_since(std::min(requested_at, reader.requested))) return;
  std::map<Key, ObservedRecord> found;
  for (const ScannedRow& row : rows) found[row.key] = row.seen;
  const auto wrong = [&](Key key, const ObservedRecord& is, const ObservedRecord& should) {
    violate("scan-predicate", "a scan of " + name(reader) + " for values from " + std::to_string(least) + " found " +
                                  to_string(is) + " in " + to_string(RecordId{table, key}) +
                                  ", and its snapshot contains " + to_string(should));
  };
  if (found.size() != rows.size()) wrong(rows.back().key, rows.back().seen, ObservedRecord());
  for (const Key key : keys_[table]) {
    const auto read = reader.reads.find({table, key});
    const ObservedRecord should = read == reader.reads.end() ? ObservedRecord() : read->second;
    const auto is = found.find(key);
    const bool selects = should.present() && should.value >= least;
    if (selects != (is != found.end()) || (selects && !(is->second == should))) {
      wrong(key, is == found.end() ? ObservedRecord() : is->second, should);
    }
  }
}

void TransactionModel::divided(TransactionNumber number, TableId table, int64_t remainder, bool error,
                               LogicalTime requested_at) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  ++scans_;
  ModelTransaction& reader = at(number);
  if (!reader.scanned.contains(table) || losses_.any_since(std::min(requested_at, reader.requested))) return;
  const auto fails = [&](Key key) {
    const auto read = reader.reads.find({table, key});
    return read != reader.reads.end() && read->second.present() && read->second.value % kDivisor == remainder;
  };
  if (std::ranges::any_of(keys_[table], fails) == error) return;
  violate("scan-expression", "a scan of " + name(reader) + " that divides by 0 for values of remainder " +
                                 std::to_string(remainder) + " ended " + (error ? "with" : "without") +
                                 " an error, unlike its snapshot");
}

void TransactionModel::scan_ended(TransactionNumber number) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  end(at(number), Outcome::kCommitted);
}

void TransactionModel::read_failed(TransactionNumber number, StatusCode code) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  if (code == StatusCode::kFenced) at(number).fenced = true;
}

void TransactionModel::commit_called(TransactionNumber number) {
  const std::lock_guard lock(verdict_.mutex());
  ModelTransaction& transaction = at(number);
  transaction.commit_requested = verdict_.next();
  transaction.outcome = Outcome::kCommitting;
  // From now on the writes may be visible.
  join_chains(transaction);
}

void TransactionModel::commit_returned(TransactionNumber number, StatusCode code) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  ModelTransaction& transaction = at(number);
  transaction.answer = code;
  const bool writes = !transaction.writes.empty();
  if (code == StatusCode::kOk) {
    end(transaction, Outcome::kCommitted);
    if (!writes) return;
    ++commits_;
    if (transaction.fenced) violate("ack-after-fence", name(transaction));
    check_acknowledged(transaction);
    if (transaction.visible_by == kNever)
      transaction.begins_then = static_cast<TransactionNumber>(transactions_.size());
    // Every transaction whose begin is requested from now on must see the writes.
    transaction.visible_by = std::min(transaction.visible_by, transaction.ended);
    check_commit(transaction);
    return;
  }
  if (code == StatusCode::kUnknownOutcome) {
    ++unknown_;
    if (transaction.seen) ++resolved_;
    end(transaction, Outcome::kUnknown);
    return;
  }
  ++aborts_;
  end(transaction, Outcome::kAborted);
  if (transaction.seen && transaction.commit_lost == kNever) {
    violate("outcome-changed", name(transaction) + " was answered " + std::string(to_string(code)) +
                                   ", and other transactions saw its writes");
  }
  // No write of the transaction may be visible, so that later checks ignore it.
  leave_chains(transaction);
  check_refusal(transaction);
}

void TransactionModel::aborted(TransactionNumber number) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  ++aborts_;
  end(at(number), Outcome::kAborted);
}

// ---- the whole run ------------------------------------------------------------------------------------------------

void TransactionModel::expect_constant_sum(TableId table, int64_t count, int64_t sum) {
  const std::lock_guard lock(verdict_.mutex());
  totals_[table] = {{count, sum}, static_cast<TransactionNumber>(transactions_.size())};
}

void TransactionModel::client_crashed(uint32_t process) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  for (ModelTransaction& transaction : transactions_) {
    if (transaction.process != process || transaction.ended != kNever) continue;
    // A transaction that had not requested its commit has no effect. After the request, no client knows the outcome.
    const bool commit_called = transaction.outcome == Outcome::kCommitting && !transaction.writes.empty();
    if (commit_called) ++unknown_;
    if (commit_called && transaction.seen) ++resolved_;
    end(transaction, commit_called ? Outcome::kUnknown : Outcome::kAborted);
  }
}

std::vector<TransactionId> TransactionModel::ids() const {
  const std::lock_guard lock(verdict_.mutex());
  std::vector<TransactionId> ids;
  for (const ModelTransaction& transaction : transactions_) {
    if (transaction.id.value != 0) ids.push_back(transaction.id);
  }
  return ids;
}

void TransactionModel::check_acknowledged(const ModelTransaction& writer) {
  if (losses_.accepted_between(writer.id_assigned, writer.commit_requested)) {
    violate("commit-over-loss", name(writer) + " began before the loss of a node was accepted");
  }
  if (writer.commit_lost != kNever && !commits_may_go_) {
    violate("durable-commit-lost", name(writer) + " was acknowledged, and a power cut had undone it");
  }
}

void TransactionModel::manager_died(const InCommitLog& written) {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  for (const ModelTransaction& transaction : transactions_) {
    if (transaction.writes.empty() || transaction.commit_lost != kNever) continue;
    if (!transaction.certain() || !transaction.may_be_visible() || written(transaction.id)) continue;
    violate("ack-unlogged", name(transaction) + " is not in the commit log");
  }
}

void TransactionModel::power_cut(const InCommitLog& written, const InCommitLog& left, bool may_lose) {
  const std::lock_guard lock(verdict_.mutex());
  const LogicalTime now = verdict_.next();
  commits_may_go_ = may_lose;
  // Step 1: marks the commits that the log had and has lost.
  for (ModelTransaction& transaction : transactions_) {
    const TransactionId id = transaction.id;
    if (id.value == 0 || transaction.commit_lost != kNever || !written(id) || left(id)) continue;
    transaction.commit_lost = now;
    // The records of a constant sum may be gone with the transaction that made them.
    std::erase_if(totals_, [&](const auto& constant) {
      return transaction.number < constant.second.made_before &&
             std::ranges::any_of(
                 transaction.writes, [&](const Write& write) { return write.place.table == constant.first; });
    });
    if (may_lose || !transaction.certain() || transaction.writes.empty()) continue;
    violate("durable-commit-lost", name(transaction) + " is not in the commit log after a power cut");
  }
  // Step 2: commits are lost from the end of the log, so that no surviving commit has seen a lost one.
  for (const ModelTransaction& transaction : transactions_) {
    if (transaction.id.value == 0 || !left(transaction.id)) continue;
    for (const auto& [place, seen] : transaction.reads) {
      const auto writer = seen.present() ? by_id_.find(seen.version) : by_id_.end();
      if (writer == by_id_.end() || at(writer->second).commit_lost != now) continue;
      violate("lost-out-of-order", name(transaction) + " survived a power cut, and had seen " + to_string(place) +
                                       " as " + name(at(writer->second)) + " wrote it, which did not survive");
    }
  }
}

void TransactionModel::decided(TransactionId id, bool committed, bool on_disk) {
  const std::lock_guard lock(verdict_.mutex());
  const LogicalTime now = verdict_.next();
  const auto found = by_id_.find(id.value);
  if (found == by_id_.end()) return;
  ModelTransaction& transaction = at(found->second);
  if (committed != on_disk) {
    violate("log-differs", name(transaction) + " is " + (committed ? "" : "not ") +
                               "committed at the commit manager, against its log on the disk");
  }
  // Only the owner of a transaction can commit it (R8, completion by the owner).
  if (committed && transaction.commit_requested == kNever) {
    violate("log-wrong", name(transaction) + " is committed, and has not requested its commit");
  }
  if (transaction.writes.empty()) return;
  const bool gone = transaction.commit_lost != kNever;
  // The final outcome must agree with the outcome that its client was told, and with the reads of others. A power cut
  // may have undone it.
  const bool contradicted = committed ? transaction.outcome == Outcome::kAborted || gone
                                      : !gone && (transaction.outcome == Outcome::kCommitted || transaction.seen);
  if (contradicted) {
    return violate("outcome-changed", name(transaction) + " is " + (committed ? "committed" : "aborted") +
                                          " at the commit manager at the end" +
                                          (transaction.seen ? ", and other transactions saw its writes" : "") +
                                          (gone ? ", and a power cut has undone it" : ""));
  }
  // The commit manager decides the outcomes that no client knows.
  if (transaction.outcome != Outcome::kUnknown) return;
  ++resolved_;
  if (!committed) {
    transaction.outcome = Outcome::kAborted;
    return leave_chains(transaction);
  }
  transaction.ended = now;  // its end is this moment, not the crash of its client
  transaction.outcome = Outcome::kCommitted;
  if (transaction.visible_by == kNever) {
    transaction.begins_then = static_cast<TransactionNumber>(transactions_.size());
  }
  transaction.visible_by = std::min(transaction.visible_by, now);
  check_commit(transaction);
}

void TransactionModel::final_check() {
  const std::lock_guard lock(verdict_.mutex());
  verdict_.next();
  for (const ModelTransaction& transaction : transactions_) {
    if (transaction.certain() && transaction.may_be_visible()) check_commit(transaction);
  }
  if (!verdict_.failed()) OrderCheck(*this).run();
}

LogicalTime TransactionModel::requested(TransactionNumber number) const {
  const std::lock_guard lock(verdict_.mutex());
  return transactions_[number].requested;
}

std::vector<Key> TransactionModel::keys(TableId table) const {
  const auto found = keys_.find(table);
  return found == keys_.end() ? std::vector<Key>() : std::vector<Key>(found->second.begin(), found->second.end());
}

// ---- chains --------------------------------------------------------------------------------------------------------

void TransactionModel::join_chains(const ModelTransaction& writer) {
  for (const Write& write : writer.writes) chains_[write.place][writer.id.value] = writer.number;
}

void TransactionModel::leave_chains(const ModelTransaction& writer) {
  for (const Write& write : writer.writes) chains_[write.place].erase(writer.id.value);
}

bool TransactionModel::excused(const ModelTransaction& writer, RecordId place) const {
  return losses_.any() && losses_.may_be_lost(place, writer.commit_requested, verdict_.last());
}

void TransactionModel::end(ModelTransaction& transaction, Outcome outcome) {
  transaction.outcome = outcome;
  transaction.ended = verdict_.last();
}

std::string TransactionModel::name(const ModelTransaction& transaction) const {
  std::string text = transaction.id.value == 0 ? "read-only transaction #" + std::to_string(transaction.number)
                                               : "transaction " + std::to_string(transaction.id.value);
  const auto moment = [](LogicalTime at) { return at == kNever ? std::string("-") : std::to_string(at); };
  text += " of process " + std::to_string(transaction.process) + " (" + std::string(to_string(transaction.outcome));
  if (transaction.answer != StatusCode::kOk) text += ", answered " + std::string(loam::to_string(transaction.answer));
  return text + "; begin " + moment(transaction.requested) + ".." + moment(transaction.answered) + ", commit " +
         moment(transaction.commit_requested) + ".." + moment(transaction.ended) +
         (transaction.commit_lost == kNever ? "" : ", undone by a power cut at " + moment(transaction.commit_lost)) +
         ")";
}

}  // namespace loam::sim
