#include "commit-manager/src/core/committed_ids.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace loam::commit {
namespace {

constexpr uint64_t kBlock = CommittedIds::kBlockIds;

bool always(TransactionId, TransactionId) { return true; }

std::vector<IdRange> ranges_of(const std::set<uint64_t>& ids) {
  std::vector<IdRange> ranges;
  for (const uint64_t id : ids) {
    if (!ranges.empty() && ranges.back().last.value + 1 == id) {
      ranges.back().last = TransactionId(id);
    } else {
      ranges.push_back({TransactionId(id), TransactionId(id)});
    }
  }
  return ranges;
}

TEST(CommittedIdsTest, AreWhatWasAddedAndRestored) {
  std::mt19937_64 random(1);
  std::set<uint64_t> ids;
  CommittedIds committed;
  for (uint64_t id = 1; id < 3 * kBlock; ++id) {
    if (random() % 50 == 0) continue;  // aborted
    ids.insert(id);
    committed.add(TransactionId(id), id);
  }
  EXPECT_EQ(committed.ranges(), ranges_of(ids));
  CommittedIds restored;
  restored.restore({committed.ranges(), TransactionId(7), ids.size()}, 0);
  EXPECT_EQ(restored.ranges(), committed.ranges());
  EXPECT_EQ(restored.truncated_up_to(), TransactionId(7));
  for (uint64_t id = 0; id < 4 * kBlock; ++id) {
    EXPECT_EQ(committed.contains(TransactionId(id)), ids.contains(id)) << id;
    EXPECT_EQ(restored.contains(TransactionId(id)), ids.contains(id)) << id;
  }
}

TEST(CommittedIdsTest, RangesReachOverWordsAndBlocks) {
  CommittedIds committed;
  const IdRange range{TransactionId(61), TransactionId(2 * kBlock + 64)};
  committed.restore({{range}, {}, 0}, 0);
  EXPECT_EQ(committed.ranges(), std::vector{range});
  EXPECT_FALSE(committed.contains(TransactionId(60)));
  EXPECT_FALSE(committed.contains(TransactionId(2 * kBlock + 65)));
}

TEST(CommittedIdsTest, ABlockGoesWhenItsTimeHasPassedAndItIsComplete) {
  CommittedIds committed;
  committed.add(TransactionId(5), 100);
  committed.add(TransactionId(kBlock + 5), 200);
  EXPECT_FALSE(committed.truncate(149, 50, always)) << "too soon";
  EXPECT_TRUE(committed.truncate(150, 50, always));
  EXPECT_TRUE(committed.forgotten(TransactionId(5)));
  EXPECT_TRUE(committed.forgotten(TransactionId(6))) << "whether it was committed is forgotten with its block";
  EXPECT_FALSE(committed.contains(TransactionId(5)));
  EXPECT_TRUE(committed.contains(TransactionId(kBlock + 5)));
  EXPECT_FALSE(committed.forgotten(TransactionId(kBlock + 6))) << "it was not committed";
  EXPECT_EQ(committed.truncated_up_to(), TransactionId(kBlock - 1));
}

TEST(CommittedIdsTest, AnOpenIdHoldsUpItsBlockAlone) {
  CommittedIds committed;
  for (uint64_t block = 0; block < 10; ++block) committed.add(TransactionId(block * kBlock + 1), 1);
  const TransactionId open(3 * kBlock + 7);
  const auto complete = [&](TransactionId first, TransactionId last) { return open < first || open > last; };
  EXPECT_TRUE(committed.truncate(100, 1, complete));
  EXPECT_EQ(committed.blocks(), 1u);
  EXPECT_TRUE(committed.contains(TransactionId(3 * kBlock + 1)));
  EXPECT_FALSE(committed.forgotten(open)) << "its block is there";
  EXPECT_EQ(committed.truncated_up_to(), TransactionId(10 * kBlock - 1));
}

}  // namespace
}  // namespace loam::commit
