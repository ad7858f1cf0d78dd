// Non-transactional tables under the explorer (R21): every pair and triple of {put, remove, get, scan, growth of the
// index, compaction} on one record. Shown: the answers are those of some sequential order that respects real time; a
// scan sees a record that does not change meanwhile exactly once, and nothing of writes that fail; in the end
// everything is sound.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "storage-node/testing/explore_fixture.h"

namespace loam::storage {
namespace {

using testing::explore;
using testing::Explorer;
using testing::ExploreReport;

enum class Op : uint8_t { kPut, kInsert, kRemove, kGet, kScan, kGrow, kCompact };
constexpr ExploreOps<Op, 7> kOps = {{Op::kPut, Op::kInsert, Op::kRemove, Op::kGet, Op::kScan, Op::kGrow, Op::kCompact},
                                    {"put", "insert", "remove", "get", "scan", "grow", "compact"}};

constexpr uint64_t kKey = 7;
constexpr uint64_t kOthers = 3;  // keys 100, 101, 102 lie beside it and do not change during the schedule

/// One operation on the record as its caller saw it. Version 0: absent.
struct Event {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool changes = false;
  bool succeeded = false;
  uint64_t expected = 0;
  uint64_t desired = 0;
  uint64_t seen = 0;  // what a get, or a failed change, reported
};

/// True if some order of the events, which respects that of those that did not overlap, explains all answers.
bool explained(const std::vector<Event>& events, uint64_t state, uint32_t done = 0) {
  if (done == (uint32_t{1} << events.size()) - 1) return true;
  for (size_t i = 0; i < events.size(); ++i) {
    if ((done >> i & 1) != 0) continue;
    const Event& e = events[i];
    bool first = true;
    for (size_t j = 0; j < events.size(); ++j) first &= j == i || (done >> j & 1) != 0 || events[j].end >= e.begin;
    if (!first) continue;
    if (e.changes && (state == e.expected) != e.succeeded) continue;
    if (!e.succeeded && e.seen != state) continue;
    if (explained(events, e.succeeded ? e.desired : state, done | uint32_t{1} << i)) return true;
  }
  return false;
}

class Scenario {
 public:
  explicit Scenario(Explorer& ex) : ex_(ex), world_(ex, TableKind::kNonTransactional) {}

  void run(const std::vector<Op>& ops) {
    set_up();
    if (kOps.among(ops, Op::kGrow)) {
      world_.fill_index([this](uint64_t i) { put(0, 200 + i, 0); });
    }
    kOps.run(ex_, ops, [this](Op op, size_t thread) { perform(op, thread); });
    if (!ex_.failed()) look_afterwards();
  }

 private:
  Table& table() { return world_.table(); }

  uint64_t get(size_t thread, uint64_t key) {
    const EpochGuard guard(world_.epochs(thread));
    Event event{.begin = ++clock_};
    const ReadOutcome outcome = table().plain_get(world_.context(thread), Key(key));
    if (outcome.code == StatusCode::kOk) {
      event.seen = outcome.version.value;
      ex_.check(ExploreRow::of(outcome.row).key == key, "a get returned another record's row");
    }
    finish(key, event);
    return event.seen;
  }
  void put(size_t thread, uint64_t key, uint64_t expected) {
    const EpochGuard guard(world_.epochs(thread));
    const ExploreRow row{.key = key, .stamp = ++stamp_};
    Event event{.begin = ++clock_, .changes = true, .expected = expected};
    const WriteOutcome outcome = table().plain_put(world_.context(thread), Key(key), Version(expected), row.bytes());
    if (outcome.code == StatusCode::kNoSpace) return;  // the fixture held all memory for a moment
    event.succeeded = outcome.code == StatusCode::kOk;
    (event.succeeded ? event.desired : event.seen) = outcome.version.value;
    finish(key, event);
  }
  void remove(size_t thread, uint64_t key, uint64_t expected) {
    if (expected == 0) return;
    const EpochGuard guard(world_.epochs(thread));
    Event event{.begin = ++clock_, .changes = true, .expected = expected};
    const WriteOutcome outcome = table().plain_remove(world_.context(thread), Key(key), Version(expected));
    event.succeeded = outcome.code == StatusCode::kOk;
    if (!event.succeeded) event.seen = outcome.version.value;
    finish(key, event);
  }
  void finish(uint64_t key, Event event) {
    event.end = ++clock_;
    events_[key].push_back(event);
  }

