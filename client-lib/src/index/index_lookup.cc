// Reads by an index in three steps: entries of the tree that the snapshot sees, their records, and the recheck of each
// record. The transaction's own writes are merged in.
#include "client-lib/src/index/index_lookup.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <loam/bdtree/index_entries.h>

#include "client-lib/src/driver/point_reads.h"
#include "common/base/env.h"

namespace loam::client {
namespace {

/// Least and most entries that a scan requests from the tree at once.
constexpr size_t kMinBatch = 16;
constexpr size_t kMaxBatch = 1'024;
/// A scan that has met at least kMinDeadEntries garbage entries removes them, at most kMaxDeadEntries (R27, index
/// entries).
constexpr size_t kMinDeadEntries = 8;
constexpr size_t kMaxDeadEntries = 128;

/// A position in the order of an index.
struct IndexPosition {
  std::string key;
  Key record;

  auto operator<=>(const IndexPosition&) const = default;
};

/// The transaction's own writes to the table, as the index sees them.
struct OwnRecords {
  std::set<Key> written;  ///< the scan ignores the index's entries of these records
  std::map<IndexPosition, Key> in_range;
};

/// Scans a range of the tree in batches.
class IndexScan {
 public:
  IndexScan(const IndexContext& context, const IndexKeys& keys, IndexKeys::Bounds bounds, bool backward)
      : context_(context), keys_(keys), bounds_(std::move(bounds)), backward_(backward), ended_(bounds_.empty) {}

  bool ended() const { return ended_; }
  /// Returns the positions of the next entries that the snapshot sees, in the order of the range.
  Result<std::vector<IndexPosition>> next(bdtree::Tree& tree, size_t batch) {
    auto read =
        backward_ ? tree.range_backward(bounds_.from, bounds_.to, batch) : tree.range(bounds_.from, bounds_.to, batch);
    if (!read.ok()) return read.status();
    ended_ = read->size() < batch;
    std::vector<IndexPosition> places;
    for (const bdtree::Entry& entry : *read) {
      LOAM_ASSIGN_OR_RETURN(const std::optional<Key> record, keys_.record_of(entry.key));
      LOAM_ASSIGN_OR_RETURN(bdtree::IndexEntries entries, bdtree::IndexEntries::decode(entry.payload, record));
      const size_t first = places.size();
      for (const Key key : entries.visible(*context_.snapshot)) {
        if (bounds_.contain(entry.key, key)) places.push_back({entry.key, key});
      }
      if (backward_) std::reverse(places.begin() + static_cast<ptrdiff_t>(first), places.end());
      // The collected entries are not used: this only shows whether the key can be removed (remove_dead_entries()).
      if (entries.collect(context_.seen_by_all) && entries.empty()) dead_.push_back(entry.key);
    }
    if (ended_) return places;
    if (backward_) {
      bounds_.to = read->back().key;
      ended_ = bounds_.to == bounds_.from;
    } else {
      // The least key above the last one that was read.
      bounds_.from = read->back().key + '\0';
    }
    return places;
  }

  /// Removes the garbage entries that the scan has met, if there are many. A background fiber does it; it may fail,
  /// because later scans meet the entries again.
  void remove_dead_entries(const std::shared_ptr<IndexTree>& tree) {
    if (dead_.size() < kMinDeadEntries || context_.engine.closing()) return;
    dead_.resize(std::min(dead_.size(), kMaxDeadEntries));
    Env::probe("client.index.swept");
    const auto work = [tree, keys = keys_, dead = std::move(dead_), seen_by_all = context_.seen_by_all] {
      for (const std::string& key : dead) {
        const auto record = keys.record_of(key);
        if (!record.ok()) return;
        const auto collect = [&](auto payload) -> Result<bdtree::Edit> {
          LOAM_ASSIGN_OR_RETURN(bdtree::IndexEntries entries, bdtree::IndexEntries::decode(payload, *record));
          if (!payload || !entries.collect(seen_by_all)) return bdtree::Edit::keep();
          // The entries are read and collected again, because a transaction may have used the key meanwhile.
          return entries.empty() ? bdtree::Edit::erase() : bdtree::Edit::put(entries.encode());
        };
        if (!tree->tree->update(key, collect, Reserve::kRemove).ok()) return;
      }
    };
    context_.engine.spawn_background(work, [] {});
  }

