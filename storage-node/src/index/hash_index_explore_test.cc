// The hash index under the explorer: every pair and triple of operations on one key, on a tiny array before, during and
// after its migration. Some sequential order must explain each history (linearizability). No other key may be lost, and
// the invariants must hold afterwards.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/explorer.h"
#include "storage-node/src/index/hash_index.h"
#include "storage-node/testing/index_fixture.h"

namespace loam::storage {
namespace {

using testing::explore;
using testing::ExploreOptions;
using testing::Explorer;
using testing::ExploreReport;
using testing::Policy;

enum class Op : uint8_t { kInsert, kFind, kReplace, kErase, kEraseAndInsert, kStep, kInsertOther };
constexpr std::array kOps = {Op::kInsert,         Op::kFind, Op::kReplace,    Op::kErase,
                             Op::kEraseAndInsert, Op::kStep, Op::kInsertOther};
constexpr std::array kNames = {"insert", "find", "replace", "erase", "erase and insert", "step", "insert another"};

/// One call on the key under test, as its caller saw it. A change is {expected → desired}: an insert expects null, and
/// an erase desires null. A find changes nothing.
struct Event {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool changes = false;
  bool succeeded = false;
  const Entry* expected = nullptr;
  const Entry* desired = nullptr;
  const Entry* seen = nullptr;  // the head that a find or a failed change reported
};

/// True if some order of the events explains all results and ends with `last`. The order must keep events that did not
/// overlap in their real order. `done` is the set of events that are placed already, as bits.
bool explained(const std::vector<Event>& events, const Entry* state, const Entry* last, uint32_t done = 0) {
  if (done == (uint32_t{1} << events.size()) - 1) return state == last;
  for (size_t i = 0; i < events.size(); ++i) {
    if ((done >> i & 1) != 0) continue;
    const Event& e = events[i];
    const bool first = std::none_of(events.begin(), events.end(), [&](const Event& other) {
      return (done >> (&other - events.data()) & 1) == 0 && &other != &e && other.end < e.begin;
    });
    if (!first) continue;
    const bool would_succeed = e.changes && state == e.expected;
    if (e.changes && would_succeed != e.succeeded) continue;
    if (!e.succeeded && e.seen != state) continue;
    if (explained(events, e.succeeded ? e.desired : state, last, done | uint32_t{1} << i)) return true;
  }
  return false;
}

/// A tiny index in a random phase of its life, and operations on it that record events.
class Scenario {
 public:
  Scenario(Explorer& ex, PagePool& pool) : ex_(ex), setup_(domain_, "set-up") {
    testing::Random& random = ex.random();
    index_ = make_index(pool, {.initial_capacity = 16, .moves_per_write = random.between(1, 4)});
    key_ = Key(random.below(64));
    staged_ = random.one_in(2);
    // The number of keys is within two of the begin of a migration. Some keys are erased again, perhaps the one under
    // test.
    const uint64_t fill = random.between(9, 14);
    const uint64_t place = random.below(fill);
    const bool present = random.one_in(2);
    for (uint64_t i = 0; i < fill; ++i) {
      const Key key = i == place ? key_ : Key(1000 + random.below(1000));
      if (key == key_ && !present && random.one_in(2)) continue;
      Entry* entry = entries_.make(key);
      const EpochGuard guard(setup_);
      Cursor cursor;
      if (index_->insert(setup_, key, entry, cursor) != InsertOutcome::kInserted) continue;
      if ((key == key_ && !present) || (key != key_ && random.one_in(8))) {
        index_->erase(setup_, cursor);
      } else if (key != key_) {
        others_.push_back(entry);
      }
    }
    for (uint64_t steps = random.below(14); steps > 0; --steps) {
      const EpochGuard guard(setup_);
      index_->step(setup_, 1);
    }
    const EpochGuard guard(setup_);
    initial_ = index_->find(key_).head;
  }

