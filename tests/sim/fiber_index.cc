// What a fiber of the workload does by indexes.
#include <array>
#include <utility>

#include "tests/sim/fiber.h"
#include "tests/sim/index_actor.h"

namespace loam::sim {

using client::Index;
using client::Table;

namespace {

constexpr uint64_t kClaimants = 16;
constexpr uint64_t kFirstToggledKey = 10'000;
constexpr uint64_t kToggledKeys = 8;
/// Of the thousand values: a few records of the hot table.
constexpr uint64_t kWidestRange = 150;

}  // namespace

std::optional<Index> WorkFiber::index(std::string_view name, const Table& table) {
  return ready_index(process_, std::string(name), table);
}

/// What an index says, beside what gets and scans say in the same snapshot.
void WorkFiber::look_by_index() {
  const auto get = [&](uint32_t bit, std::string_view name, const Table& table) {
    return has(bit) ? index(name, table) : std::nullopt;
  };
  const auto by_value = get(IndexSet::kHotByValue, WorkloadTables::kHotByValue, tables_.hot);
  const auto by_tag = get(IndexSet::kHotByTag, WorkloadTables::kHotByTag, tables_.hot);
  const bool read_only = !random_.one_in(3);
  const bool own = !read_only && random_.one_in(2);
  const auto wide = random_.one_in(4) ? get(IndexSet::kWide, WorkloadTables::kWideByValue, tables_.wide) : std::nullopt;
  static_cast<void>(begin_tracked(process_, read_only, [&](Tracked& tracked) {
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

/// Records that want values of which each is there once: most attempts meet another's.
void WorkFiber::claim() {
  const Table& claims = *tables_.claims;
  const auto by_value = index(WorkloadTables::kClaimsByValue, claims);
  if (!by_value) return;
  const auto wanted = [&] { return static_cast<int64_t>(random_.below(WorkloadTables::kClaimedValues)); };
  static_cast<void>(begin_tracked(process_, false, [&](Tracked& tracked) {
    if (random_.one_in(3) && !tracked.range(*by_value)) return false;
    const uint64_t first = random_.below(kClaimants);
    for (uint64_t left = random_.between(1, 3); left != 0; --left) {
      const Key key((first + left) % kClaimants);
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

/// A record's value goes back and forth, so that its entries are merged before their commits are on the disk. No other
/// fiber uses the two values, so none removes entries that were left behind. claim() uses other keys.
void WorkFiber::toggle() {
  const Table& claims = *tables_.claims;
  const Key key(kFirstToggledKey + uint64_t{process_.number} % 64 * kToggledKeys + random_.below(kToggledKeys));
  const std::array values = {static_cast<int64_t>(process_.next_tag()), static_cast<int64_t>(process_.next_tag())};
  for (uint64_t left = random_.between(6, 12); left != 0 && !stop_(); --left) {
    const Status done = run_tracked(process_, [&](Tracked& tracked) {
      const auto seen = tracked.get(claims, key);
      if (!seen) return false;
      const int64_t next = values[left % 2];
      return seen->present() ? tracked.update(claims, key, next, random_) : tracked.insert(claims, key, next, random_);
    });
    if (!done.ok()) return;
  }
}

/// Builds the index of records that change all the time (R29).
void WorkFiber::rebuild() {
  const std::string name(WorkloadTables::kHotByValue);
  if (sim::drop_index(process_, name).ok()) static_cast<void>(create_index(process_, name, tables_.hot));
}

/// Updates and removals of what an index finds, by one that is unique and by one that is not.
void WorkFiber::change_by_index() {
  std::array<uint32_t, 3> kinds = {IndexSet::kHotByValue, IndexSet::kHotByTag, IndexSet::kClaims};
  const uint32_t kind = kinds[random_.below(kinds.size())];
  if (!has(kind)) return;
  const bool of_claims = kind == IndexSet::kClaims;
  const auto found = kind == IndexSet::kHotByValue ? index(WorkloadTables::kHotByValue, tables_.hot)
                     : of_claims                   ? index(WorkloadTables::kClaimsByValue, *tables_.claims)
                                                   : index(WorkloadTables::kHotByTag, tables_.hot);
  if (!found) return;
  const bool remove = random_.one_in(3);
  static_cast<void>(begin_tracked(process_, false, [&](Tracked& tracked) {
    if (of_claims) return change_claims(tracked, *found);
    // A removal of what the transaction itself has inserted would leave nothing to judge.
    if (!remove && random_.one_in(3) && !change_one(tracked, hot_key(), false)) return false;
    const auto wanted = remove ? std::nullopt : std::optional(value());
    if (kind == IndexSet::kHotByValue) {
      const int64_t from = value();
      const int64_t to = from + static_cast<int64_t>(random_.below(kWidestRange));
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

/// A value passes to another record, or is given up, or its record takes another one.
bool WorkFiber::change_claims(Tracked& tracked, const Index& index) {
  const auto any = [&] { return static_cast<int64_t>(random_.below(WorkloadTables::kClaimedValues)); };
  const int64_t from = any();
  const uint64_t what = random_.below(3);
  if (what == 0) return tracked.change_range(index, {from, from}, any());
  if (!tracked.change_range(index, {from, from}, std::nullopt)) return false;
  if (what == 1) return true;
  const Key key(random_.below(kClaimants));
  const auto seen = tracked.get(*tables_.claims, key);
  if (!seen) return false;
  return seen->present() ? tracked.update(*tables_.claims, key, from, random_)
                         : tracked.insert(*tables_.claims, key, from, random_);
}

// ---- indexes that come and go --------------------------------------------------------------------------------------

/// Two a table: one that is not unique, and one that is, or may not be possible.
std::string WorkFiber::made_index(const Table& table) {
  const std::string_view unique = table.name().back() % 2 == 0 ? IndexForm::kOneValue : IndexForm::kByTag;
  return table.name() + std::string(random_.one_in(2) ? IndexForm::kByValue : unique);
}

/// R29: while an index is built others use its table, and may drop either.
void WorkFiber::use_index() {
  const auto table = made_table();
  if (!table) return;
  const std::string name = made_index(*table);
  const auto found = index(name, *table);
  if (!found) return;
  const bool read_only = random_.one_in(2);
  static_cast<void>(begin_tracked(process_, read_only, [&](Tracked& tracked) {
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

/// While others use it.
void WorkFiber::drop_index() {
  const auto table = made_table();
  if (table) static_cast<void>(sim::drop_index(process_, made_index(*table)));
}

}  // namespace loam::sim
