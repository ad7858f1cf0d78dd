#include "common/memory/page_pool.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam {
namespace {

using testing::Random;
using testing::test_seed;

constexpr size_t kPage = size_t{64} << 10;

PagePoolOptions small_options(size_t pages = 16) {
  PagePoolOptions options;
  options.page_size_bytes = kPage;
  options.limit_bytes = pages * kPage;
  return options;
}

std::unique_ptr<PagePool> small_pool(size_t pages = 16) {
  auto pool = PagePool::create(small_options(pages));
  EXPECT_TRUE(pool.ok()) << pool.status().to_string();
  return std::move(pool).value();
}

bool all_zero(const std::byte* block, size_t size) {
  return std::all_of(block, block + size, [](std::byte b) { return b == std::byte{0}; });
}

TEST(PagePool, BlocksAreZeroedAlignedAndDisjoint) {
  auto pool = small_pool();
  std::vector<std::pair<std::byte*, size_t>> blocks;
  for (size_t size = PagePool::kMinBlockBytes; size <= kPage; size *= 2) {
    for (int i = 0; i < 3; ++i) {
      std::byte* block = pool->allocate(size, Reserve::kWrite);
      ASSERT_NE(block, nullptr);
      EXPECT_EQ(reinterpret_cast<size_t>(block) % size, 0u);
      EXPECT_TRUE(pool->owns(block));
      EXPECT_TRUE(all_zero(block, size));
      std::memset(block, 0xee, size);
      blocks.emplace_back(block, size);
    }
  }
  std::sort(blocks.begin(), blocks.end());
  for (size_t i = 1; i < blocks.size(); ++i) EXPECT_LE(blocks[i - 1].first + blocks[i - 1].second, blocks[i].first);
  pool->check_invariants();
  for (const auto& [block, size] : blocks) pool->release(block, size);
  pool->check_invariants();
  EXPECT_EQ(pool->statistics().used_bytes, 0u);
  EXPECT_EQ(pool->statistics().pages_in_use, 0u);
  EXPECT_EQ(pool->statistics().inline_zeroed_bytes, 0u);
}

TEST(PagePool, EachReserveReachesFurther) {
  auto pool = small_pool(100);
  std::vector<std::byte*> blocks;
  size_t before = 0;
  const size_t expected[] = {88, 92, 96, 100};
  EXPECT_EQ(pool->statistics().write_limit_bytes, 88 * kPage);
  for (size_t i = 0; i < kReserveClasses; ++i) {
    const auto reserve = static_cast<Reserve>(i);
    EXPECT_EQ(pool->free_pages(reserve), expected[i] - before);
    while (std::byte* block = pool->allocate(kPage, reserve)) blocks.push_back(block);
    EXPECT_FALSE(pool->has_page(reserve));
    EXPECT_GT(blocks.size(), before);
    EXPECT_EQ(blocks.size(), expected[i]);
    before = blocks.size();
  }
  EXPECT_GE(pool->fill(), 1.0);
  EXPECT_EQ(pool->statistics().refused, kReserveClasses);
  pool->release(blocks.back(), kPage);
  EXPECT_EQ(pool->allocate(kPage, Reserve::kWrite), nullptr);
  blocks.back() = pool->allocate(kPage, Reserve::kCompactor);
  EXPECT_NE(blocks.back(), nullptr);
  for (std::byte* block : blocks) pool->release(block, kPage);
  pool->check_invariants();
}

TEST(PagePool, TheSmallestPoolHasARealReserveForEachClass) {
  auto pool = small_pool(PagePool::kMinPages);
  std::vector<std::byte*> blocks;
  size_t before = 0;
  for (size_t i = 0; i < kReserveClasses; ++i) {
    while (std::byte* block = pool->allocate(kPage, static_cast<Reserve>(i))) blocks.push_back(block);
    EXPECT_GT(blocks.size(), before);
    before = blocks.size();
  }
  EXPECT_EQ(blocks.size(), PagePool::kMinPages);
  for (std::byte* block : blocks) pool->release(block, kPage);
}

TEST(PagePool, SmallBlocksCannotFragmentAReserve) {
  auto pool = small_pool(16);
  // Writes allocate all small blocks that they may, and free every second one. So no page of theirs is wholly free.
  std::vector<std::byte*> blocks;
  while (std::byte* block = pool->allocate(PagePool::kMinBlockBytes, Reserve::kWrite)) blocks.push_back(block);
  for (size_t i = 0; i < blocks.size(); i += 2) pool->release(blocks[i], PagePool::kMinBlockBytes);
  EXPECT_EQ(pool->allocate(kPage, Reserve::kWrite), nullptr);
  std::byte* page = pool->allocate(kPage, Reserve::kCompactor);
  EXPECT_NE(page, nullptr);
  pool->release(page, kPage);
  for (size_t i = 1; i < blocks.size(); i += 2) pool->release(blocks[i], PagePool::kMinBlockBytes);
  pool->check_invariants();
  EXPECT_EQ(pool->statistics().pages_in_use, 0u);
}

TEST(PagePool, OtherClassesCannotUseAPageThatAReserveOpened) {
  auto pool = small_pool(16);
  constexpr size_t kBlock = PagePool::kMinBlockBytes;
  Random random(test_seed(1));
  std::vector<std::byte*> blocks;
  const auto fill = [&] {
    size_t taken = 0;
    for (; std::byte* const block = pool->allocate(kBlock, Reserve::kWrite); ++taken) blocks.push_back(block);
    return taken;
  };
  const size_t most = fill();
  // Imitates the compactor: it moves the live entries of two random blocks to a new one, and frees the two. After each
  // step, writes allocate all blocks that they may.
  for (int job = 0; job < 5'000; ++job) {
    std::byte* const target = pool->allocate(kBlock, Reserve::kCompactor);
    ASSERT_NE(target, nullptr) << "job " << job;
    ASSERT_EQ(fill(), 0u) << "job " << job << ": writes allocate memory that the compactor needs next";
    for (int source = 0; source < 2; ++source) {
      std::swap(blocks[random.below(blocks.size())], blocks.back());
      pool->release(blocks.back(), kBlock);
      blocks.pop_back();
    }
    blocks.push_back(target);
    ASSERT_EQ(fill(), 1u) << "job " << job << ": writes cannot use the memory that the compactor has freed";
  }
  EXPECT_EQ(blocks.size(), most);
  for (std::byte* const block : blocks) pool->release(block, kBlock);
  pool->check_invariants();
}

TEST(PagePool, BackgroundZeroingSparesAllocations) {
  auto pool = small_pool(8);
  for (int round = 0; round < 20; ++round) {
    std::byte* page = pool->allocate(kPage, Reserve::kWrite);
    ASSERT_NE(page, nullptr);
    ASSERT_TRUE(all_zero(page, kPage));
    std::memset(page, 0xff, kPage);
    pool->release(page, kPage);
    EXPECT_EQ(pool->statistics().dirty_bytes, kPage);
    int steps = 1;
    while (pool->zero_step(PagePool::kMinBlockBytes)) ++steps;
    EXPECT_GT(steps, 1);
    EXPECT_EQ(pool->statistics().dirty_bytes, 0u);
    pool->check_invariants();
  }
  EXPECT_EQ(pool->statistics().inline_zeroed_bytes, 0u);
  EXPECT_EQ(pool->statistics().high_watermark_bytes, kPage);
}

TEST(PagePool, AllocationZeroesAndCountsIfNoZeroedBlockIsLeft) {
  auto pool = small_pool(8);
  std::vector<std::byte*> pages;
  while (std::byte* page = pool->allocate(kPage, Reserve::kCompactor)) pages.push_back(page);
  for (std::byte* page : pages) {
    std::memset(page, 0xff, kPage);
    pool->release(page, kPage);
  }
  EXPECT_EQ(pool->statistics().ready_pages, 0u);
  std::byte* page = pool->allocate(kPage, Reserve::kWrite);
  EXPECT_TRUE(all_zero(page, kPage));
  EXPECT_EQ(pool->statistics().inline_zeroed_bytes, kPage);
  pool->release(page, kPage);
}

TEST(PagePool, UninitializedAllocationsPreferDirtyBlocks) {
  auto pool = small_pool(8);
  std::byte* const used = pool->allocate(kPage, Reserve::kWrite);
  std::memset(used, 0xff, kPage);
  pool->release(used, kPage);
  const size_t ready = pool->statistics().ready_pages;
  EXPECT_FALSE(pool->zero_step(kPage, ready)) << "enough pages are zeroed";
  EXPECT_EQ(pool->statistics().dirty_bytes, kPage);
  std::byte* const again = pool->allocate(kPage, Reserve::kWrite, BlockContents::kUninitialized);
  EXPECT_EQ(again, used);
  EXPECT_EQ(pool->statistics().ready_pages, ready) << "the allocation used a zeroed page, although it needs no zeroes";
  EXPECT_EQ(pool->statistics().dirty_bytes, 0u);
  EXPECT_EQ(pool->statistics().inline_zeroed_bytes, 0u);
  pool->release(again, kPage);
  EXPECT_TRUE(pool->zero_step(PagePool::kMinBlockBytes, ready + 1));
  pool->check_invariants();
}

TEST(PagePool, RandomUseAgainstAModel) {
  const uint64_t seed = test_seed(20240601);
  Random random(seed);
  auto pool = small_pool(16);
  std::map<std::byte*, std::pair<size_t, uint8_t>> model;
  for (int i = 0; i < 20'000; ++i) {
    if (random.below(100) < 52) {
      const size_t size = PagePool::kMinBlockBytes << random.below(5);
      const BlockContents contents = random.one_in(2) ? BlockContents::kZeroed : BlockContents::kUninitialized;
      std::byte* block = pool->allocate(size, static_cast<Reserve>(random.below(kReserveClasses)), contents);
      if (block == nullptr) continue;
      if (contents == BlockContents::kZeroed) {
        ASSERT_TRUE(all_zero(block, size));
      }
      const auto mark = static_cast<uint8_t>(1 + random.below(255));
      std::memset(block, mark, size);
      ASSERT_TRUE(model.emplace(block, std::pair(size, mark)).second);
    } else if (!model.empty()) {
      auto victim = model.lower_bound(model.begin()->first + random.below(16 * kPage));
      if (victim == model.end()) victim = model.begin();
      const auto [size, mark] = victim->second;
      ASSERT_TRUE(std::all_of(victim->first, victim->first + size, [&](std::byte b) { return b == std::byte{mark}; }));
      pool->release(victim->first, size);
      model.erase(victim);
    }
    if (random.one_in(20)) pool->zero_step(random.below(kPage), random.below(8));
    if (i % 500 == 0) pool->check_invariants();
  }
  for (const auto& [block, entry] : model) pool->release(block, entry.first);
  pool->check_invariants();
  EXPECT_EQ(pool->statistics().pages_in_use, 0u);
}

TEST(PagePool, ConcurrentThreadsGetDisjointBlocks) {
  auto pool = small_pool(64);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Random random(static_cast<uint64_t>(t) + 1);
      for (int i = 0; i < 2000; ++i) {
        const size_t size = PagePool::kMinBlockBytes << random.below(5);
        std::byte* block = pool->allocate(size, Reserve::kWrite);
        if (block == nullptr) continue;
        EXPECT_EQ(block[0], std::byte{0});
        EXPECT_EQ(block[size - 1], std::byte{0});
        std::memset(block, t + 1, size);
        EXPECT_EQ(block[size / 2], std::byte(t + 1));
        pool->release(block, size);
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; i < 2000; ++i) pool->zero_step(kPage);
  });
  for (std::thread& thread : threads) thread.join();
  pool->check_invariants();
  EXPECT_EQ(pool->statistics().used_bytes, 0u);
}