  void spawn(Op op) {
    const uint64_t budget = ex_.random().between(1, 6);
    const Key other(2000 + ex_.random().below(100'000));
    Entry* mine = entries_.make(key_);
    Entry* another = entries_.make(other);
    ex_.spawn(kNames[static_cast<size_t>(op)], [this, op, budget, mine, another] {
      EpochThread self(domain_, "explored");
      switch (op) {
        case Op::kInsert:
          insert(self, mine);
          break;
        case Op::kFind:
          find(self);
          find(self);
          break;
        case Op::kReplace:
          replace(self, mine);
          break;
        case Op::kErase:
          erase(self);
          break;
        case Op::kEraseAndInsert:
          erase(self);
          insert(self, mine);
          break;
        case Op::kStep:
          step(self, budget);
          break;
        case Op::kInsertOther:
          insert_other(self, another);
          break;
      }
    });
  }

  void check() {
    const EpochGuard guard(setup_);
    const Entry* last = index_->find(key_).head;
    ex_.check(explained(events_, initial_, last), "no order of the operations explains what they answered");
    for (const Entry* other : others_) {
      ex_.check(index_->find(Key(other->key)).head == other, "another key was lost or changed");
    }
    ex_.check(index_->statistics().live == others_.size() + (last != nullptr ? 1 : 0), "keys are counted");
    index_->check_invariants();
    domain_.check_invariants();
  }

 private:
  void insert(EpochThread& self, Entry* mine) {
    const EpochGuard guard(self);
    // As in a batch: the insert begins from a confirmed cursor of an earlier stage.
    const bool staged = staged_;
    Cursor cursor;
    if (staged) cursor = index_->find_candidate(key_, HashIndex::hash(key_), true);
    if (staged) confirm(cursor);
    if (cursor.found()) return;
    Event event{.begin = ex_.points(), .changes = true, .desired = mine};
    const InsertOutcome outcome =
        staged ? index_->insert(self, mine, cursor) : index_->insert(self, key_, mine, cursor);
    ex_.check(outcome != InsertOutcome::kNoSpace, "the pool has room for every insert");
    event.succeeded = outcome == InsertOutcome::kInserted;
    record(event, cursor.head);
  }
  void confirm(Cursor& cursor) {
    const Event event{.begin = ex_.points()};
    index_->confirm(cursor);
    record(event, cursor.head);
  }
  Cursor find(EpochThread& self) {
    const EpochGuard guard(self);
    if (staged_) {
      Cursor cursor = index_->find_candidate(key_, HashIndex::hash(key_), false);
      confirm(cursor);
      return cursor;
    }
    const Event event{.begin = ex_.points()};
    const Cursor cursor = index_->find(key_);
    record(event, cursor.head);
    return cursor;
  }
  void replace(EpochThread& self, Entry* mine) {
    const EpochGuard guard(self);
    Cursor cursor = find(self);
    if (!cursor.found()) return;
    Event event{.begin = ex_.points(), .changes = true, .expected = cursor.head, .desired = mine};
    event.succeeded = index_->replace(cursor, mine);
    record(event, cursor.head);
  }
  void erase(EpochThread& self) {
    const EpochGuard guard(self);
    Cursor cursor = find(self);
    if (!cursor.found()) return;
    Event event{.begin = ex_.points(), .changes = true, .expected = cursor.head};
    event.succeeded = index_->erase(self, cursor);
    record(event, cursor.head);
  }
  void step(EpochThread& self, uint64_t budget) {
    for (int i = 0; i < 3; ++i) {
      const EpochGuard guard(self);
      index_->step(self, budget);
    }
  }
  void insert_other(EpochThread& self, Entry* another) {
    const EpochGuard guard(self);
    Cursor cursor;
    if (index_->insert(self, Key(another->key), another, cursor) == InsertOutcome::kInserted)
      others_.push_back(another);
  }
  void record(Event event, const Entry* seen) {
    event.end = ex_.points();
    event.seen = seen;
    events_.push_back(event);
  }

  Explorer& ex_;
  EntryFactory entries_;
  EpochDomain domain_;
  EpochThread setup_;
  std::unique_ptr<HashIndex> index_;
  Key key_;
  bool staged_ = false;  // finds and inserts use find_candidate() and confirm()
  const Entry* initial_ = nullptr;
  std::vector<const Entry*> others_;
  std::vector<Event> events_;
};

class HashIndexExplore : public ::testing::Test {
 protected:
  void run(std::vector<Op> ops, uint64_t schedules) { run(ops, {.schedules = schedules}); }
  void run(const std::vector<Op>& ops, const ExploreOptions& options) {
    const ExploreReport report = explore(options, [&](Explorer& ex) {
      Scenario scenario(ex, *pool_);
      for (const Op op : ops) scenario.spawn(op);
      ex.run();
      scenario.check();
    });
    std::string names;
    for (const Op op : ops) names += std::string(names.empty() ? "" : ", ") + kNames[static_cast<size_t>(op)];
    ASSERT_TRUE(report.ok()) << names << "\n" << report.message;
    schedules_ += report.schedules;
  }

  void TearDown() override { EXPECT_EQ(pool_->statistics().used_bytes, 0u) << "every array is freed"; }

  std::unique_ptr<PagePool> pool_ = index_pool();
  uint64_t schedules_ = 0;
};

TEST_F(HashIndexExplore, EveryPair) {
  for (const Op a : kOps) {
    for (const Op b : kOps) {
      if (a <= b) run({a, b}, 1500);
    }
  }
  EXPECT_GE(schedules_, 28u);
}

TEST_F(HashIndexExplore, EveryTriple) {
  for (const Op a : kOps) {
    for (const Op b : kOps) {
      for (const Op c : kOps) {
        if (a <= b && b <= c) run({a, b, c}, 700);
      }
    }
  }
  EXPECT_GE(schedules_, 84u);
}

// The explorer enumerates the schedules, beginning with those of the fewest preemptions.
TEST_F(HashIndexExplore, EveryPairExhaustively) {
  for (const Op a : kOps) {
    for (const Op b : kOps) {
      if (a <= b) run({a, b}, {.schedules = 2000, .policy = Policy::kExhaustive});
    }
  }
}

TEST_F(HashIndexExplore, FourThreadsAroundACopy) {
  run({Op::kStep, Op::kStep, Op::kEraseAndInsert, Op::kFind}, 4000);
  run({Op::kStep, Op::kErase, Op::kInsert, Op::kFind}, 4000);
  run({Op::kStep, Op::kInsertOther, Op::kInsert, Op::kInsert}, 4000);
}

// Several growths follow each other. Helpers may sleep in one migration while the next ones begin.
TEST_F(HashIndexExplore, SeveralMigrationsInARow) {
  uint64_t migrations = 0;
  const ExploreReport report = explore({.schedules = 1500}, [&](Explorer& ex) {
    EntryFactory entries;
    EpochDomain domain;
    EpochThread setup(domain, "set-up");
    auto index = make_index(*pool_, {.initial_capacity = 16, .moves_per_write = ex.random().between(1, 16)});
    constexpr uint64_t kKeys = 40;
    std::array<int, kKeys> inserted{};
    for (const char* name : {"a", "b", "c"}) {
      ex.spawn(name, [&] {
        EpochThread self(domain, "explored");
        for (uint64_t key = 0; key < kKeys; ++key) {
          const EpochGuard guard(self);
          Cursor cursor;
          const InsertOutcome outcome = index->insert(self, Key(key), entries.make(Key(key)), cursor);
          ex.check(outcome != InsertOutcome::kNoSpace, "the pool has room for every insert");
          inserted[key] += outcome == InsertOutcome::kInserted ? 1 : 0;
          if (key >= 8 && key % 2 == 0) {
            cursor = index->find(Key(key - 8));
            if (cursor.found() && index->erase(self, cursor)) --inserted[key - 8];
          }
        }
      });
    }
    ex.run();
    const EpochGuard guard(setup);
    for (uint64_t key = 0; key < kKeys; ++key) {
      const bool found = index->find(Key(key)).found();
      ex.check(inserted[key] == (found ? 1 : 0), "one insert of each key succeeds, and the key stays until its erase");
    }
    index->check_invariants();
    migrations += index->statistics().migrations;
  });
  EXPECT_TRUE(report.ok()) << report.message;
  EXPECT_GT(migrations, 2 * report.schedules);
}

}  // namespace
}  // namespace loam::storage
