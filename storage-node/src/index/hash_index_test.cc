#include "storage-node/src/index/hash_index.h"

#include <algorithm>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/pause_point.h"
#include "common/testing/random.h"
#include "storage-node/testing/index_fixture.h"

namespace loam::storage {
namespace {

using testing::Random;
using testing::test_seed;

class HashIndexTest : public ::testing::Test {
 protected:
  bool insert(uint64_t key, uint64_t mark = 0) {
    const EpochGuard guard(thread_);
    Cursor cursor;
    return index_->insert(thread_, Key(key), entries_.make(Key(key), mark), cursor) == InsertOutcome::kInserted;
  }
  Entry* find(uint64_t key) {
    const EpochGuard guard(thread_);
    return index_->find(Key(key)).head;
  }
  bool erase(uint64_t key) {
    const EpochGuard guard(thread_);
    Cursor cursor = index_->find(Key(key));
    return cursor.found() && index_->erase(thread_, cursor);
  }
  HashIndexStatistics statistics() {
    const EpochGuard guard(thread_);
    return index_->statistics();
  }
  void settle() {
    for (;;) {
      const EpochGuard guard(thread_);
      if (!index_->step(thread_, 64)) return;
    }
  }

  std::unique_ptr<PagePool> pool_ = index_pool();
  EpochDomain domain_;
  EpochThread thread_{domain_, "test"};
  EntryFactory entries_;
  std::unique_ptr<HashIndex> index_ = make_index(*pool_);
};

TEST(SlotWord, RoundTrips) {
  EntryFactory entries;
  const Entry* entry = entries.make(Key(1));
  for (const uint64_t tag : {0u, 1u, 0x40000u, 0x7ffffu}) {
    for (const bool far : {false, true}) {
      const SlotWord word = SlotWord::pointer(tag, far, entry);
      EXPECT_TRUE(word.is_pointer());
      EXPECT_FALSE(word.is_frozen());
      EXPECT_FALSE(word.is_moved());
      EXPECT_EQ(word.tag(), tag);
      EXPECT_EQ(word.far(), far);
      EXPECT_EQ(word.entry(), entry);
      EXPECT_TRUE(word.frozen().is_frozen());
      EXPECT_FALSE(word.frozen().is_moved());
      EXPECT_EQ(word.frozen().entry(), entry);
      EXPECT_EQ(word.frozen().tag(), tag);
      EXPECT_EQ(word.frozen().far(), far);
      EXPECT_EQ(word.frozen().unfrozen(), word);
      const Entry* other = entries.make(Key(1));
      EXPECT_EQ(word.with_entry(other), SlotWord::pointer(tag, far, other));
    }
  }
  const auto* highest = reinterpret_cast<const Entry*>((uint64_t{1} << 47) - 16);
  EXPECT_EQ(SlotWord::pointer(0x7ffff, true, highest).entry(), highest);
  for (const SlotWord word :
       {SlotWord::empty(), SlotWord::deleted(), SlotWord::moved_empty(), SlotWord::moved_full()}) {
    EXPECT_FALSE(word.is_pointer());
    EXPECT_FALSE(word.is_frozen());
  }
  EXPECT_EQ(SlotWord::empty().bits, 0u);
  EXPECT_EQ(SlotWord::empty().frozen(), SlotWord::moved_empty());
  EXPECT_EQ(SlotWord::deleted().frozen(), SlotWord::moved_full());
  EXPECT_TRUE(SlotWord::moved_empty().is_moved() && SlotWord::moved_full().is_moved());
  EXPECT_FALSE(SlotWord::empty().is_moved() || SlotWord::deleted().is_moved());
}

TEST_F(HashIndexTest, InsertFindReplaceErase) {
  EXPECT_EQ(find(7), nullptr);
  EXPECT_TRUE(insert(7, 1));
  EXPECT_FALSE(insert(7, 2));
  ASSERT_NE(find(7), nullptr);
  EXPECT_EQ(find(7)->valid_from, 1u);

  const EpochGuard guard(thread_);
  Cursor cursor = index_->find(Key(7));
  Cursor stale = cursor;
  Entry* second = entries_.make(Key(7), 2);
  EXPECT_TRUE(index_->replace(cursor, second));
  EXPECT_EQ(cursor.head, second);
  EXPECT_FALSE(index_->replace(stale, entries_.make(Key(7), 3)));
  EXPECT_EQ(stale.head, second);  // the cursor holds the present head
  EXPECT_TRUE(index_->erase(thread_, stale));
  EXPECT_FALSE(stale.found());
  EXPECT_FALSE(index_->erase(thread_, cursor));
  EXPECT_FALSE(cursor.found());
  EXPECT_FALSE(index_->replace(cursor, second));
  EXPECT_EQ(find(7), nullptr);
  EXPECT_TRUE(insert(7, 4));
  EXPECT_EQ(find(7)->valid_from, 4u);
  index_->check_invariants();
}

TEST_F(HashIndexTest, InsertOfAPresentKeyReturnsItsHead) {
  ASSERT_TRUE(insert(7, 1));
  const EpochGuard guard(thread_);
  Cursor cursor;
  EXPECT_EQ(index_->insert(thread_, Key(7), entries_.make(Key(7), 2), cursor), InsertOutcome::kExists);
  ASSERT_TRUE(cursor.found());
  EXPECT_EQ(cursor.head->valid_from, 1u);
  EXPECT_TRUE(index_->replace(cursor, entries_.make(Key(7), 3)));
}

TEST_F(HashIndexTest, ACursorSurvivesMigrations) {
  ASSERT_TRUE(insert(7, 1));
  const EpochGuard guard(thread_);
  Cursor replacing = index_->find(Key(7));
  Cursor erasing = replacing;
  for (uint64_t key = 100; key < 5000; ++key) ASSERT_TRUE(insert(key));
  EXPECT_GE(statistics().migrations, 3u);
  EXPECT_TRUE(index_->replace(replacing, entries_.make(Key(7), 2)));
  EXPECT_EQ(find(7)->valid_from, 2u);
  EXPECT_FALSE(index_->erase(thread_, erasing));
  EXPECT_EQ(erasing.head, replacing.head);
  EXPECT_TRUE(index_->erase(thread_, erasing));
  EXPECT_EQ(find(7), nullptr);
}

TEST_F(HashIndexTest, GrowsInSmallStepsAndShrinksBack) {
  constexpr uint64_t kKeys = 50'000;
  for (uint64_t key = 0; key < kKeys; ++key) ASSERT_TRUE(insert(key));
  index_->check_invariants();
  HashIndexStatistics s = statistics();
  EXPECT_EQ(s.live, kKeys);
  EXPECT_EQ(s.capacity, 65'536u);  // 50,000 keys use 0.76 of the slots
  EXPECT_EQ(s.migrations, 7u);     // from 512 slots on
  EXPECT_GT(s.moves_max, 0u);
  EXPECT_LE(s.moves_max, HashIndex::kMaxMovesPerWrite);
  for (uint64_t key = 0; key < kKeys; ++key) ASSERT_NE(find(key), nullptr) << key;
  EXPECT_EQ(find(kKeys), nullptr);
  for (uint64_t key = 0; key < kKeys; ++key) ASSERT_TRUE(erase(key));
  settle();
  index_->check_invariants();
  s = statistics();
  EXPECT_EQ(s.live, 0u);
  EXPECT_EQ(s.capacity, 512u);
  EXPECT_LE(s.moves_max, HashIndex::kMaxMovesPerWrite);
  for (int i = 0; i < 10; ++i) thread_.collect(100);
  EXPECT_EQ(pool_->statistics().used_bytes, statistics().bytes);  // the retired arrays are freed
}

TEST_F(HashIndexTest, AStepMovesNoMoreThanItsBudget) {
  index_ = make_index(*pool_, {.moves_per_write = 1});
  for (uint64_t key = 0; !statistics().migrating; ++key) ASSERT_TRUE(insert(key));
  for (int i = 0; i < 3; ++i) {
    const EpochGuard guard(thread_);
    EXPECT_TRUE(index_->step(thread_, 8));
  }
  EXPECT_GT(statistics().moves_max, 1u);
  EXPECT_LE(statistics().moves_max, 8u);
}

// Each write moves so few slots that the old array would be empty only when the next one is half full.
TEST_F(HashIndexTest, AnInsertEndsAMigrationThatLagsBehind) {
  index_ = make_index(*pool_, {.moves_per_write = 1});
  uint64_t keys = 0;
  while (!statistics().migrating) ASSERT_TRUE(insert(keys++));
  const size_t capacity = statistics().capacity;
  uint64_t meanwhile = 0;
  for (; statistics().migrating; ++meanwhile) ASSERT_TRUE(insert(keys++));
  constexpr uint64_t kLate = 64;  // an insert may notice the limit this late
  EXPECT_LE(meanwhile,
            static_cast<uint64_t>(HashIndex::kMaxInsertsDuringMigration * static_cast<double>(capacity)) + kLate);
  for (uint64_t key = 0; key < keys; ++key) EXPECT_NE(find(key), nullptr) << key;
  index_->check_invariants();
}

// A thread stalls inside its chunk, whose slots are frozen and not copied. Other threads move these slots too, and
// step() ends the migration without that thread.
TEST_F(HashIndexTest, AStalledHelperDelaysNoOther) {
  constexpr int kManyTurns = 10'000;
  EpochThread background(domain_, "background");
  bool standing = false;
  int turns = 0;
  const auto hook = PausePoints::on("node.index.frozen", [&] {
    if (std::exchange(standing, true)) return;  // step() passes this pause point too
    const EpochGuard guard(background);
    while (turns < kManyTurns && index_->step(background, 64)) ++turns;
    EXPECT_EQ(index_->statistics().migrations, 1u) << "the migration ends without the stalled thread";
    EXPECT_FALSE(index_->step(background, 64)) << "the migration has ended";
  });
  uint64_t keys = 0;
  while (!standing) ASSERT_TRUE(insert(keys++));
  EXPECT_GT(turns, 0);
  EXPECT_LT(turns, kManyTurns);
  settle();
  EXPECT_EQ(statistics().migrations, 1u);
  for (uint64_t key = 0; key < keys; ++key) EXPECT_NE(find(key), nullptr) << key;
  index_->check_invariants();
}

// A thread stalls between the mark of its chunk and the count. No other step() can end the migration, so step() returns
// false instead of letting the background thread spin.
TEST_F(HashIndexTest, AStepReturnsFalseWhileAnotherThreadHoldsTheRest) {
  constexpr int kManyTurns = 10'000;
  EpochThread background(domain_, "background");
  bool standing = false;
  int turns = 0;
  const auto hook = PausePoints::on("node.index.marked", [&] {
    if (std::exchange(standing, true)) return;  // step() passes this pause point too
    const EpochGuard guard(background);
    while (turns < kManyTurns && index_->step(background, 64)) ++turns;
    EXPECT_EQ(index_->statistics().migrations, 0u) << "the count lacks a chunk";
    EXPECT_FALSE(index_->step(background, 64)) << "only the stalled thread can go on";
  });
  for (uint64_t key = 0; !standing; ++key) ASSERT_TRUE(insert(key));
  EXPECT_GT(turns, 0) << "some steps have moved slots";
  EXPECT_LT(turns, kManyTurns);
  settle();
  EXPECT_EQ(statistics().migrations, 1u) << "after the thread has counted its chunk, a step ends the migration";
  index_->check_invariants();
}

TEST_F(HashIndexTest, TakesSixteenBytesAKeyOnAverage) {
  double sum = 0;
  int samples = 0;
  uint64_t key = 0;
  for (; key < 1600; ++key) ASSERT_TRUE(insert(key));
  settle();
  const uint64_t growth = statistics().migrations;
  // Over two growths.
  while (statistics().migrations < growth + 2) {
    ASSERT_TRUE(insert(++key));
    sum += static_cast<double>(statistics().bytes) / static_cast<double>(statistics().live);
    ++samples;
  }
  EXPECT_LE(sum / samples, 16.0);
}

// For every load that a new array may have. The test takes the worst ratio over the last turnovers.
TEST_F(HashIndexTest, ChurnNeitherGrowsItNorItsProbes) {
  for (const uint64_t keys : {6'700u, 8'192u, 10'000u, 13'000u}) {
    index_ = make_index(*pool_);
    for (uint64_t key = 0; key < keys; ++key) ASSERT_TRUE(insert(key));
    settle();
    const double fresh = index_->mean_probe_length();
    const size_t capacity = statistics().capacity;
    double worst = 0;
    for (uint64_t key = 0; key < 10 * keys; ++key) {
      ASSERT_TRUE(erase(key));
      ASSERT_TRUE(insert(key + keys));
      if (key >= 5 * keys && key % 500 == 0) worst = std::max(worst, index_->mean_probe_length());
    }
    index_->check_invariants();
    EXPECT_EQ(statistics().live, keys);
    EXPECT_LE(statistics().capacity, 2 * capacity);
    EXPECT_LE(worst, 1.2 * fresh) << keys;
  }
}

// Between the stages keys are inserted, erased and replaced, and the index migrates.
TEST_F(HashIndexTest, StagedFindsEqualSingleFinds) {
  Random random(test_seed(11));
  index_ = make_index(*pool_, {.initial_capacity = 16, .moves_per_write = 2});
  for (int round = 0; round < 1500; ++round) {
    const uint64_t range = uint64_t{1} << (round / 50 % 2 == 0 ? 12 : 4);  // grows, then is emptied and shrinks
    for (uint64_t key = random.below(4'096), n = range == 16 ? 100 : 0; n > 0; --n) erase((key + n) % 4'096);
    std::vector<Cursor> cursors(random.below(40));
    const EpochGuard guard(thread_);
    for (Cursor& cursor : cursors) {
      const Key key(random.below(range));
      index_->prefetch_slot(HashIndex::hash(key), random.one_in(2));
      cursor = index_->find_candidate(key, HashIndex::hash(key), random.one_in(2));
    }
    for (uint64_t changes = random.below(100); changes > 0; --changes) {
      const uint64_t key = random.below(range);
      if (random.one_in(2)) {
        insert(key);
      } else if (Cursor changed = index_->find(Key(key)); changed.found()) {
        ASSERT_TRUE(random.one_in(2) ? index_->erase(thread_, changed)
                                     : index_->replace(changed, entries_.make(Key(key))));
      }
    }
    for (Cursor& cursor : cursors) {
      index_->confirm(cursor);
      ASSERT_EQ(cursor.head, index_->find(cursor.key).head);
      if (random.one_in(2)) continue;
      // An operation must succeed from a confirmed cursor.
      Entry* const mine = entries_.make(cursor.key);
      if (cursor.found()) {
        ASSERT_TRUE(index_->replace(cursor, mine));
      } else {
        ASSERT_EQ(index_->insert(thread_, mine, cursor), InsertOutcome::kInserted);
      }
      ASSERT_EQ(index_->find(cursor.key).head, mine);
    }
    index_->check_invariants();
  }
  EXPECT_GT(statistics().migrations, 20u);
}

// Growth through all sizes that share their tags, and across the borders between them. A migration takes the hash from
// the slots where it can. The invariants hold after each migration.
TEST_F(HashIndexTest, GrowsAcrossAllSizesOfTags) {
  index_.reset();
  pool_ = index_pool(size_t{64} << 20, size_t{1} << 20);
  index_ = make_index(*pool_, {.initial_capacity = 16, .moves_per_write = 64});
  constexpr uint64_t kKeys = 1'000'000;  // 2^21 slots: tags change at 2^13 and 2^21
  std::vector<Entry> entries(kKeys);
  uint64_t migrations = 0;
  for (uint64_t key = 0; key < kKeys; ++key) {
    const EpochGuard guard(thread_);
    entries[key].key = key;
    Cursor cursor;
    ASSERT_EQ(index_->insert(thread_, Key(key), &entries[key], cursor), InsertOutcome::kInserted);
    if (std::exchange(migrations, index_->statistics().migrations) != migrations) index_->check_invariants();
  }
  EXPECT_EQ(statistics().capacity, size_t{1} << 21);
  for (uint64_t key = 0; key < kKeys; ++key) ASSERT_EQ(find(key), &entries[key]);
  const EpochGuard guard(thread_);
  index_->check_invariants();
}

TEST_F(HashIndexTest, AFullPoolRefusesGrowthAndNothingElse) {
  index_.reset();
  pool_ = index_pool(8 * PagePool::kMinBlockBytes, PagePool::kMinBlockBytes);  // eight arrays of 512 slots
  index_ = make_index(*pool_);
  std::vector<std::byte*> blocks;
  while (std::byte* block = pool_->allocate(PagePool::kMinBlockBytes, Reserve::kWrite)) blocks.push_back(block);
  uint64_t key = 0;
  while (insert(key)) ++key;
  EXPECT_GE(key, static_cast<uint64_t>(HashIndex::kMaxLoad * 512));
  EXPECT_LE(key, static_cast<uint64_t>(HashIndex::kHardLoad * 512) + 16);
  EXPECT_GT(statistics().growth_refused, 0u);
  {
    const EpochGuard guard(thread_);
    Cursor cursor;
    EXPECT_EQ(index_->insert(thread_, Key(key), entries_.make(Key(key)), cursor), InsertOutcome::kNoSpace);
    cursor = index_->find(Key(0));
    EXPECT_TRUE(index_->replace(cursor, entries_.make(Key(0), 9)));
    // A higher memory class still gets its array.
    EXPECT_EQ(index_->insert(thread_, Key(key), entries_.make(Key(key)), cursor, Reserve::kUndo),
              InsertOutcome::kInserted);
  }
  EXPECT_EQ(find(0)->valid_from, 9u);
  EXPECT_TRUE(erase(1));
  index_->check_invariants();
  for (std::byte* block : blocks) pool_->release(block, PagePool::kMinBlockBytes);
  EXPECT_TRUE(insert(key + 1));
  index_->check_invariants();
}

TEST_F(HashIndexTest, ARefusedGrowthIsTriedAgainBeforeTheArrayIsFull) {
  index_.reset();
  pool_ = index_pool(8 * PagePool::kMinBlockBytes, PagePool::kMinBlockBytes);
  index_ = make_index(*pool_);
  std::vector<std::byte*> blocks;
  while (std::byte* block = pool_->allocate(PagePool::kMinBlockBytes, Reserve::kWrite)) blocks.push_back(block);
  uint64_t key = 0;
  while (statistics().growth_refused == 0) ASSERT_TRUE(insert(key++));
  for (std::byte* block : blocks) pool_->release(block, PagePool::kMinBlockBytes);
  constexpr uint64_t kOneCheck = 32;  // the limits are checked at this interval at the latest
  for (uint64_t more = 0; more < kOneCheck; ++more) ASSERT_TRUE(insert(key++));
  ASSERT_LT(key, static_cast<uint64_t>(HashIndex::kHardLoad * 512));
  EXPECT_GT(statistics().capacity, 512u);
}

TEST_F(HashIndexTest, RefusesInsertsWhenFullAndGrowthIsOff) {
  index_->set_growth(false);
  uint64_t key = 0;
  while (insert(key)) ++key;
  EXPECT_EQ(statistics().capacity, 512u);
  EXPECT_EQ(statistics().growth_refused, 0u);
  for (uint64_t k = 0; k < key; ++k) ASSERT_NE(find(k), nullptr);
  index_->set_growth(true);
  EXPECT_TRUE(insert(key));
}

TEST_F(HashIndexTest, RefusesOptionsOutOfRange) {
  EXPECT_EQ(HashIndex::create(*pool_, {.initial_capacity = 500}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(HashIndex::create(*pool_, {.initial_capacity = 8}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(HashIndex::create(*pool_, {.moves_per_write = 0}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(HashIndex::create(*pool_, {.moves_per_write = 65}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(HashIndex::create(*pool_, {.initial_capacity = size_t{1} << 30}).code(), StatusCode::kNoSpace);
  EXPECT_EQ(pool_->statistics().used_bytes, statistics().bytes);  // a refused array frees all its memory
}

TEST_F(HashIndexTest, KeysWithOneHomeAreDistinguished) {
  // Keys whose hashes have the same first 12 bits.
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; keys.size() < 100; ++key) {
    if (HashIndex::hash(Key(key)) >> 52 == 0xfff) keys.push_back(key);  // the last home, so the path wraps around
  }
  for (const uint64_t key : keys) ASSERT_TRUE(insert(key, key));
  for (const uint64_t key : keys) ASSERT_EQ(find(key)->valid_from, key);
  for (size_t i = 0; i < keys.size(); i += 2) ASSERT_TRUE(erase(keys[i]));
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(find(keys[i]) != nullptr, i % 2 == 1);
  index_->check_invariants();
}

// Compares the index with std::unordered_map, in phases of growth, churn and shrinking.
TEST_F(HashIndexTest, RandomUseAgainstAModel) {
  Random random(test_seed(20240602));
  index_ = make_index(*pool_, {.initial_capacity = 16, .moves_per_write = 3});
  std::unordered_map<uint64_t, Entry*> model;
  for (int phase = 0; phase < 40; ++phase) {
    const uint64_t inserts_of_100 = random.between(10, 90);
    const uint64_t key_range = uint64_t{1} << random.between(3, 13);
    for (int i = 0; i < 3000; ++i) {
      const EpochGuard guard(thread_);
      const uint64_t key = random.below(key_range);
      const auto known = model.find(key);
      if (random.below(100) < inserts_of_100) {
        Entry* head = entries_.make(Key(key));
        Cursor cursor;
        const InsertOutcome outcome = index_->insert(thread_, Key(key), head, cursor);
        ASSERT_EQ(outcome, known == model.end() ? InsertOutcome::kInserted : InsertOutcome::kExists);
        if (known == model.end()) {
          model[key] = head;
        } else {
          ASSERT_EQ(cursor.head, known->second);
          if (random.one_in(2)) {
            ASSERT_TRUE(index_->replace(cursor, head));
            known->second = head;
          }
        }
      } else {
        Cursor cursor = index_->find(Key(key));
        ASSERT_EQ(cursor.head, known == model.end() ? nullptr : known->second);
        ASSERT_EQ(index_->erase(thread_, cursor), known != model.end());
        model.erase(key);
      }
    }
    const EpochGuard guard(thread_);
    index_->check_invariants();
    size_t seen = 0;
    index_->for_each([&](Entry* head) {
      ++seen;
      ASSERT_EQ(model.at(head->key), head);
    });
    ASSERT_EQ(seen, model.size());
    ASSERT_EQ(index_->statistics().live, model.size());
    for (const size_t parts : {2, 3, 7}) {
      std::set<uint64_t> keys;
      for (size_t part = 0; part < parts; ++part) {
        index_->for_each_of_part(part, parts, [&](Entry* head) {
          ASSERT_EQ(model.at(head->key), head);
          ASSERT_TRUE(keys.insert(head->key).second) << "a key is in two partitions";
        });
      }
      ASSERT_EQ(keys.size(), model.size());
    }
  }
  EXPECT_GT(statistics().migrations, 20u);
}

}  // namespace
}  // namespace loam::storage
