#include "common/fiber/stack.h"

#include <cstring>

#include <gtest/gtest.h>

#include "common/fiber/scheduler.h"

namespace loam::fiber {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

TEST(Stack, IsRoundedUpAndUsableToItsEnds) {
  const Stack stack = map_stack(1);
  ASSERT_TRUE(stack);
  EXPECT_EQ(stack.size_bytes, kMinStackBytes);
  std::memset(stack.bottom, 0x5a, stack.size_bytes);
  EXPECT_EQ(static_cast<int>(stack.top()[-1]), 0x5a);
  unmap_stack(stack);
}

TEST(StackDeathTest, GuardPageStopsTheFirstByteBelow) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer has signal handlers of its own";
  const Stack stack = map_stack(kMinStackBytes);
  ASSERT_TRUE(stack);
  volatile std::byte* below = stack.bottom - 1;
  EXPECT_EXIT(*below = std::byte{1}, testing::KilledBySignal(SIGSEGV), "");
  unmap_stack(stack);
}

// A frame of 1 KiB a call; the result keeps the compiler from making a loop of it.
[[gnu::noinline]] int recurse(int depth) {
  volatile char frame[1024];
  frame[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : recurse(depth - 1) + frame[0];
}

TEST(StackDeathTest, OverflowOfAFiberKillsTheProcessInsteadOfItsNeighbours) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer has signal handlers of its own";
  EXPECT_EXIT(
      {
        FiberScheduler scheduler;
        static_cast<void>(scheduler.spawn([] { std::exit(recurse(1'000)); }));
        scheduler.run_round(0);
        std::exit(0);
      },
      testing::KilledBySignal(SIGSEGV), "");
}

TEST(Stack, HoldsWhatTheOptionSays) {
  SchedulerOptions options;
  options.stack_bytes = 1024 * 1024;
  FiberScheduler scheduler(options);
  int seen = -1;
  ASSERT_TRUE(scheduler.spawn([&] { seen = recurse(500); }).ok());
  scheduler.run_round(0);
  EXPECT_NE(seen, -1);
}

}  // namespace
}  // namespace loam::fiber
