#include "commit-manager/src/core/id_set.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace loam::commit {
namespace {

constexpr uint64_t kBlock = IdSet::kBlockIds;

std::vector<Version> listed(const IdSet& ids) {
  std::vector<Version> listed;
  ids.append_to(listed);
  return listed;
}

TEST(IdSetTest, AgreesWithAStdSet) {
  std::mt19937_64 random(1);
  IdSet ids;
  std::set<uint64_t> model;
  uint64_t newest = 0;
  for (size_t step = 0; step < 20'000; ++step) {
    if (model.empty() || random() % 1'000 < (step / 4'000 % 2 == 0 ? 600u : 400u)) {
      newest += 1 + random() % 8;
      // Most ids lie close to the newest one, some far below.
      const uint64_t id = random() % 50 == 0 ? 1 + random() % newest : newest;
      if (model.insert(id).second) ids.add(TransactionId(id));
    } else {
      auto at = model.lower_bound(random() % (newest + 1));
      if (at == model.end()) at = model.begin();
      ids.remove(TransactionId(*at));
      model.erase(at);
    }
    ASSERT_EQ(ids.size(), model.size());
    ASSERT_EQ(ids.empty(), model.empty());
    if (!model.empty()) {
      ASSERT_EQ(ids.lowest(), TransactionId(*model.begin()));
    }
    const uint64_t first = random() % (newest + kBlock), last = first + random() % (step % 2 == 0 ? 10 : 2 * kBlock);
    const auto at = model.lower_bound(first);
    ASSERT_EQ(ids.any_between(TransactionId(first), TransactionId(last)), at != model.end() && *at <= last);
    if (step % 100 != 0) continue;
    std::vector<Version> wanted;
    wanted.reserve(model.size());
    for (const uint64_t id : model) wanted.push_back(Version(id));
    ASSERT_EQ(listed(ids), wanted);
  }
}

TEST(IdSetTest, KeepsNoBlockWithoutAnId) {
  IdSet ids;
  for (uint64_t id = 1; id < 100 * kBlock; ++id) ids.add(TransactionId(id));
  EXPECT_EQ(ids.blocks(), 100u);
  for (uint64_t id = 2; id < 100 * kBlock; ++id) ids.remove(TransactionId(id));
  EXPECT_EQ(ids.blocks(), 1u);
  EXPECT_EQ(listed(ids), std::vector{Version(1)});
  EXPECT_FALSE(ids.any_between(TransactionId(2), TransactionId(UINT64_MAX)));
  ids.remove(TransactionId(1));
  EXPECT_TRUE(ids.empty());
  EXPECT_EQ(ids.blocks(), 0u);
}

TEST(IdSetTest, RangesIncludeBothEnds) {
  IdSet ids;
  ids.add(TransactionId(kBlock - 1));
  ids.add(TransactionId(3 * kBlock));
  EXPECT_TRUE(ids.any_between(TransactionId(0), TransactionId(kBlock - 1)));
  EXPECT_FALSE(ids.any_between(TransactionId(0), TransactionId(kBlock - 2)));
  EXPECT_FALSE(ids.any_between(TransactionId(kBlock), TransactionId(3 * kBlock - 1)));
  EXPECT_TRUE(ids.any_between(TransactionId(kBlock), TransactionId(3 * kBlock)));
  EXPECT_TRUE(ids.any_between(TransactionId(3 * kBlock), TransactionId(3 * kBlock)));
  EXPECT_EQ(ids.lowest(), TransactionId(kBlock - 1));
}

}  // namespace
}  // namespace loam::commit
