// Operations on whole indexes, and the operations of TrackedTransaction by an index. tracked_transaction.cc has the
// other operations.
#include "tests/sim/tracked_index.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

namespace loam::sim {

using client::Index;
using client::IndexBound;
using client::IndexRange;
using client::Record;
using client::Table;
using client::Transaction;

// ---- operations on whole indexes ----------------------------------------------------------------------------------

IndexForm IndexForm::of(std::string_view name) {
  if (name.ends_with(kByTag)) return {{{"tag"}}, UniqueBy::kTag};
  if (name.ends_with(kOneValue)) return {{{"value"}}, UniqueBy::kValue};
  if (name.ends_with(kByValueAndTag)) return {{{"value"}, {"tag", true}}};
  return {{{"value"}}};
}

std::optional<Index> create_index(ClientProcess& process, const std::string& name, const Table& table) {
  // Two fibers of one process do not build the same index at the same time. Other processes may.
  if (!process.creating.insert(name).second) return std::nullopt;
  IndexModel& model = process.oracle.indexes();
  const IndexForm form = IndexForm::of(name);
  const LogicalTime requested_at = process.oracle.now();
  const size_t create = model.create_called(name, table.id(), form.unique);
  const auto index = process.client.create_index(name, table, form.fields,
                                                 {.unique = form.unique != UniqueBy::kNothing, .on_progress = {}});
  process.creating.erase(name);
  if (index.code() == StatusCode::kAlreadyExists) {
    process.oracle.transactions().index_refused(name, table.id(), form.unique, requested_at);
  }
  model.create_returned(create, index.status().code());
  if (index.code() == StatusCode::kMalformed) {
    model.malformed(name, requested_at);
    process.saw_damaged_index = true;
  } else {
    process.expected("create_index", index.status());
  }
  if (!index.ok()) return std::nullopt;
  model.opened(name, index->id(), index->ready(), requested_at);
  process.indexes.insert_or_assign(name, *index);
  return *index;
}

std::optional<Index> ready_index(ClientProcess& process, const std::string& name, const Table& table) {
  const auto known = process.indexes.find(name);
  if (known != process.indexes.end() && known->second.table().id() == table.id()) return known->second;
  const LogicalTime requested_at = process.oracle.now();
  const auto index = process.client.open_index(name);
  process.expected("open_index", index.status());
  if (index.code() == StatusCode::kNoSuchTable) {
    process.oracle.indexes().absent(name, requested_at);
    return create_index(process, name, table);
  }
  if (!index.ok()) return std::nullopt;
  process.oracle.indexes().opened(name, index->id(), index->ready(), requested_at);
  if (index->table().id() != table.id()) return std::nullopt;
  // The creation was not finished, perhaps because its client died. Another call continues it (R29, index creation).
  if (!index->ready()) return create_index(process, name, table);
  process.indexes.insert_or_assign(name, *index);
  return *index;
}

Status drop_index(ClientProcess& process, const std::string& name) {
  const size_t drop = process.oracle.indexes().drop_called(name);
  Status status = process.client.drop_index(name);
  process.expected("drop_index", status);
  process.oracle.indexes().drop_returned(drop, status.code());
  process.indexes.erase(name);
  return status;
}

void remove_repeated(ClientProcess& process, const Table& table) {
  static_cast<void>(run_tracked(process, [&](TrackedTransaction& tracked) {
    std::set<int64_t> values;
    std::vector<Key> repeated;
    for (const Key key : process.oracle.transactions().keys(table.id())) {
      const auto seen = tracked.get(table, key);
      if (!seen) return false;
      if (seen->present() && !values.insert(seen->value).second) repeated.push_back(key);
    }
    return std::ranges::all_of(repeated, [&](Key key) { return tracked.remove(table, key); });
  }));
}

bool rebuild_index(ClientProcess& process, const Index& index) {
  const Status dropped = drop_index(process, index.name());
  if (!dropped.ok() && dropped != StatusCode::kNoSuchTable) return false;
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (create_index(process, index.name(), index.table())) return true;
    // While the index did not exist, nothing prevented records with equal values.
    if (IndexForm::of(index.name()).unique == UniqueBy::kValue) remove_repeated(process, index.table());
  }
  return false;
}

