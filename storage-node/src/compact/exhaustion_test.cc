// A full pool: writes are refused at once, removes and undo go through, reverts need nothing, and what the compactor
// frees is usable again (R6).
#include <string>
#include <unordered_set>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/testing/table_fixture.h"

namespace loam::storage {
namespace {

class ExhaustionTest : public ::testing::Test {
 protected:
  explicit ExhaustionTest(TableKind kind = TableKind::kTransactional)
      : fixture_({.kind = kind, .pages = 32, .page_bytes = 16384, .writers = 2}) {
    compactor_.add(fixture_.table);
  }
  /// Inserts keys from `first` on, one transaction each, until one is refused; returns the key that was.
  uint64_t fill(uint64_t first) {
    for (uint64_t key = first;; ++key) {
      const EpochGuard guard(thread_);
      const auto t = manager_.begin();
      const WriteOutcome outcome = table_.insert(me_, Key(key), t.snapshot, t.id, as_bytes(row_));
      manager_.complete(t.id);
      if (outcome.code == StatusCode::kOk) continue;
      EXPECT_EQ(outcome.code, StatusCode::kNoSpace);
      return key;
    }
  }
  void compact(int steps) {
    for (int i = 0; i < steps; ++i) {
      if (i % 8 == 0) compactor_.publish(manager_.publication());
      compactor_.step(background_, 256);
      background_epochs_.collect(8);
    }
  }
  void TearDown() override { compact(2000); }

