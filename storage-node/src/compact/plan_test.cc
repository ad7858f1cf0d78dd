#include "storage-node/src/compact/plan.h"

#include <numeric>

#include <gtest/gtest.h>

#include "common/testing/random.h"
#include "storage-node/src/log/page.h"

namespace loam::storage {
namespace {

constexpr size_t kPage = 65536;

bool place(std::span<const uint32_t> entries, std::span<const size_t> pages) {
  size_t page = 0;
  size_t filled = 0;
  for (const uint32_t size : entries) {
    while (page < pages.size() && filled + size > pages[page] - Page::kHeaderBytes) ++page, filled = 0;
    if (page == pages.size()) return false;
    filled += size;
  }
  return true;
}

TEST(PlanTest, NothingNeedsNothing) { EXPECT_TRUE(plan_targets({}, kPage).empty()); }

TEST(PlanTest, SmallRestsGetSmallPages) {
  EXPECT_EQ(plan_targets(std::vector<uint32_t>(10, 96), kPage), (std::vector<size_t>{4096}));
  EXPECT_EQ(plan_targets(std::vector<uint32_t>(100, 96), kPage), (std::vector<size_t>{8192, 4096}));
  EXPECT_EQ(plan_targets(std::vector<uint32_t>(160, 96), kPage), (std::vector<size_t>{16384}));
}

TEST(PlanTest, TheEntriesAndEveryPartOfThemFit) {
  testing::Random random(testing::test_seed(1));
  for (int round = 0; round < 2000; ++round) {
    std::vector<uint32_t> entries(random.below(300));
    const uint64_t largest = random.one_in(4) ? (kPage - Page::kHeaderBytes) / 16 : 64;
    for (uint32_t& size : entries) size = static_cast<uint32_t>(16 * random.between(3, largest));
    const std::vector<size_t> pages = plan_targets(entries, kPage);
    ASSERT_TRUE(place(entries, pages));
    const size_t bytes = std::accumulate(entries.begin(), entries.end(), size_t{0});
    const size_t planned = std::accumulate(pages.begin(), pages.end(), size_t{0});
    if (largest == 64) {
      ASSERT_LE(planned, bytes * 3 / 2 + 2 * Page::kMinPageBytes);
    }
    std::erase_if(entries, [&](uint32_t) { return random.one_in(3); });
    ASSERT_TRUE(place(entries, pages)) << "after some became garbage";
  }
}

}  // namespace
}  // namespace loam::storage