 private:
  const IndexContext& context_;
  const IndexKeys& keys_;
  IndexKeys::Bounds bounds_;
  const bool backward_;
  bool ended_;
  std::vector<std::string> dead_;
};

std::vector<Result<Record>> read_records(const IndexContext& context, const Table& table,
                                         const std::vector<Key>& keys) {
  std::vector<Result<Record>> records;
  if (keys.empty()) return records;
  auto reads = std::make_shared<PointReads>(context.engine, context.session, table, context.snapshot);
  reads->start(keys);
  reads->wait();
  records.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) records.push_back(reads->take_result(i));
  return records;
}

/// Reads a record and applies the transaction's own write to it.
Result<Record> own_record(const IndexContext& context, const Table& table, const WriteBuffer& own, Key key) {
  const WriteBuffer::Write& write = *own.find(table.id(), key);
  std::vector<Result<Record>> read;
  std::optional<RowView> view;
  if (!WriteBuffer::covers(write, table)) {
    read = read_records(context, table, {key});
    LOAM_RETURN_IF_ERROR(read[0].status());
    view = read[0]->view();
  }
  LOAM_ASSIGN_OR_RETURN(Buffer row, WriteBuffer::own_row(write, table, view ? &*view : nullptr));
  return Record(table, key, Version(), std::move(row));
}

Result<OwnRecords> own_records(const IndexContext& context, const IndexKeys& keys, const IndexKeys::Bounds& bounds,
                               const WriteBuffer& own) {
  OwnRecords records;
  const Table& table = keys.index().table();
  if (!own.writes_to(table.id())) return records;
  LOAM_ASSIGN_OR_RETURN(const std::vector<WrittenRecord> written, written_records(context, keys, own));
  for (const WrittenRecord& record : written) {
    records.written.insert(record.record);
    if (!record.after || !bounds.contain(record.after->bytes, record.record)) continue;
    records.in_range.emplace(IndexPosition{record.after->bytes, record.record}, record.record);
  }
  return records;
}

/// True if the record's values have this key, as its entry says.
Result<bool> has_index_key(const IndexKeys& keys, const Record& record, std::string_view key) {
  std::vector<uint16_t> numbers;
  for (const Index::Part& part : keys.index().parts()) numbers.push_back(part.field);
  RowBuilder builder(keys.fields().schema());
  for (size_t i = 0; i < numbers.size(); ++i) LOAM_RETURN_IF_ERROR(builder.set(i, record.view().value(numbers[i])));
  LOAM_ASSIGN_OR_RETURN(const Bytes row, builder.finish());
  LOAM_ASSIGN_OR_RETURN(const IndexKeys::TreeKey has, keys.key_of(RowView(keys.fields().schema(), row), record.key()));
  return has.bytes == key;
}

/// Checks the record that was read for a position of the index. Nothing: the record does not have the position's
/// values in the snapshot.
Result<std::optional<Record>> recheck(const IndexContext& context, const IndexKeys& keys, const WriteBuffer& own,
                                      const IndexPosition& place, Result<Record> read) {
  if (read.code() == StatusCode::kNotFound) {
    Env::probe("client.index.entry_of_nothing");
    return std::optional<Record>();
  }
  if (!read.ok()) return read.status();
  LOAM_ASSIGN_OR_RETURN(const bool agreed, has_index_key(keys, *read, place.key));
  if (!agreed) {
    Env::probe("client.index.entry_disagrees");
    return std::optional<Record>();
  }
  // A record that remains here with an own write: the write does not change the index's fields.
  if (own.find(keys.index().table().id(), place.record) == nullptr) return std::optional(std::move(read).value());
  LOAM_ASSIGN_OR_RETURN(Record written, own_record(context, keys.index().table(), own, place.record));
  return std::optional(std::move(written));
}

}  // namespace