  const std::string row_ = std::string(152, 'r');
  TableFixture fixture_;
  Table& table_ = *fixture_.table;
  EpochThread thread_{fixture_.epochs, "requests"};
  ThreadContext me_{thread_, 0};
  EpochThread background_epochs_{fixture_.epochs, "background"};
  ThreadContext background_{background_epochs_, 1};
  Compactor compactor_{CompactorOptions{}, *fixture_.pool, fixture_.epochs};
  ManagerModel manager_;
};

TEST_F(ExhaustionTest, WritesAreRefusedAndLeaveNothing) {
  const uint64_t end = fill(0);
  ASSERT_GT(end, 500u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(fill(end), end);
  const EpochGuard guard(thread_);
  const auto t = manager_.begin();
  EXPECT_EQ(table_.update(me_, Key(3), t.snapshot, t.id, as_bytes(row_)).code, StatusCode::kNoSpace);
  EXPECT_EQ(table_.get(me_, Key(3), t.snapshot).code, StatusCode::kOk) << "reads go on";
  const auto other = manager_.begin();
  EXPECT_EQ(table_.remove(me_, Key(3), other.snapshot, other.id).code, StatusCode::kOk)
      << "the refused update has claimed nothing";
  manager_.complete(t.id);
  manager_.complete(other.id);
  const Snapshot now = manager_.now();
  EXPECT_EQ(scan_all(table_, &now).size(), end - 1);
  EXPECT_GT(table_.counters().no_space, 1000u);
}

TEST_F(ExhaustionTest, EveryTransactionCanAbort) {
  uint64_t next = 0;
  std::vector<ManagerModel::Transaction> open;
  std::vector<std::vector<uint64_t>> written(4);
  for (int i = 0; i < 4; ++i) open.push_back(manager_.begin());
  for (bool room = true; room;) {
    for (size_t i = 0; i < open.size(); ++i) {
      const EpochGuard guard(thread_);
      const StatusCode code = table_.insert(me_, Key(next), open[i].snapshot, open[i].id, as_bytes(row_)).code;
      room = room && code == StatusCode::kOk;
      if (code == StatusCode::kOk) written[i].push_back(next++);
    }
  }
  for (size_t i = 0; i < open.size(); ++i) {
    const EpochGuard guard(thread_);
    for (const uint64_t key : written[i]) {
      ASSERT_EQ(table_.revert(me_, Key(key), open[i].id).code, StatusCode::kOk);
    }
    manager_.complete(open[i].id);
  }
  EXPECT_EQ(table_.keys(), 0u);
  compact(2000);
  EXPECT_GT(fill(0), next / 2) << "the room is usable again";
}

TEST_F(ExhaustionTest, RemovesGoThroughAndMakeRoom) {
  const uint64_t end = fill(0);
  for (uint64_t key = 0; key < end; ++key) {
    {
      const EpochGuard guard(thread_);
      const auto t = manager_.begin();
      ASSERT_EQ(table_.remove(me_, Key(key), t.snapshot, t.id).code, StatusCode::kOk) << "key " << key;
      manager_.complete(t.id);
    }
    compact(2);
  }
  compact(3000);
  EXPECT_GT(fill(end), end + end / 2);
}

TEST_F(ExhaustionTest, UpdatesUnderCollectionGoOnForEver) {
  const uint64_t keys = fill(0) / 2;
  for (uint64_t key = keys; key < 2 * keys; ++key) {
    const EpochGuard guard(thread_);
    const auto t = manager_.begin();
    ASSERT_EQ(table_.remove(me_, Key(key), t.snapshot, t.id).code, StatusCode::kOk);
    manager_.complete(t.id);
    compact(2);
  }
  compact(3000);
  size_t refused = 0;
  for (uint64_t i = 0; i < 20 * keys; ++i) {
    {
      const EpochGuard guard(thread_);
      const auto t = manager_.begin();
      const StatusCode code = table_.update(me_, Key(i * 7 % keys), t.snapshot, t.id, as_bytes(row_)).code;
      refused += code == StatusCode::kNoSpace;
      ASSERT_TRUE(code == StatusCode::kOk || code == StatusCode::kNoSpace);
      manager_.complete(t.id);
    }
    if (i % 8 == 0) compact(8);
  }
  EXPECT_EQ(refused, 0u) << "half of the pool is live, the rest is enough to collect in time";
}

// Nothing is compacted before a write is refused, so writes take whatever has come free, wherever it lies: the pool is
// full all the time, in pages of all sizes, and nearly every page that is garbage holds a tombstone that is not yet.
TEST_F(ExhaustionTest, WhatIsRefusedFindsRoomSoon) {
  constexpr size_t kMany = 1'000;
  constexpr size_t kFew = 100;
  constexpr int kPhases = 12;
  constexpr int kWritesOfAPhase = 4'000;
  constexpr int kSoon = 2'000;  // steps of the compactor
  testing::Random random(testing::test_seed(1));
  std::unordered_set<uint64_t> present;
  for (int phase = 0; phase < kPhases; ++phase) {
    const size_t wanted = phase % 2 == 0 ? kMany : kFew;
    for (int i = 0; i < kWritesOfAPhase; ++i) {
      const bool many = present.size() > wanted;
      const Key key(many ? *present.begin() : random.below(2 * wanted));
      const bool there = present.contains(key.value);
      const bool remove = there && random.below(100) < (many ? 40u : 5u);
      const auto t = manager_.begin();
      for (int steps = 0;; ++steps) {
        ASSERT_LT(steps, kSoon) << "phase " << phase << ", write " << i << ": nothing comes free";
        if (steps > 0) compact(1);
        const EpochGuard guard(thread_);
        const StatusCode code = remove  ? table_.remove(me_, key, t.snapshot, t.id).code
                                : there ? table_.update(me_, key, t.snapshot, t.id, as_bytes(row_)).code
                                        : table_.insert(me_, key, t.snapshot, t.id, as_bytes(row_)).code;
        if (code == StatusCode::kOk) break;
        ASSERT_EQ(code, StatusCode::kNoSpace);
      }
      manager_.complete(t.id);
      if (remove) {
        present.erase(key.value);
      } else {
        present.insert(key.value);
      }
    }
  }
  EXPECT_GT(table_.counters().no_space, 100u);
}

// A node full of live records, with all its transactions open.
TEST_F(ExhaustionTest, EveryOpenTransactionCanCommitOrAbort) {
  struct Open {
    ManagerModel::Transaction transaction;
    std::vector<Key> written;
  };
  std::vector<Open> open;
  const EpochGuard guard(thread_);
  for (bool room = true; room;) {
    Open& t = open.emplace_back(Open{manager_.begin(), {}});
    for (uint64_t i = 0; i < 3 && room; ++i) {
      const Key key(10 * t.transaction.id.value + i);
      room = table_.insert(me_, key, t.transaction.snapshot, t.transaction.id, as_bytes(row_)).code == StatusCode::kOk;
      if (room) t.written.push_back(key);
    }
  }
  ASSERT_GT(open.size(), 100u);
  const uint64_t refused = table_.counters().no_space;
  for (const Open& t : open) {
    const TransactionId id = t.transaction.id;
    const bool commits = t.written.size() == 3 && id.value % 2 == 0;
    for (const Key key : t.written) {
      if (!commits) {
        ASSERT_EQ(table_.revert(me_, key, id).code, StatusCode::kOk) << "transaction " << id.value;
      }
    }
    manager_.complete(id);
  }
  EXPECT_EQ(table_.counters().no_space, refused);
}

class PlainExhaustionTest : public ExhaustionTest {
 protected:
  PlainExhaustionTest() : ExhaustionTest(TableKind::kNonTransactional) {}

  /// Inserts keys from 0 on until one is refused; their versions.
  std::vector<Version> fill_plain(Reserve reserve = Reserve::kWrite, uint64_t first = 0) {
    std::vector<Version> versions;
    for (uint64_t key = first;; ++key) {
      const EpochGuard guard(thread_);
      const WriteOutcome outcome = table_.plain_put(me_, Key(key), {}, as_bytes(row_), reserve);
      if (outcome.code == StatusCode::kOk) {
        versions.push_back(outcome.version);
        continue;
      }
      EXPECT_EQ(outcome.code, StatusCode::kNoSpace);
      return versions;
    }
  }
  /// Background work while the commit manager is away.
  void step(int steps) {
    for (int i = 0; i < steps; ++i) {
      compactor_.step(background_, 256);
      background_epochs_.collect(8);
    }
  }
};

TEST_F(PlainExhaustionTest, UndoHasItsReserve) {
  const std::vector<Version> versions = fill_plain();
  const EpochGuard guard(thread_);
  EXPECT_EQ(table_.plain_put(me_, Key(0), versions[0], as_bytes(row_)).code, StatusCode::kNoSpace);
  for (uint64_t key = 10'000; key < 10'020; ++key) {
    const WriteOutcome undone = table_.plain_put(me_, Key(key), {}, as_bytes(row_), Reserve::kUndo);
    ASSERT_EQ(undone.code, StatusCode::kOk) << "key " << key;
    ASSERT_EQ(table_.plain_remove(me_, Key(key), undone.version).code, StatusCode::kOk);
  }
}

TEST_F(PlainExhaustionTest, GarbageOfAFullPageComesFreeWhileTheCommitManagerIsAway) {
  const std::vector<Version> versions = fill_plain();
  step(200);
  {
    const EpochGuard guard(thread_);
    Page* const head = table_.pages().pages().back();
    ASSERT_EQ(head->state(), PageState::kHead);
    head->for_each([&](const Entry& entry) {
      ASSERT_EQ(table_.plain_remove(me_, Key(entry.key), entry.version()).code, StatusCode::kOk);
    });
  }
  step(200);  // it looks at the removals, and may not take the page
  EXPECT_TRUE(fill_plain(Reserve::kWrite, 20'000).empty()) << "the page is full";
  step(200);
  EXPECT_FALSE(fill_plain(Reserve::kWrite, 20'000).empty());
}

}  // namespace
}  // namespace loam::storage
