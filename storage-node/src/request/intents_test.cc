#include "storage-node/src/request/intents.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::storage {
namespace {

using Kind = wire::Intent::Kind;

constexpr TableId kTable{1'030};
constexpr TableId kIndex{1'031};

/// Returns a publication by which every transaction up to `high` is complete, except those in `open`.
Publication publication(uint64_t high, const std::set<uint64_t>& open = {}, uint64_t number = 1) {
  std::vector<Version> ids;
  for (const uint64_t id : open) {
    if (id <= high) ids.emplace_back(id);
  }
  Publication made;
  made.cm_epoch = 1;
  made.number = number;
  made.later = Snapshot::make(Version(ids.empty() ? high : ids.front().value - 1), Version(high), ids).value();
  made.floor = made.later.base();
  return made;
}

class IntentsTest : public ::testing::Test {
 protected:
  static constexpr size_t kBlocks = 200;

  /// Returns the intents that the publication does not cover, in one page.
  std::vector<wire::Intent> named(const Publication& known) {
    pages_.emplace_back(SIZE_MAX, SIZE_MAX);
    uint64_t after = 0;
    EXPECT_TRUE(list.read(known, after, pages_.back()));
    return pages_.back().intents;
  }
  uint64_t used_blocks() const { return pool.used_bytes() / IntentBlock::kBytes; }
  bool write(uint64_t transaction, uint64_t key) { return list.append(TransactionId(transaction), kTable, Key(key)); }

  IntentPool pool{kBlocks * IntentBlock::kBytes};
  IntentList list{pool};
  const Publication nothing = publication(0);

 private:
  std::deque<IntentPage> pages_;  // keeps the keys alive
};

TEST_F(IntentsTest, WordsRoundTrip) {
  for (const uint64_t table : {uint64_t{0}, uint64_t{1'024}, kMaxIntentTable - 1}) {
    for (const uint32_t index : {0u, 1u, IntentWord::kMaxIndex}) {
      for (const uint32_t key_bytes : {0u, 1u, static_cast<uint32_t>(kMaxIntentKeyBytes)}) {
        for (const Kind kind : {Kind::kRecord, Kind::kIndexInsert, Kind::kIndexRemove}) {
          for (const bool shared : {false, true}) {
            const IntentWord word{table, index, key_bytes, shared, kind};
            EXPECT_EQ(IntentWord::decode(word.encode()), word);
          }
        }
      }
    }
  }
}

TEST_F(IntentsTest, ReadReturnsIntentsInAppendOrder) {
  const std::string longest(kMaxIntentKeyBytes, 'k');
  const std::vector<wire::IndexIntent> changes = {{TransactionId(7), Key(1), false, true, "give"},
                                                  {TransactionId(8), Key(UINT64_MAX), true, false, longest},
                                                  {TransactionId(9), Key(3), true, true, ""}};
  ASSERT_TRUE(write(7, 1));
  ASSERT_TRUE(list.append(kIndex, changes));
  ASSERT_TRUE(write(9, UINT64_MAX));
  list.end_batch(nothing);
  const std::vector<wire::Intent> expected = {
      {Kind::kRecord, TransactionId(7), kTable, Key(1)},
      {Kind::kIndexInsert, TransactionId(7), kIndex, Key(1), true, "give"},
      {Kind::kIndexRemove, TransactionId(8), kIndex, Key(UINT64_MAX), false, longest},
      {Kind::kIndexRemove, TransactionId(9), kIndex, Key(3), true, ""},
      {Kind::kRecord, TransactionId(9), kTable, Key(UINT64_MAX)}};
  EXPECT_EQ(named(nothing), expected);
  EXPECT_EQ(named(publication(8)), std::vector<wire::Intent>(expected.begin() + 3, expected.end()))
      << "the page leaves out what the publication covers, though it is still there";
  list.check_invariants();
}

TEST_F(IntentsTest, RemoveFailedKeepsTheOthers) {
  ASSERT_TRUE(write(7, 1));
  list.end_batch(nothing);
  ASSERT_TRUE(write(8, 2));
  ASSERT_TRUE(write(8, 3));
  ASSERT_TRUE(write(8, 4));
  list.remove_failed({true, false, true});
  list.end_batch(nothing);
  EXPECT_EQ(named(nothing), (std::vector<wire::Intent>{{Kind::kRecord, TransactionId(7), kTable, Key(1)},
                                                       {Kind::kRecord, TransactionId(8), kTable, Key(3)}}));
  list.check_invariants();
}

TEST_F(IntentsTest, FailingWriterNeedsOneBlock) {
  for (uint64_t i = 1; i <= 10'000; ++i) {
    ASSERT_TRUE(write(i, i));
    list.remove_failed({true});
    list.end_batch(nothing);
    ASSERT_EQ(used_blocks(), 1u);
  }
  list.check_invariants();
  size_t all = SIZE_MAX;
  EXPECT_EQ(list.sweep(nothing, 0, all), 0u);
  EXPECT_EQ(used_blocks(), 0u) << "an idle session keeps none";
}

TEST_F(IntentsTest, OneOpenTransactionAmongAMillionKeepsOneBlock) {
  const std::set<uint64_t> open = {100};
  uint64_t most = 0;
  for (uint64_t id = 1; id <= 1'000'000; ++id) {
    ASSERT_TRUE(write(id, id));
    ASSERT_TRUE(write(id, id + 1));
    list.end_batch(publication(id - id % 50, open));
    most = std::max(most, used_blocks());
  }
  EXPECT_LE(most, 20u);
  size_t all = SIZE_MAX;
  list.sweep(publication(1'000'000, open), 0, all);
  EXPECT_EQ(used_blocks(), 1u);
  EXPECT_EQ(named(nothing), (std::vector<wire::Intent>{{Kind::kRecord, TransactionId(100), kTable, Key(100)},
                                                       {Kind::kRecord, TransactionId(100), kTable, Key(101)}}));
}

TEST_F(IntentsTest, CoveredBlocksAreReleasedAtTheFront) {
  for (uint64_t id = 1; id <= 10'000; ++id) ASSERT_TRUE(write(id, id));
  list.end_batch(publication(9'000));
  EXPECT_LT(list.size(), 1'200u);
  EXPECT_LT(used_blocks(), 10u);
  list.end_batch(publication(10'000));
  EXPECT_EQ(list.size(), 0u);
  EXPECT_EQ(used_blocks(), 1u) << "kept for the next write";
}

TEST_F(IntentsTest, WithoutRoomAppendsFailUntilAPublication) {
  uint64_t key = 0;
  while (write(5 + key % 2, key)) ++key;
  EXPECT_EQ(used_blocks(), kBlocks);
  EXPECT_TRUE(list.in_batch());
  list.end_batch(nothing);
  EXPECT_FALSE(write(7, 0)) << "nothing has been completed";
  list.end_batch(publication(6, {5}, 2));
  EXPECT_EQ(named(nothing).size(), (key + 1) / 2) << "one of two was complete";
  // Every block is half full, and only the last one is appended to: blocks are never merged.
  list.end_batch(publication(6, {}, 3));
  EXPECT_TRUE(write(7, 0));
  list.check_invariants();
}

TEST_F(IntentsTest, ChangesOfOneSwapAreAppendedAllOrNone) {
  const std::string key(900, 'k');
  const std::vector<wire::IndexIntent> three(3, {TransactionId(9), Key(1), false, false, key});
  size_t swaps = 0;
  while (list.append(kIndex, three)) {
    if (++swaps % 5 == 0) list.end_batch(nothing);
  }
  EXPECT_EQ(named(nothing).size(), 3 * swaps);
  list.check_invariants();
}

TEST_F(IntentsTest, SweepContinuesWhereTheLastCallEnded) {
  for (uint64_t i = 0; i < 3'000; ++i) ASSERT_TRUE(write(5 + i % 2, i));
  list.end_batch(nothing);
  const Publication known = publication(6, {6});
  uint64_t from = 0;
  size_t steps = 0;
  do {
    size_t blocks = 4;
    from = list.sweep(known, from, blocks);
    ++steps;
    EXPECT_EQ(list.size(), std::max<uint64_t>(1'500, 3'000 - steps * 4 * 84));
    list.check_invariants();
  } while (from != 0);
  EXPECT_EQ(steps, 5u);
}

TEST_F(IntentsTest, PageRespectsItsLimits) {
  for (uint64_t i = 0; i < 3'000; ++i) ASSERT_TRUE(write(5, i));
  list.end_batch(nothing);
  std::vector<wire::Intent> seen;
  uint64_t after = 0;
  size_t pages = 0;
  for (bool more = true; more; ++pages) {
    IntentPage page(10'000, 1'000);
    more = !list.read(nothing, after, page);
    EXPECT_LE(page.intents.size(), 10'000 / IntentBlock::kIntentHeaderBytes);
    seen.insert(seen.end(), page.intents.begin(), page.intents.end());
  }
  EXPECT_EQ(seen, named(nothing));
  EXPECT_GT(pages, 7u);
  IntentPage page(SIZE_MAX, 2);
  after = 0;
  EXPECT_FALSE(list.read(nothing, after, page)) << "two blocks of many";
  EXPECT_EQ(page.intents.size(), 2 * 168u);
}

TEST_F(IntentsTest, PoolsShareAndReuseBlocks) {
  IntentList other(pool);
  uint64_t i = 0;
  while (write(5, i) && other.append(TransactionId(6), kTable, Key(i))) ++i;
  EXPECT_EQ(used_blocks(), kBlocks);
  list.end_batch(publication(5));
  EXPECT_TRUE(other.append(TransactionId(6), kTable, Key(i)));
  EXPECT_LE(used_blocks(), kBlocks / 2 + 2);
}

/// A model test of lists against a plain vector.
class IntentsModel : public IntentsTest {
 protected:
  struct Recorded {
    uint64_t sequence = 0;  ///< also the record's key
    uint64_t transaction = 0;
    std::string key{};  ///< of an index
    bool of_index = false;
  };

  void begin_some() {
    while (open_.size() < 12) open_.insert(++last_);
  }
  void complete_some() {
    if (!random_.one_in(3)) return;
    for (auto at = open_.begin(); at != open_.end();) at = random_.one_in(4) ? open_.erase(at) : std::next(at);
    known_ = publication(last_, open_, ++publications_);
  }
  void batch() {
    std::vector<Recorded> batch;
    std::vector<bool> failed;
    for (uint64_t n = random_.between(1, random_.one_in(10) ? 600 : 8); n != 0; --n) {
      std::vector<Recorded> one;
      const bool of_index = random_.one_in(3);
      for (uint64_t m = of_index ? random_.between(1, 4) : 1; m != 0; --m) {
        const auto at = std::next(open_.begin(), static_cast<ptrdiff_t>(random_.below(open_.size())));
        const std::string key(of_index ? random_.below(random_.one_in(9) ? 1'000 : 20) : 0, 'k');
        one.push_back({++sequence_, *at, key, of_index});
      }
      if (!append(one)) continue;
      ++appended_;
      failed.insert(failed.end(), one.size(), random_.one_in(4));
      batch.insert(batch.end(), one.begin(), one.end());
    }
    if (std::ranges::find(failed, true) != failed.end() || random_.one_in(5)) {
      list.remove_failed(failed);
      for (size_t i = 0; i < batch.size(); ++i) {
        if (!failed[i]) model_.push_back(batch[i]);
      }
    } else {
      model_.insert(model_.end(), batch.begin(), batch.end());
    }
    list.end_batch(known_);
  }
  bool append(const std::vector<Recorded>& one) {
    if (!one.front().of_index) return write(one.front().transaction, one.front().sequence);
    std::vector<wire::IndexIntent> changes;
    for (const Recorded& r : one) {
      changes.push_back(
          {TransactionId(r.transaction), Key(r.sequence), r.sequence % 2 == 0, r.sequence % 3 == 0, r.key});
    }
    return list.append(kIndex, changes);
  }
  void forget_covered() {
    std::erase_if(model_, [&](const Recorded& r) { return known_.later.visible(Version(r.transaction)); });
  }
  /// Reads the next page; after the last page it begins again.
  void read_page() {
    forget_covered();
    IntentPage page(random_.between(1'100, 20'000), random_.between(1, 20));
    const bool done = list.read(known_, after_, page);
    size_t at = static_cast<size_t>(std::ranges::upper_bound(model_, read_, {}, &Recorded::sequence) - model_.begin());
    for (const wire::Intent& intent : page.intents) {
      ASSERT_LT(at, model_.size()) << "an intent that should not be there";
      const Recorded& r = model_[at++];
      ASSERT_EQ(intent.record.value, r.sequence);
      ASSERT_EQ(intent.transaction.value, r.transaction);
      ASSERT_EQ(intent.kind, !r.of_index           ? Kind::kRecord
                             : r.sequence % 2 == 0 ? Kind::kIndexRemove
                                                   : Kind::kIndexInsert);
      ASSERT_EQ(intent.shared, r.of_index && r.sequence % 3 == 0);
      ASSERT_EQ(intent.key, r.key);
      ASSERT_EQ(intent.table, r.of_index ? kIndex : kTable);
      read_ = r.sequence;
    }
    named_ += page.intents.size();
    if (!done) return;
    ASSERT_EQ(at, model_.size()) << "an intent is missing";
    read_ = after_ = 0;
    ++rounds_;
  }

  testing::Random random_{testing::test_seed(std::random_device()())};
  std::set<uint64_t> open_;
  uint64_t last_ = 0, publications_ = 0, sequence_ = 0;
  Publication known_ = publication(0);
  std::vector<Recorded> model_;
  uint64_t after_ = 0, read_ = 0;
  uint64_t appended_ = 0, named_ = 0, rounds_ = 0;
};

TEST_F(IntentsModel, MatchesAVectorOfUncoveredIntents) {
  for (int i = 0; i < 20'000; ++i) {
    begin_some();
    batch();
    complete_some();
    if (random_.one_in(20)) {
      size_t blocks = random_.between(1, 50);
      list.sweep(known_, random_.one_in(2) ? 0 : after_ >> 16, blocks);
    }
    if (random_.one_in(3)) {
      ASSERT_NO_FATAL_FAILURE(read_page());
    }
    if (random_.one_in(100)) list.check_invariants();
  }
  EXPECT_GT(appended_, 50'000u);
  EXPECT_GT(named_, 20'000u);
  EXPECT_GT(rounds_, 100u);
}

}  // namespace
}  // namespace loam::storage
