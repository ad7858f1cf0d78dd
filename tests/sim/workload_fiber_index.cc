// The activities of a workload fiber on indexes.
#include <array>
#include <utility>

#include "tests/sim/tracked_index.h"
#include "tests/sim/workload_fiber.h"

namespace loam::sim {

using client::Index;
using client::Table;

namespace {

constexpr uint64_t kUniqueTableKeys = 16;
constexpr uint64_t kFirstToggledKey = 10'000;
constexpr uint64_t kToggledKeys = 8;
/// Width of a range of values: of the thousand values, it covers those of a few hot records.
constexpr uint64_t kMaxRangeWidth = 150;

}  // namespace

std::optional<Index> WorkloadFiber::index(std::string_view name, const Table& table) {
  return ready_index(process_, std::string(name), table);
}

/// Compares the results by an index with those of gets and scans in the same snapshot.
void WorkloadFiber::read_by_index() {
  const auto get = [&](uint32_t bit, std::string_view name, const Table& table) {
    return has(bit) ? index(name, table) : std::nullopt;
  };
  const auto by_value = get(IndexSet::kHotByValue, WorkloadTables::kHotByValue, tables_.hot);
  const auto by_tag = get(IndexSet::kHotByTag, WorkloadTables::kHotByTag, tables_.hot);
  const bool read_only = !random_.one_in(3);
  const bool own = !read_only && random_.one_in(2);
  const auto wide = random_.one_in(4) ? get(IndexSet::kWide, WorkloadTables::kWideByValue, tables_.wide) : std::nullopt;
  static_cast<void>(begin_tracked(process_, read_only, [&](TrackedTransaction& tracked) {
    if (random_.one_in(3) && !tracked.scan(tables_.hot)) return false;
    if (own && !change_one(tracked, hot_key(), false)) return false;
    if (by_value && (!tracked.range(*by_value) || !tracked.range_from(*by_value, value()))) return false;
    for (uint64_t left = random_.between(1, 3); by_tag && left != 0; --left) {
      const Key key = hot_key();
      const auto seen = tracked.get(tables_.hot, key);
      if (!seen || (seen->present() && !tracked.find(*by_tag, key, *seen))) return false;
    }
    if (wide) {
      if (random_.one_in(2)) pause(shape_.long_ns);
      if (!tracked.range(*wide)) return false;
    }
    return read_only || own || change_one(tracked, hot_key(), false);
  }));
}

/// Inserts records with values of which each is permitted once: most attempts meet another record's value.
void WorkloadFiber::write_unique() {
  const Table& claims = *tables_.unique_table;
  const auto by_value = index(WorkloadTables::kUniqueByValue, claims);
  if (!by_value) return;
  const auto wanted = [&] { return static_cast<int64_t>(random_.below(WorkloadTables::kUniqueTableValues)); };
  static_cast<void>(begin_tracked(process_, false, [&](TrackedTransaction& tracked) {
    if (random_.one_in(3) && !tracked.range(*by_value)) return false;
    const uint64_t first = random_.below(kUniqueTableKeys);
    for (uint64_t left = random_.between(1, 3); left != 0; --left) {
      const Key key((first + left) % kUniqueTableKeys);
      const auto seen = tracked.get(claims, key);
      if (!seen) return false;
      const bool done = !seen->present()    ? tracked.insert(claims, key, wanted(), random_)
                        : random_.one_in(3) ? tracked.remove(claims, key)
                                            : tracked.update(claims, key, wanted(), random_);
      if (!done) return false;
    }
    return true;
  }));
}

/// Changes a record's value back and forth, so that its index entries are coalesced before their commits are on the
/// disk. No other fiber uses the two values, so no other fiber removes entries that were left behind. write_unique()
/// uses other keys.
void WorkloadFiber::toggle() {
  const Table& claims = *tables_.unique_table;
  const Key key(kFirstToggledKey + uint64_t{process_.number} % 64 * kToggledKeys + random_.below(kToggledKeys));
  const std::array values = {static_cast<int64_t>(process_.next_tag()), static_cast<int64_t>(process_.next_tag())};
  for (uint64_t left = random_.between(6, 12); left != 0 && !stop_(); --left) {
    const Status done = run_tracked(process_, [&](TrackedTransaction& tracked) {
      const auto seen = tracked.get(claims, key);
      if (!seen) return false;
      const int64_t next = values[left % 2];
      return seen->present() ? tracked.update(claims, key, next, random_) : tracked.insert(claims, key, next, random_);
    });
    if (!done.ok()) return;
  }
}

/// Builds an index again while clients change its records all the time (R29, index creation).
void WorkloadFiber::rebuild() {
  const std::string name(WorkloadTables::kHotByValue);
  if (sim::drop_index(process_, name).ok()) static_cast<void>(create_index(process_, name, tables_.hot));
}

/// Updates and removes records that a unique or a non-unique index finds.
void WorkloadFiber::change_by_index() {
  std::array<uint32_t, 3> kinds = {IndexSet::kHotByValue, IndexSet::kHotByTag, IndexSet::kUniqueTable};
  const uint32_t kind = kinds[random_.below(kinds.size())];
  if (!has(kind)) return;
  const bool of_claims = kind == IndexSet::kUniqueTable;
  const auto found = kind == IndexSet::kHotByValue ? index(WorkloadTables::kHotByValue, tables_.hot)
                     : of_claims                   ? index(WorkloadTables::kUniqueByValue, *tables_.unique_table)
                                                   : index(WorkloadTables::kHotByTag, tables_.hot);
  if (!found) return;
  const bool remove = random_.one_in(3);
  static_cast<void>(begin_tracked(process_, false, [&](TrackedTransaction& tracked) {
    if (of_claims) return change_unique(tracked, *found);
    // If the transaction removed a record that it had inserted itself, the oracle could check nothing.
    if (!remove && random_.one_in(3) && !change_one(tracked, hot_key(), false)) return false;
    const auto wanted = remove ? std::nullopt : std::optional(value());
    if (kind == IndexSet::kHotByValue) {
      const int64_t from = value();
      const int64_t to = from + static_cast<int64_t>(random_.below(kMaxRangeWidth));
      if (!tracked.change_range(*found, {from, to}, wanted)) return false;
      return !random_.one_in(3) || tracked.range(*found);
    }
    const Key key = hot_key();
    const auto seen = tracked.get(tables_.hot, key);
    if (!seen) return false;
    if (!seen->present()) return tracked.insert(tables_.hot, key, value(), random_);
    if (random_.one_in(3)) return tracked.find(*found, key, *seen, true);
    return tracked.change_found(*found, key, *seen, wanted);
  }));
}

/// Transfers a unique value to another record, removes its record, or gives the record another value.
bool WorkloadFiber::change_unique(TrackedTransaction& tracked, const Index& index) {
  const auto any = [&] { return static_cast<int64_t>(random_.below(WorkloadTables::kUniqueTableValues)); };
  const int64_t from = any();
  const uint64_t what = random_.below(3);
  if (what == 0) return tracked.change_range(index, {from, from}, any());
  if (!tracked.change_range(index, {from, from}, std::nullopt)) return false;
  if (what == 1) return true;
  const Key key(random_.below(kUniqueTableKeys));
  const auto seen = tracked.get(*tables_.unique_table, key);
  if (!seen) return false;
  return seen->present() ? tracked.update(*tables_.unique_table, key, from, random_)
                         : tracked.insert(*tables_.unique_table, key, from, random_);
}

// ---- indexes that clients create and drop -------------------------------------------------------------------------

/// Each table has names for a non-unique index, and for a unique one that the records may not permit.
std::string WorkloadFiber::dynamic_index_name(const Table& table) {
  const std::string_view unique = table.name().back() % 2 == 0 ? IndexForm::kOneValue : IndexForm::kByTag;
  return table.name() + std::string(random_.one_in(2) ? IndexForm::kByValue : unique);
}

/// Builds and uses an index while others use its table, and may drop either (R29, index creation).
void WorkloadFiber::use_index() {
  const auto table = open_dynamic_table();
  if (!table) return;
  const std::string name = dynamic_index_name(*table);
  const auto found = index(name, *table);
  if (!found) return;
  const bool read_only = random_.one_in(2);
  static_cast<void>(begin_tracked(process_, read_only, [&](TrackedTransaction& tracked) {
    if (random_.one_in(3) && !tracked.scan(*table)) return false;
    const Key key = hot_key();
    const auto seen = tracked.get(*table, key);
    if (!seen) return false;
    if (IndexForm::of(name).unique == UniqueBy::kTag) {
      if (seen->present() && !tracked.find(*found, key, *seen)) return false;
    } else if (!tracked.range(*found) || !tracked.range_from(*found, value())) {
      return false;
    }
    if (read_only) return true;
    return seen->present() ? tracked.update(*table, key, value(), random_)
                           : tracked.insert(*table, key, value(), random_);
  }));
}

/// Drops an index while others use it.
void WorkloadFiber::drop_index() {
  const auto table = open_dynamic_table();
  if (table) static_cast<void>(sim::drop_index(process_, dynamic_index_name(*table)));
}

}  // namespace loam::sim
