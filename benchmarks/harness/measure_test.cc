#include "benchmarks/harness/measure.h"

#include <string>

#include <gtest/gtest.h>

namespace loam::bench {
namespace {

TEST(Samples, MedianAndQuantiles) {
  const Samples odd{{5, 1, 3}};
  EXPECT_DOUBLE_EQ(odd.median(), 3);
  const Samples even{{4, 1, 2, 3}};
  EXPECT_DOUBLE_EQ(even.median(), 2.5);
  EXPECT_DOUBLE_EQ(even.quantile(0), 1);
  EXPECT_DOUBLE_EQ(even.quantile(1), 4);
  EXPECT_DOUBLE_EQ((Samples{{10, 20, 30, 40, 50}}).spread(), 20.0 / 30);
  EXPECT_DOUBLE_EQ(Samples{}.median(), 0);
  EXPECT_DOUBLE_EQ((Samples{{7}}).spread(), 0);
}

TEST(Alternate, TakesTurnsAndReversesThem) {
  std::string order;
  const std::vector<Variant> variants = {{"a", [&] { return order += 'a', 1.0; }},
                                         {"b", [&] { return order += 'b', 2.0; }}};
  const auto samples = alternate(3, variants);
  EXPECT_EQ(order,
            "ab"
            "ab"
            "ba"
            "ab")
      << "one turn to warm up, then three";
  EXPECT_EQ(samples[0].values, (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(samples[1].values, (std::vector<double>{2, 2, 2}));
}

TEST(Ratios, AreTakenTurnByTurn) {
  const Samples a{{1, 20, 3}};
  const Samples b{{2, 10, 3}};
  EXPECT_EQ(ratio_of(a, b).values, (std::vector<double>{0.5, 2, 1}));
  const std::vector<const Samples*> probes = {&a, &b};
  EXPECT_EQ(&best_of(probes, true), &a) << "medians 3 and 3: the first";
  const Samples c{{4, 4, 100}};
  const std::vector<const Samples*> more = {&a, &b, &c};
  EXPECT_EQ(&best_of(more, true), &c);
  EXPECT_EQ(&best_of(more, false), &a);
}

TEST(HugeArena, IsAlignedZeroedAndWritable) {
  const HugeArena arena(3'000'000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.bytes().data()) % (2 * 1024 * 1024), 0u);
  ASSERT_GE(arena.bytes().size(), 3'000'000u);
  for (const std::byte byte : arena.bytes()) ASSERT_EQ(byte, std::byte{0});
  arena.bytes().back() = std::byte{1};
  EXPECT_GE(arena.huge_share(), 0.0);
  EXPECT_LE(arena.huge_share(), 1.0);
}

TEST(Clocks, GoForward) {
  const uint64_t cpu = thread_cpu_ns();
  const uint64_t wall = wall_ns();
  for (int i = 0; i < 100'000; ++i) {
    do_not_optimize(i);
  }
  EXPECT_GT(thread_cpu_ns(), cpu);
  EXPECT_GT(wall_ns(), wall);
  EXPECT_GE(usable_cores(), 1u);
}

}  // namespace
}  // namespace loam::bench