Result<std::vector<Record>> index_range(const IndexContext& context, const Index& index, const IndexRange& range,
                                        const WriteBuffer& own) {
  Env::pause_point("client.index.looks");
  LOAM_ASSIGN_OR_RETURN(const auto keys, context.trees.keys(index));
  LOAM_ASSIGN_OR_RETURN(const IndexKeys::Bounds bounds, keys->bounds(range));
  LOAM_ASSIGN_OR_RETURN(const auto tree, context.trees.open(context.session, index.id()));
  LOAM_ASSIGN_OR_RETURN(OwnRecords mine, own_records(context, *keys, bounds, own));
  std::vector<Record> found;
  const auto take_own = [&](const IndexPosition* until) -> Status {
    while (!mine.in_range.empty() && found.size() < range.limit) {
      const auto next = range.backward ? std::prev(mine.in_range.end()) : mine.in_range.begin();
      if (until != nullptr && (range.backward ? next->first < *until : *until < next->first)) break;
      LOAM_ASSIGN_OR_RETURN(Record record, own_record(context, index.table(), own, next->second));
      found.push_back(std::move(record));
      mine.in_range.erase(next);
    }
    return ok_status();
  };
  // A merge of two sorted sequences: the index's entries, without records that the transaction has written, and the
  // transaction's own records.
  IndexScan scan(context, *keys, bounds, range.backward);
  while (!scan.ended() && found.size() < range.limit) {
    const size_t batch = std::clamp(range.limit - found.size(), kMinBatch, kMaxBatch);
    Result<std::vector<IndexPosition>> next = scan.next(*tree->tree, batch);
    if (!next.ok()) return index_error(index.name(), next.status());
    std::vector<IndexPosition>& places = *next;
    // Records that this transaction has written are skipped here. Their entries show old values; own_records() has the
    // new ones.
    std::erase_if(places, [&](const IndexPosition& place) { return mine.written.contains(place.record); });
    std::vector<Key> records;
    records.reserve(places.size());
    for (const IndexPosition& place : places) records.push_back(place.record);
    std::vector<Result<Record>> read = read_records(context, index.table(), records);
    for (size_t i = 0; i < places.size() && found.size() < range.limit; ++i) {
      // Own records that come before this entry.
      LOAM_RETURN_IF_ERROR(take_own(&places[i]));
      if (found.size() == range.limit) break;
      LOAM_ASSIGN_OR_RETURN(std::optional<Record> record, recheck(context, *keys, own, places[i], std::move(read[i])));
      if (record) found.push_back(std::move(*record));
    }
  }
  // Own records behind the last entry.
  LOAM_RETURN_IF_ERROR(take_own(nullptr));
  scan.remove_dead_entries(tree);
  return found;
}

std::vector<Result<Record>> index_find(const IndexContext& context, const Index& index,
                                       std::span<const std::vector<Value>> values, const WriteBuffer& own) {
  Env::pause_point("client.index.looks");
  const auto all = [&](const Status& status) { return std::vector<Result<Record>>(values.size(), status); };
  const auto keys = context.trees.keys(index);
  if (!keys.ok()) return all(keys.status());
  // Phase 1: the key of each value. One wrong value fails the whole call, because it is an error of the caller.
  std::vector<std::string> wanted;
  for (const std::vector<Value>& value : values) {
    auto key = (*keys)->unique_key(value);
    if (!key.ok()) return all(key.status());
    if (!*key) {
      return all(
          {StatusCode::kInvalidArgument,
           "index " + index.name() +
               ": a lookup of one record needs a unique index and a value that is not NULL for each of its fields"});
    }
    wanted.push_back(std::move(**key));
  }
  // Phase 2: the records that this transaction has written, and the entries under all keys in one call of the tree.
  const auto mine = own_records(context, **keys, {}, own);
  if (!mine.ok()) return all(mine.status());
  const auto tree = context.trees.open(context.session, index.id());
  if (!tree.ok()) return all(tree.status());
  const auto payloads = (*tree)->tree->find(std::span<const std::string>(wanted));
  if (!payloads.ok()) return all(index_error(index.name(), payloads.status()));
  // Phase 3: if the transaction has written a record with one of the values, this record is the result for the value.
  // The records for all other values are found by the entries that the snapshot sees.
  std::vector<IndexPosition> places;
  std::vector<size_t> asked;  // for each place, its index in `values`
  const Status missing(StatusCode::kNotFound, "index " + index.name() + ": no record has the values");
  std::vector<Result<Record>> results = all(missing);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto own_place = mine->in_range.lower_bound({wanted[i], Key(0)});
    if (own_place != mine->in_range.end() && own_place->first.key == wanted[i]) {
      results[i] = own_record(context, index.table(), own, own_place->second);
      continue;
    }
    const auto entries = bdtree::IndexEntries::decode((*payloads)[i], std::nullopt);
    if (!entries.ok()) {
      results[i] = entries.status();
      continue;
    }
    for (const Key record : entries->visible(*context.snapshot)) {
      if (mine->written.contains(record)) continue;
      places.push_back({wanted[i], record});
      asked.push_back(i);
    }
  }
  // Phase 4: read the records together, and recheck each (R27, index entries). Several entries may be visible under
  // one key, because entries are merged; at most one record passes.
  std::vector<Key> records;
  records.reserve(places.size());
  for (const IndexPosition& place : places) records.push_back(place.record);
  std::vector<Result<Record>> read = read_records(context, index.table(), records);
  for (size_t i = 0; i < places.size(); ++i) {
    auto record = recheck(context, **keys, own, places[i], std::move(read[i]));
    if (!record.ok()) {
      results[asked[i]] = record.status();
    } else if (*record) {
      results[asked[i]] = std::move(**record);
    }
  }
  return results;
}

}  // namespace loam::client