void repair_indexes(ClientProcess& process) {
  if (process.repairing || !std::exchange(process.saw_damaged_index, false)) return;
  process.repairing = true;
  const LogicalTime requested_at = process.oracle.now();
  const auto indexes = process.client.list_indexes();
  process.expected("list_indexes", indexes.status());
  if (indexes.ok()) {
    for (const Index& index : *indexes) {
      process.oracle.indexes().opened(index.name(), index.id(), index.ready(), requested_at);
      if (!index.damaged()) continue;  // or another fiber has rebuilt it already
      process.indexes.erase(index.name());
      rebuild_index(process, index);
    }
  }
  process.repairing = false;
}

// ---- TrackedTransaction -------------------------------------------------------------------------------------------

namespace {

std::vector<ScannedRow> rows_of(const std::vector<Record>& records, TransactionId reader) {
  std::vector<ScannedRow> rows;
  for (const Record& record : records) {
    // The record has no version yet if the transaction itself wrote it.
    const uint64_t version = record.version().value == 0 ? reader.value : record.version().value;
    rows.push_back({record.key(), {version, static_cast<uint64_t>(record.int64("tag")), record.int64("value")}});
  }
  return rows;
}

/// Reads all records of a range, at once or page by page, forward or backward, as the logical time decides. Returns
/// them in ascending order.
Result<std::vector<Record>> all_of(Transaction& transaction, const Index& index, IndexRange range,
                                   LogicalTime requested_at) {
  range.backward = requested_at % 2 == 1;
  if (requested_at % 3 == 0) range.limit = 3 + requested_at % 14;
  std::vector<Record> all;
  for (;;) {
    LOAM_ASSIGN_OR_RETURN(std::vector<Record> page, transaction.range(index, range));
    const bool last = page.size() < range.limit;
    std::ranges::move(page, std::back_inserter(all));
    if (last) break;
    std::vector<Value> values;
    for (const Index::Part& part : index.parts()) values.push_back(all.back().view().value(part.field));
    // The next page begins behind the last record of this one.
    (range.backward ? range.to : range.from) = IndexBound{std::move(values), false, all.back().key()};
  }
  if (range.backward) std::ranges::reverse(all);
  return all;
}

std::vector<Value> tag_of(const ObservedRecord& seen) { return {Value::int64(static_cast<int64_t>(seen.tag))}; }

}  // namespace

void TrackedTransaction::failed(const Index& index, const Status& status, LogicalTime requested_at) {
  IndexModel& model = process_.oracle.indexes();
  if (status == StatusCode::kMalformed) {
    if (failure_.ok()) failure_ = status;
    process_.oracle.transactions().read_failed(number_, status.code());
    model.malformed(index.name(), begun_);
    process_.saw_damaged_index = true;
    return;
  }
  if (status != StatusCode::kNoSuchTable) return failed(index.table(), status, requested_at);
  // kNoSuchTable means that the index was dropped, perhaps with its table.
  if (failure_.ok()) failure_ = status;
  process_.oracle.transactions().read_failed(number_, status.code());
  model.refused(index.id(), begun_);
  const auto known = process_.indexes.find(index.name());
  if (known != process_.indexes.end() && known->second.id() == index.id()) process_.indexes.erase(known);
}

bool TrackedTransaction::range(const Index& index) {
  const TableId table = index.table().id();
  const LogicalTime requested_at = process_.oracle.now();
  const auto records = all_of(transaction_, index, {}, requested_at);
  if (!records.ok()) {
    failed(index, records.status(), requested_at);
    return false;
  }
  process_.oracle.indexes().read(index.id(), begun_);
  const std::vector<ScannedRow> rows = rows_of(*records, transaction_.id());
  process_.oracle.indexes().ranged(index.name(), rows);
  if (!has_written(table)) process_.oracle.tables().served(table, requested_at);
  process_.oracle.transactions().scanned(number_, table, rows, requested_at, ScanKind::kIndex);
  return true;
}

