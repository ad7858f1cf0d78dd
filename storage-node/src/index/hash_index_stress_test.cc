// The hash index under real threads. Each test checks the content of the entries that it reads.
#include <atomic>
#include <barrier>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"
#include "storage-node/src/index/array.h"
#include "storage-node/src/index/hash_index.h"
#include "storage-node/testing/index_fixture.h"

namespace loam::storage {
namespace {

using testing::Random;
using testing::test_seed;

constexpr size_t kThreads = 4;

template <class Fn>
void in_threads(EpochDomain& domain, Fn&& fn) {
  std::vector<std::thread> threads;
  std::barrier start(static_cast<std::ptrdiff_t>(kThreads));
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      EpochThread self(domain, "stress");
      start.arrive_and_wait();
      fn(self, t);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// All threads insert the same keys while the index grows from its smallest size. One insert of each key succeeds, and
// all threads find its entry.
TEST(HashIndexStress, OneOfSeveralInsertsOfAKeyWins) {
  constexpr uint64_t kKeys = 50'000;
  auto pool = index_pool();
  EpochDomain domain;
  auto index = make_index(*pool, {.initial_capacity = 16});
  std::vector<std::atomic<uint32_t>> winners(kKeys);
  std::vector<EntryFactory> entries(kThreads);
  in_threads(domain, [&](EpochThread& self, size_t t) {
    for (uint64_t key = 0; key < kKeys; ++key) {
      const EpochGuard guard(self);
      Cursor cursor;
      Entry* mine = entries[t].make(Key(key), t);
      if (index->insert(self, Key(key), mine, cursor) == InsertOutcome::kInserted) {
        winners[key].fetch_add(1, std::memory_order_relaxed);
        ASSERT_EQ(cursor.head, mine);
      }
      ASSERT_EQ(index->find(Key(key)).head, cursor.head);
    }
  });
  for (uint64_t key = 0; key < kKeys; ++key) ASSERT_EQ(winners[key].load(std::memory_order_relaxed), 1u) << key;
  index->check_invariants();
  EXPECT_EQ(index->statistics().live, kKeys);
}

// More threads are registered than an array has stripes. The last ones share a stripe, and no count is lost.
TEST(HashIndexStress, ThreadsThatShareAStripeCountEveryKey) {
  constexpr uint64_t kKeys = 50'000;
  auto pool = index_pool();
  EpochDomain domain;
  std::vector<std::unique_ptr<EpochThread>> idle;
  for (size_t i = 0; i < index_detail::Array::kStripes; ++i) {
    idle.push_back(std::make_unique<EpochThread>(domain, "idle"));
  }
  auto index = make_index(*pool);
  std::vector<EntryFactory> entries(kThreads);
  in_threads(domain, [&](EpochThread& self, size_t t) {
    for (uint64_t i = 0; i < kKeys; ++i) {
      const EpochGuard guard(self);
      const Key key(t * kKeys + i);
      Cursor cursor;
      ASSERT_EQ(index->insert(self, key, entries[t].make(key), cursor), InsertOutcome::kInserted);
      if (i % 2 == 0) {
        ASSERT_TRUE(index->erase(self, cursor));
      }
    }
  });
  index->check_invariants();
  EXPECT_EQ(index->statistics().live, kThreads * kKeys / 2);
}

// The mark of a key's entry is a counter. Threads replace the entry to add one. Keys are erased and inserted again with
// the count that they had. No addition may be lost during migrations.
TEST(HashIndexStress, CountersUnderChurn) {
  constexpr uint64_t kCounters = 64;
  constexpr uint64_t kRounds = 20'000;
  auto pool = index_pool();
  EpochDomain domain;
  auto index = make_index(*pool, {.initial_capacity = 16, .moves_per_write = 2});
  std::vector<EntryFactory> entries(kThreads + 1);
  EpochThread setup(domain, "set-up");
  for (uint64_t key = 0; key < kCounters; ++key) {
    const EpochGuard guard(setup);
    Cursor cursor;
    ASSERT_EQ(index->insert(setup, Key(key), entries[kThreads].make(Key(key)), cursor), InsertOutcome::kInserted);
  }
  const uint64_t seed = test_seed(3);
  in_threads(domain, [&](EpochThread& self, size_t t) {
    Random random(seed + t);
    const uint64_t own = 1'000'000 * (t + 1);
    for (uint64_t i = 0; i < kRounds; ++i) {
      const EpochGuard guard(self);
      Cursor cursor = index->find(Key(random.below(kCounters)));
      ASSERT_TRUE(cursor.found());
      for (;;) {
        ASSERT_EQ(cursor.head->key, cursor.key.value);
        if (index->replace(cursor, entries[t].make(cursor.key, cursor.head->valid_from + 1))) break;
        ASSERT_TRUE(cursor.found());
      }
      // Each thread inserts and erases keys of its own, so that migrations go on.
      Cursor churn;
      ASSERT_EQ(index->insert(self, Key(own + i), entries[t].make(Key(own + i), i), churn), InsertOutcome::kInserted);
      if (i < 50) continue;
      churn = index->find(Key(own + i - 50));
      ASSERT_TRUE(churn.found());
      ASSERT_EQ(churn.head->valid_from, i - 50);
      ASSERT_TRUE(index->erase(self, churn));
      ASSERT_FALSE(index->find(Key(own + i - 50)).found());
    }
  });
  uint64_t sum = 0;
  for (uint64_t key = 0; key < kCounters; ++key) sum += index->find(Key(key)).head->valid_from;
  EXPECT_EQ(sum, kThreads * kRounds);
  index->check_invariants();
  EXPECT_EQ(index->statistics().live, kCounters + 50 * kThreads);
  EXPECT_GT(index->statistics().migrations, 20u);
}

// Threads insert and erase the same few keys. At the end, the index has exactly the keys whose successful inserts
// exceed their successful erases.
TEST(HashIndexStress, InsertsAndErasesBalance) {
  constexpr uint64_t kKeys = 8;
  auto pool = index_pool();
  EpochDomain domain;
  auto index = make_index(*pool, {.initial_capacity = 16, .moves_per_write = 1});
  std::vector<std::atomic<int64_t>> balance(kKeys);
  std::vector<EntryFactory> entries(kThreads);
  const uint64_t seed = test_seed(4);
  in_threads(domain, [&](EpochThread& self, size_t t) {
    Random random(seed + t);
    for (int i = 0; i < 50'000; ++i) {
      const EpochGuard guard(self);
      const Key key(random.below(kKeys));
      Cursor cursor = index->find(key);
      if (!cursor.found()) {
        if (index->insert(self, key, entries[t].make(key), cursor) == InsertOutcome::kInserted) {
          balance[key.value].fetch_add(1, std::memory_order_relaxed);
        }
      } else if (index->erase(self, cursor)) {
        balance[key.value].fetch_sub(1, std::memory_order_relaxed);
      }
    }
  });
  for (uint64_t key = 0; key < kKeys; ++key) {
    EXPECT_EQ(balance[key].load(std::memory_order_relaxed), index->find(Key(key)).found() ? 1 : 0) << key;
  }
  index->check_invariants();
}

}  // namespace
}  // namespace loam::storage