  void scan(size_t thread) {
    const uint64_t begin = ++clock_;
    PinnedPages pages;
    {
      const EpochGuard guard(world_.epochs(thread));
      pages = table().pages().pin();
    }
    std::map<uint64_t, std::vector<uint64_t>> found;
    for (size_t i = 0; i < pages.size(); ++i) {
      pages[i]->for_each([&](const Entry& entry) {
        if (lifetime_of(entry).newest()) found[entry.key].push_back(entry.valid_from);
      });
      pages.unpin(i);
    }
    scans_.push_back({begin, ++clock_, std::move(found)});
  }
  struct Scan {
    uint64_t begin = 0;
    uint64_t end = 0;
    std::map<uint64_t, std::vector<uint64_t>> found;
  };
  /// Of keys that no successful change touched while the scan ran.
  void check_scan(const Scan& scan, uint64_t key) {
    uint64_t version = 0;  // the one that no change has consumed
    for (const Event& e : events_[key]) {
      if (!e.changes || !e.succeeded || e.begin > scan.end) continue;
      if (e.end >= scan.begin) return;
      const bool consumed = std::ranges::any_of(events_[key], [&](const Event& other) {
        return other.changes && other.succeeded && other.end < scan.begin && other.expected == e.desired;
      });
      if (e.desired != 0 && !consumed) version = e.desired;
    }
    const auto found = scan.found.find(key);
    const std::vector<uint64_t> seen = found == scan.found.end() ? std::vector<uint64_t>() : found->second;
    ex_.check(seen == (version == 0 ? std::vector<uint64_t>() : std::vector<uint64_t>{version}),
              "a scan differs from a record that did not change meanwhile");
  }

  void perform(Op op, size_t thread) {
    switch (op) {
      case Op::kPut:
        for (int i = 0; i < 2; ++i) put(thread, kKey, get(thread, kKey));
        return;
      case Op::kInsert:
        return put(thread, kKey, 0);
      case Op::kRemove:
        return remove(thread, kKey, get(thread, kKey));
      case Op::kGet:
        get(thread, kKey);
        get(thread, kKey);
        return;
      case Op::kScan:
        scan(thread);
        return scan(thread);
      case Op::kGrow:
        return world_.grow(thread);
      case Op::kCompact:
        return world_.compact(40);
    }
  }

  void set_up() {
    testing::Random& random = ex_.random();
    const uint64_t history = random.below(6);
    for (uint64_t i = 0; i < 14; ++i) {
      put(0, 100 + i % kOthers, get(0, 100 + i % kOthers));
      if (i % 2 != 0 || i / 2 >= history) continue;
      const uint64_t present = get(0, kKey);
      if (present != 0 && random.one_in(3)) {
        remove(0, kKey, present);
      } else {
        put(0, kKey, present);
      }
    }
    world_.compact(static_cast<int>(random.below(40)));
    // One event stands for the past: the search for an order is exponential.
    const uint64_t present = get(0, kKey);
    const uint64_t now = ++clock_;
    events_[kKey] = {{.begin = now, .end = now, .changes = true, .succeeded = true, .expected = 0, .desired = present}};
  }
  void look_afterwards() {
    get(0, kKey);
    scan(0);
    world_.settle();
    get(0, kKey);
    scan(0);
    ex_.check(explained(events_[kKey], 0), "no order of the operations explains their answers");
    for (const Scan& scan : scans_) {
      for (const auto& [key, events] : events_) check_scan(scan, key);
    }
    world_.check_invariants();
  }

  Explorer& ex_;
  ExploreWorld world_;
  uint64_t stamp_ = 0;
  uint64_t clock_ = 0;
  std::map<uint64_t, std::vector<Event>> events_;
  std::vector<Scan> scans_;
};

void explore_one(const std::vector<Op>& ops, uint64_t schedules) {
  const ExploreReport report =
      explore({.schedules = explore_schedules(schedules)}, [&](Explorer& ex) { Scenario(ex).run(ops); });
  ASSERT_TRUE(report.ok()) << kOps.name(ops) << ": " << report.message;
}

TEST(PlainExploreTest, TheRarestMeetingsWithTheCompactor) {
  explore_one({Op::kPut, Op::kCompact}, 3'000);
  explore_one({Op::kRemove, Op::kCompact}, 3'000);
}

TEST(PlainExploreTest, EveryPair) {
  for (const auto& ops : kOps.combinations(2)) explore_one(ops, 1'000);
}

TEST(PlainExploreTest, EveryTripleWithTheCompactorBesides) {
  const ExploreTotals before = explore_totals;
  for (const auto& ops : kOps.combinations_besides_the_compactor(3)) explore_one(ops, 60);
  // The rare paths were walked.
  EXPECT_GT(explore_totals.moved, before.moved);
  EXPECT_GT(explore_totals.freed, before.freed);
  EXPECT_GT(explore_totals.discarded_entries, before.discarded_entries);
  EXPECT_GT(explore_totals.helped, before.helped);
  EXPECT_GT(explore_totals.migrations, before.migrations);
}

}  // namespace
}  // namespace loam::storage
