#include "storage-node/src/scan/kernels.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/random.h"

namespace loam::storage {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(), kHighest = std::numeric_limits<int64_t>::max();

struct alignas(64) Column {
  int64_t keys[kBlockRows];
};

/// Numbers that are often equal, or lie at the ends of the range.
int64_t number(testing::Random& random) {
  switch (random.below(4)) {
    case 0:
      return random.one_in(2) ? kLowest : kHighest;
    case 1:
      return static_cast<int64_t>(random());
    default:
      return static_cast<int64_t>(random.below(9)) - 4;
  }
}

RowMask mask(testing::Random& random) {
  RowMask rows;
  for (size_t w = 0; w < RowMask::kWords; ++w) rows.words[w] = random.one_in(4) ? 0 : random() & random();
  return rows;
}

TEST(Kernels, EveryVariantGivesTheReferencesResults) {
  testing::Random random(testing::test_seed(std::random_device()()));
  const Kernels& plain = all_kernels().front();
  ASSERT_STREQ(plain.name, "plain");
  ASSERT_GE(all_kernels().size(), 2u) << "AVX2 is in the base";
  for (int round = 0; round < 2'000; ++round) {
    Column column;
    for (int64_t& key : column.keys) key = number(random);
    const auto* const words = reinterpret_cast<const uint64_t*>(column.keys);
    const int64_t low = number(random), high = number(random);
    const RowMask rows = mask(random);
    for (const Kernels& k : all_kernels().subspan(1)) {
      ASSERT_EQ(k.in_range(column.keys, low, high), plain.in_range(column.keys, low, high)) << k.name;
      ASSERT_EQ(k.at_most(words, static_cast<uint64_t>(low)), plain.at_most(words, static_cast<uint64_t>(low)))
          << k.name;
      ASSERT_EQ(k.sum(column.keys, rows), plain.sum(column.keys, rows)) << k.name;
      ASSERT_EQ(k.min(column.keys, rows), plain.min(column.keys, rows)) << k.name;
      ASSERT_EQ(k.max(column.keys, rows), plain.max(column.keys, rows)) << k.name;
    }
  }
}

TEST(Kernels, EveryVariantLocatesAsTheReference) {
  testing::Random random(testing::test_seed(std::random_device()()));
  const Kernels& plain = all_kernels().front();
  for (int round = 0; round < 2'000; ++round) {
    const auto shift = static_cast<unsigned>(random.below(61));
    std::vector<uint64_t> elements(8);
    for (uint64_t& element : elements) element = random();
    Column column;
    for (int64_t& key : column.keys) key = number(random);
    const int64_t lowest = std::min(number(random), kHighest - (int64_t{1} << shift));
    const auto width = static_cast<int64_t>(random.below(uint64_t{4} << shift));
    const int64_t highest = lowest > kHighest - width ? kHighest : lowest + width;
    const IntervalBuckets buckets{elements.data(), lowest, highest, shift};
    alignas(64) uint64_t expected[kBlockRows], found[kBlockRows];
    const RowMask crowded = plain.locate(column.keys, buckets, expected);
    for (const Kernels& k : all_kernels().subspan(1)) {
      ASSERT_EQ(k.locate(column.keys, buckets, found), crowded) << k.name;
      ASSERT_TRUE(std::ranges::equal(found, expected)) << k.name;
    }
  }
}

TEST(Kernels, TheReferenceByHand) {
  Column column{};
  column.keys[3] = 7;
  column.keys[255] = -2;
  const Kernels& plain = all_kernels().front();
  RowMask rows;
  EXPECT_EQ(plain.min(column.keys, rows), kHighest);
  EXPECT_EQ(plain.max(column.keys, rows), kLowest);
  rows.set(3);
  rows.set(255);
  EXPECT_EQ(plain.sum(column.keys, rows), 5);
  EXPECT_EQ(plain.min(column.keys, rows), -2);
  EXPECT_EQ(plain.max(column.keys, rows), 7);
  EXPECT_EQ(plain.in_range(column.keys, 1, 7).count(), 1u);
  EXPECT_EQ(plain.in_range(column.keys, -2, 0).count(), 255u);
  EXPECT_EQ(plain.at_most(reinterpret_cast<const uint64_t*>(column.keys), 0).count(), 254u);
}

TEST(RowMask, ModelOfASet) {
  testing::Random random(testing::test_seed(std::random_device()()));
  for (size_t n = 0; n <= kBlockRows; ++n) {
    const RowMask first = RowMask::first(n);
    EXPECT_EQ(first.count(), n);
    EXPECT_EQ(first.any(), n != 0);
    if (n != 0) {
      EXPECT_TRUE(first.test(n - 1));
    }
  }
  for (int round = 0; round < 200; ++round) {
    const RowMask a = mask(random), b = mask(random);
    RowNumbers numbers;
    const size_t n = a.numbers(numbers.data());
    ASSERT_EQ(n, a.count());
    for (size_t i = 0; i < n; ++i) ASSERT_TRUE(a.test(numbers[i]) && (i == 0 || numbers[i - 1] < numbers[i]));
    if (n != 0) {
      ASSERT_EQ(a.front(), numbers[0]);
    }
    for (size_t row = 0; row < kBlockRows; ++row) {
      ASSERT_EQ((a & b).test(row), a.test(row) && b.test(row));
      ASSERT_EQ((a | b).test(row), a.test(row) || b.test(row));
      ASSERT_EQ((a - b).test(row), a.test(row) && !b.test(row));
      ASSERT_EQ(a.filter([](size_t r) { return r % 3 == 0; }).test(row), a.test(row) && row % 3 == 0);
    }
  }
}

}  // namespace
}  // namespace loam::storage