TEST(PagePool, SaysWhatIsWrongWithItsOptions) {
  PagePoolOptions options = small_options(PagePool::kMinPages - 1);
  auto refused = PagePool::create(options);
  EXPECT_EQ(refused.code(), StatusCode::kNoSpace);
  EXPECT_NE(refused.status().message().find("raise the memory limit"), std::string_view::npos);

  options = small_options();
  options.page_size_bytes = 5000;
  EXPECT_EQ(PagePool::create(options).code(), StatusCode::kInvalidArgument);

  options = small_options();
  options.limit_shares = {0.9, 0.8, 0.95, 1.0};
  EXPECT_EQ(PagePool::create(options).code(), StatusCode::kInvalidArgument);

  options = PagePoolOptions();
  options.limit_bytes = size_t{1} << 43;  // 8 TiB: no machine that runs this test has them
  refused = PagePool::create(options);
  EXPECT_EQ(refused.code(), StatusCode::kNoSpace);
  EXPECT_NE(refused.status().message().find("8388608.0 MiB"), std::string_view::npos) << refused.status().to_string();
  EXPECT_NE(refused.status().message().find("lower the memory limit"), std::string_view::npos);
}

TEST(PagePoolDeathTest, RefusesAForeignOrRepeatedRelease) {
  auto pool = small_pool();
  std::byte* block = pool->allocate(PagePool::kMinBlockBytes, Reserve::kWrite);
  EXPECT_DEATH(pool->release(block, 2 * PagePool::kMinBlockBytes), "allocated here with this size");
  pool->release(block, PagePool::kMinBlockBytes);
  EXPECT_DEATH(pool->release(block, PagePool::kMinBlockBytes), "not released before");
  std::byte foreign{};
  EXPECT_DEATH(pool->release(&foreign, PagePool::kMinBlockBytes), "belongs to this pool");
}

#ifdef __SANITIZE_ADDRESS__
TEST(PagePoolDeathTest, UseAfterReleaseIsReportedUnderASan) {
  auto pool = small_pool();
  std::byte* block = pool->allocate(PagePool::kMinBlockBytes, Reserve::kWrite);
  pool->release(block, PagePool::kMinBlockBytes);
  EXPECT_DEATH(block[100] = std::byte{1}, "use-after-poison");
}
#endif

}  // namespace
}  // namespace loam
