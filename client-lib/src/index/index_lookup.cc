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

/// Entries that one walk through leaves asks for.
constexpr size_t kMinBatch = 16;
constexpr size_t kMaxBatch = 1'024;
/// A walk that has met so many dead entries clears them away, so many at most (R27).
constexpr size_t kDeadToSweep = 8;
constexpr size_t kMaxSwept = 128;

/// A place in the order of an index.
struct Place {
  std::string key;
  Key record;

  auto operator<=>(const Place&) const = default;
};

/// The transaction's own writes to the table, as the index sees them.
struct OwnRecords {
  std::set<Key> written;  ///< what the index says about these does not count
  std::map<Place, Key> in_range;
};

/// Walks through a range of the tree, a batch at a time.
class Walk {
 public:
  Walk(const IndexUser& user, const IndexKeys& keys, IndexKeys::Bounds bounds, bool backward)
      : user_(user), keys_(keys), bounds_(std::move(bounds)), backward_(backward), ended_(bounds_.empty) {}

  bool ended() const { return ended_; }
  /// The records of the next entries that the snapshot sees, in the range's order.
  Result<std::vector<Place>> next(bdtree::Tree& tree, size_t batch) {
    auto read =
        backward_ ? tree.range_backward(bounds_.from, bounds_.to, batch) : tree.range(bounds_.from, bounds_.to, batch);
    if (!read.ok()) return read.status();
    ended_ = read->size() < batch;
    std::vector<Place> places;
    for (const bdtree::Entry& entry : *read) {
      LOAM_ASSIGN_OR_RETURN(const std::optional<Key> record, keys_.record_of(entry.key));
      LOAM_ASSIGN_OR_RETURN(bdtree::IndexEntries entries, bdtree::IndexEntries::decode(entry.payload, record));
      const size_t first = places.size();
      for (const Key key : entries.visible(*user_.snapshot)) {
        if (bounds_.contain(entry.key, key)) places.push_back({entry.key, key});
      }
      if (backward_) std::reverse(places.begin() + static_cast<ptrdiff_t>(first), places.end());
      if (entries.collect(user_.seen_by_all) && entries.empty()) dead_.push_back(entry.key);
    }
    if (ended_) return places;
    if (backward_) {
      bounds_.to = read->back().key;
      ended_ = bounds_.to == bounds_.from;
    } else {
      bounds_.from = read->back().key + '\0';
    }
    return places;
  }

  /// Clears dead entries away if it has met many; by a fiber of its own, whose failure harms nobody.
  void sweep(const std::shared_ptr<IndexTree>& tree) {
    if (dead_.size() < kDeadToSweep || user_.engine.closing()) return;
    dead_.resize(std::min(dead_.size(), kMaxSwept));
    Env::probe("client.index.swept");
    const auto work = [tree, keys = keys_, dead = std::move(dead_), seen_by_all = user_.seen_by_all] {
      for (const std::string& key : dead) {
        const auto record = keys.record_of(key);
        if (!record.ok()) return;
        const auto collect = [&](auto payload) -> Result<bdtree::Edit> {
          LOAM_ASSIGN_OR_RETURN(bdtree::IndexEntries entries, bdtree::IndexEntries::decode(payload, *record));
          if (!payload || !entries.collect(seen_by_all)) return bdtree::Edit::keep();
          return entries.empty() ? bdtree::Edit::erase() : bdtree::Edit::put(entries.encode());
        };
        if (!tree->tree->update(key, collect, Reserve::kRemove).ok()) return;
      }
    };
    user_.engine.spawn_own(work, [] {});
  }

 private:
  const IndexUser& user_;
  const IndexKeys& keys_;
  IndexKeys::Bounds bounds_;
  const bool backward_;
  bool ended_;
  std::vector<std::string> dead_;
};

std::vector<Result<Record>> read_records(const IndexUser& user, const Table& table, const std::vector<Key>& keys) {
  std::vector<Result<Record>> records;
  if (keys.empty()) return records;
  auto reads = std::make_shared<PointReads>(user.engine, user.session, table, user.snapshot);
  reads->start(keys);
  reads->wait();
  records.reserve(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) records.push_back(reads->take(i));
  return records;
}