bool TrackedTransaction::range_from(const Index& index, int64_t least) {
  const LogicalTime requested_at = process_.oracle.now();
  const auto records = all_of(transaction_, index, {.from = IndexBound{{Value::int64(least)}}}, requested_at);
  if (!records.ok()) {
    failed(index, records.status(), requested_at);
    return false;
  }
  process_.oracle.indexes().read(index.id(), begun_);
  process_.oracle.transactions().ranged(number_, index.table().id(), {least, std::numeric_limits<int64_t>::max()},
                                        rows_of(*records, transaction_.id()), requested_at, ScanKind::kIndex);
  return true;
}

bool TrackedTransaction::find(const Index& index, Key key, const ObservedRecord& seen, bool for_update) {
  const LogicalTime requested_at = process_.oracle.now();
  const RecordId place{index.table().id(), key};
  const auto read = [&] {
    if (!for_update) return transaction_.get(index, tag_of(seen));
    const FirstWrite drawing(*this);
    return transaction_.get_for_update(index, tag_of(seen));
  };
  const Result<Record> record = read();
  if (!record.ok() && record.code() != StatusCode::kNotFound) {
    failed(index, record.status(), requested_at);
    return false;
  }
  process_.oracle.indexes().read(index.id(), begun_);
  // The record was lost after this transaction had read it.
  if (!record.ok() && process_.oracle.lost_since(place, begun_)) return false;
  if (!process_.oracle.indexes().found(index.name(), transaction_.id(), place, seen,
                                       record.ok() ? std::optional(record->key()) : std::nullopt)) {
    return false;
  }
  const std::vector<ScannedRow> rows = rows_of({*record}, transaction_.id());
  process_.oracle.transactions().read(number_, place, rows[0].seen, requested_at);
  if (!for_update) return true;
  written_.insert(place.table);
  process_.oracle.transactions().wrote(number_, {place, WriteKind::kTouch, seen.tag, seen.value, false, false});
  return true;
}

bool TrackedTransaction::change(const Index& index, const IndexRange& range, std::span<const ScannedRow> rows,
                                std::optional<int64_t> value) {
  const LogicalTime requested_at = process_.oracle.now();
  const TableId table = index.table().id();
  const auto write = [&] {
    const FirstWrite drawing(*this);
    return value ? transaction_.update(index, range, {{"value", Value::int64(*value)}})
                 : transaction_.remove(index, range);
  };
  const Result<size_t> count = write();
  if (!count.ok()) {
    failed(index, count.status(), requested_at);
    return false;
  }
  if (!process_.oracle.indexes().check_changed_count(index.name(), transaction_.id(), *count, rows.size(), begun_))
    return false;
  for (const ScannedRow& row : rows) {
    written_.insert(table);
    process_.oracle.transactions().wrote(number_, {{table, row.key},
                                                   value ? WriteKind::kUpdate : WriteKind::kRemove,
                                                   value ? row.seen.tag : 0,
                                                   value.value_or(0),
                                                   false,
                                                   value.has_value()});
  }
  return true;
}

bool TrackedTransaction::change_range(const Index& index, std::pair<int64_t, int64_t> values,
                                      std::optional<int64_t> value) {
  const LogicalTime requested_at = process_.oracle.now();
  const IndexRange range{.from = IndexBound{{Value::int64(values.first)}},
                         .to = IndexBound{{Value::int64(values.second)}}};
  const auto records = all_of(transaction_, index, range, requested_at);
  if (!records.ok()) {
    failed(index, records.status(), requested_at);
    return false;
  }
  process_.oracle.indexes().read(index.id(), begun_);
  const std::vector<ScannedRow> rows = rows_of(*records, transaction_.id());
  process_.oracle.transactions().ranged(number_, index.table().id(), values, rows, requested_at, ScanKind::kIndex);
  return change(index, range, rows, value);
}

bool TrackedTransaction::change_found(const Index& index, Key key, const ObservedRecord& seen,
                                      std::optional<int64_t> value) {
  const std::vector<ScannedRow> rows = {{key, seen}};
  return find(index, key, seen) && change(index, IndexRange::equal(tag_of(seen)), rows, value);
}

}  // namespace loam::sim
