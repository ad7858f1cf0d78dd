#include "common/base/word128.h"

#include <thread>

#include <gtest/gtest.h>

#include "common/base/env.h"

namespace loam {
namespace {

TEST(AtomicWord128, CompareExchangeSeesBothHalves) {
  Env::AtomicWord128 word(Word128{1, 2});
  Word128 expected{1, 3};
  EXPECT_FALSE(word.compare_exchange(expected, {5, 6}));
  EXPECT_EQ(expected, (Word128{1, 2}));
  EXPECT_TRUE(word.compare_exchange(expected, {5, 6}));
  EXPECT_EQ(word.load_both(), (Word128{5, 6}));
}

TEST(AtomicWord128, HalvesNeverTear) {
  Env::AtomicWord128 word;
  constexpr uint64_t kRounds = 100'000;
  auto add = [&] {
    for (uint64_t i = 0; i < kRounds; ++i) {
      Word128 seen = word.load_both();
      while (!word.compare_exchange(seen, {seen.low + 1, ~(seen.low + 1)}))
        ASSERT_TRUE(seen.low == 0 || seen.high == ~seen.low);
    }
  };
  std::thread other(add);
  add();
  other.join();
  EXPECT_EQ(word.load_both().low, 2 * kRounds);
}

TEST(AtomicWord128, AcquireLoadOfEitherHalfPairsWithTheSwap) {
  for (const bool high : {false, true}) {
    Env::AtomicWord128 word;
    int published = 0;  // not atomic: ThreadSanitizer reports a race if the load does not pair with the swap
    std::thread writer([&] {
      published = 1;
      Word128 expected{};
      ASSERT_TRUE(word.compare_exchange(expected, {1, 1}));
    });
    const auto half = [&] {
      return high ? word.load_high(std::memory_order_acquire) : word.load_low(std::memory_order_acquire);
    };
    while (half() == 0) std::this_thread::yield();
    EXPECT_EQ(published, 1);
    writer.join();
  }
}

}  // namespace
}  // namespace loam