/// The record with the transaction's own write in it.
Result<Record> own_record(const IndexUser& user, const Table& table, const WriteBuffer& own, Key key) {
  const WriteBuffer::Write& write = *own.find(table.id(), key);
  std::vector<Result<Record>> read;
  std::optional<RowView> view;
  if (!WriteBuffer::covers(write, table)) {
    read = read_records(user, table, {key});
    LOAM_RETURN_IF_ERROR(read[0].status());
    view = read[0]->view();
  }
  LOAM_ASSIGN_OR_RETURN(Buffer row, WriteBuffer::own_row(write, table, view ? &*view : nullptr));
  return Record(table, key, Version(), std::move(row));
}

Result<OwnRecords> own_records(const IndexUser& user, const IndexKeys& keys, const IndexKeys::Bounds& bounds,
                               const WriteBuffer& own) {
  OwnRecords records;
  const Table& table = keys.index().table();
  if (!own.writes_to(table.id())) return records;
  LOAM_ASSIGN_OR_RETURN(const std::vector<WrittenRecord> written, written_records(user, keys, own));
  for (const WrittenRecord& record : written) {
    records.written.insert(record.record);
    if (!record.after || !bounds.contain(record.after->bytes, record.record)) continue;
    records.in_range.emplace(Place{record.after->bytes, record.record}, record.record);
  }
  return records;
}

/// Whether the record really has the key that its entry says.
Result<bool> agrees(const IndexKeys& keys, const Record& record, std::string_view key) {
  std::vector<uint16_t> numbers;
  for (const Index::Part& part : keys.index().parts()) numbers.push_back(part.field);
  RowBuilder builder(keys.fields().schema());
  for (size_t i = 0; i < numbers.size(); ++i) LOAM_RETURN_IF_ERROR(builder.set(i, record.view().value(numbers[i])));
  LOAM_ASSIGN_OR_RETURN(const Bytes row, builder.finish());
  LOAM_ASSIGN_OR_RETURN(const IndexKeys::TreeKey has, keys.key_of(RowView(keys.fields().schema(), row), record.key()));
  return has.bytes == key;
}

/// The record at a place of the index, if the snapshot has it there.
Result<std::optional<Record>> confirm(const IndexUser& user, const IndexKeys& keys, const WriteBuffer& own,
                                      const Place& place, Result<Record> read) {
  if (read.code() == StatusCode::kNotFound) {
    Env::probe("client.index.entry_of_nothing");
    return std::optional<Record>();
  }
  if (!read.ok()) return read.status();
  LOAM_ASSIGN_OR_RETURN(const bool agreed, agrees(keys, *read, place.key));
  if (!agreed) {
    Env::probe("client.index.entry_disagrees");
    return std::optional<Record>();
  }
  // An own write that leaves the index's fields as they are.
  if (own.find(keys.index().table().id(), place.record) == nullptr) return std::optional(std::move(read).value());
  LOAM_ASSIGN_OR_RETURN(Record written, own_record(user, keys.index().table(), own, place.record));
  return std::optional(std::move(written));
}

}  // namespace

