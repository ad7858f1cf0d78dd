#include "common/base/dword.h"

#include <thread>

#include <gtest/gtest.h>

#include "common/base/env.h"

namespace loam {
namespace {

TEST(AtomicDword, CompareExchangeSeesBothHalves) {
  Env::AtomicDword word(Dword{1, 2});
  Dword expected{1, 3};
  EXPECT_FALSE(word.compare_exchange(expected, {5, 6}));
  EXPECT_EQ(expected, (Dword{1, 2}));
  EXPECT_TRUE(word.compare_exchange(expected, {5, 6}));
  EXPECT_EQ(word.load_both(), (Dword{5, 6}));
}

TEST(AtomicDword, HalvesNeverTear) {
  Env::AtomicDword word;
  constexpr uint64_t kRounds = 100'000;
  auto add = [&] {
    for (uint64_t i = 0; i < kRounds; ++i) {
      Dword seen = word.load_both();
      while (!word.compare_exchange(seen, {seen.low + 1, ~(seen.low + 1)}))
        ASSERT_TRUE(seen.low == 0 || seen.high == ~seen.low);
    }
  };
  std::thread other(add);
  add();
  other.join();
  EXPECT_EQ(word.load_both().low, 2 * kRounds);
}

TEST(AtomicDword, EitherHalfShowsWhatCameBeforeTheSwap) {
  for (const bool high : {false, true}) {
    Env::AtomicDword word;
    int published = 0;  // for ThreadSanitizer to judge
    std::thread writer([&] {
      published = 1;
      Dword expected{};
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
