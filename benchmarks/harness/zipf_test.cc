#include "benchmarks/harness/zipf.h"

#include <vector>

#include <gtest/gtest.h>

namespace loam::bench {
namespace {

TEST(Zipf, DrawsRanksWithExpectedProbability) {
  constexpr uint64_t kRanks = 1'000, kDraws = 200'000;
  const Zipf zipf(kRanks, 0.99);
  std::vector<uint64_t> drawn(kRanks);
  // Every part of [0, 1) alike: no chance, and no seed.
  for (uint64_t i = 0; i < kDraws; ++i) ++drawn[zipf.rank((static_cast<double>(i) + 0.5) / kDraws)];
  const auto share = [&](uint64_t from, uint64_t to) {
    double sum = 0;
    for (uint64_t rank = from; rank < to; ++rank) sum += static_cast<double>(drawn[rank]) / kDraws;
    return sum;
  };
  const auto expected = [&](uint64_t from, uint64_t to) {
    double sum = 0;
    for (uint64_t rank = from; rank < to; ++rank) sum += zipf.probability(rank);
    return sum;
  };
  EXPECT_NEAR(expected(0, kRanks), 1, 1e-9);
  EXPECT_NEAR(share(0, 1), expected(0, 1), 1e-4);
  EXPECT_NEAR(share(1, 2), expected(1, 2), 1e-4);
  // The approximation gives the third too much (a sixth more), and is right on the whole.
  for (const uint64_t end : {10, 100, 500, 1'000}) EXPECT_NEAR(share(0, end), expected(0, end), 0.02) << end;
}

TEST(Zipf, TheEndsOfTheRangeAreRanks) {
  const Zipf zipf(2, 0.5);
  EXPECT_EQ(zipf.rank(0), 0u);
  EXPECT_EQ(zipf.rank(0.9999999999999999), 1u);
  EXPECT_EQ(Zipf(1'000'000, 0.99).rank(0.9999999999999999), 999'999u);
}

}  // namespace
}  // namespace loam::bench