Result<std::vector<Record>> index_range(const IndexUser& user, const Index& index, const IndexRange& range,
                                        const WriteBuffer& own) {
  Env::pause_point("client.index.looks");
  LOAM_ASSIGN_OR_RETURN(const auto keys, user.trees.keys(index));
  LOAM_ASSIGN_OR_RETURN(const IndexKeys::Bounds bounds, keys->bounds(range));
  LOAM_ASSIGN_OR_RETURN(const auto tree, user.trees.open(user.session, index.id()));
  LOAM_ASSIGN_OR_RETURN(OwnRecords mine, own_records(user, *keys, bounds, own));
  std::vector<Record> found;
  const auto take_own = [&](const Place* until) -> Status {
    while (!mine.in_range.empty() && found.size() < range.limit) {
      const auto next = range.backward ? std::prev(mine.in_range.end()) : mine.in_range.begin();
      if (until != nullptr && (range.backward ? next->first < *until : *until < next->first)) break;
      LOAM_ASSIGN_OR_RETURN(Record record, own_record(user, index.table(), own, next->second));
      found.push_back(std::move(record));
      mine.in_range.erase(next);
    }
    return ok_status();
  };
  Walk walk(user, *keys, bounds, range.backward);
  while (!walk.ended() && found.size() < range.limit) {
    const size_t batch = std::clamp(range.limit - found.size(), kMinBatch, kMaxBatch);
    Result<std::vector<Place>> next = walk.next(*tree->tree, batch);
    if (!next.ok()) return of_index(index.name(), next.status());
    std::vector<Place>& places = *next;
    std::erase_if(places, [&](const Place& place) { return mine.written.contains(place.record); });
    std::vector<Key> records;
    records.reserve(places.size());
    for (const Place& place : places) records.push_back(place.record);
    std::vector<Result<Record>> read = read_records(user, index.table(), records);
    for (size_t i = 0; i < places.size() && found.size() < range.limit; ++i) {
      LOAM_RETURN_IF_ERROR(take_own(&places[i]));
      if (found.size() == range.limit) break;
      LOAM_ASSIGN_OR_RETURN(std::optional<Record> record, confirm(user, *keys, own, places[i], std::move(read[i])));
      if (record) found.push_back(std::move(*record));
    }
  }
  LOAM_RETURN_IF_ERROR(take_own(nullptr));
  walk.sweep(tree);
  return found;
}

std::vector<Result<Record>> index_find(const IndexUser& user, const Index& index,
                                       std::span<const std::vector<Value>> values, const WriteBuffer& own) {
  Env::pause_point("client.index.looks");
  const auto all = [&](const Status& status) { return std::vector<Result<Record>>(values.size(), status); };
  const auto keys = user.trees.keys(index);
  if (!keys.ok()) return all(keys.status());
  std::vector<std::string> wanted;
  for (const std::vector<Value>& value : values) {
    auto key = (*keys)->exact(value);
    if (!key.ok()) return all(key.status());
    if (!*key) {
      return all({StatusCode::kInvalidArgument,
                  "index " + index.name() + ": only all values of a unique index, none of them NULL, name one record"});
    }
    wanted.push_back(std::move(**key));
  }
  const auto mine = own_records(user, **keys, {}, own);
  if (!mine.ok()) return all(mine.status());
  const auto tree = user.trees.open(user.session, index.id());
  if (!tree.ok()) return all(tree.status());
  const auto payloads = (*tree)->tree->find(std::span<const std::string>(wanted));
  if (!payloads.ok()) return all(of_index(index.name(), payloads.status()));
  std::vector<Place> places;
  std::vector<size_t> asked;  // which of `values` each place is for
  const Status missing(StatusCode::kNotFound, "index " + index.name() + ": no record has the values");
  std::vector<Result<Record>> results = all(missing);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto own_place = mine->in_range.lower_bound({wanted[i], Key(0)});
    if (own_place != mine->in_range.end() && own_place->first.key == wanted[i]) {
      results[i] = own_record(user, index.table(), own, own_place->second);
      continue;
    }
    const auto entries = bdtree::IndexEntries::decode((*payloads)[i], std::nullopt);
    if (!entries.ok()) {
      results[i] = entries.status();
      continue;
    }
    for (const Key record : entries->visible(*user.snapshot)) {
      if (mine->written.contains(record)) continue;
      places.push_back({wanted[i], record});
      asked.push_back(i);
    }
  }
  std::vector<Key> records;
  records.reserve(places.size());
  for (const Place& place : places) records.push_back(place.record);
  std::vector<Result<Record>> read = read_records(user, index.table(), records);
  for (size_t i = 0; i < places.size(); ++i) {
    auto record = confirm(user, **keys, own, places[i], std::move(read[i]));
    if (!record.ok()) {
      results[asked[i]] = record.status();
    } else if (*record) {
      results[asked[i]] = std::move(**record);
    }
  }
  return results;
}

}  // namespace loam::client
