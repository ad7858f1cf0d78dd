#include "common/fiber/stack.h"

#include <csignal>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "common/base/sanitizer.h"
#include "common/fiber/scheduler.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace loam::fiber {
namespace {

TEST(Stack, IsRoundedUpAndUsableToItsEnds) {
  const Stack stack = map_stack(1);
  ASSERT_TRUE(stack);
  EXPECT_EQ(stack.size_bytes, kMinStackBytes);
  std::memset(stack.bottom, 0x5a, stack.size_bytes);
  EXPECT_EQ(static_cast<int>(stack.top()[-1]), 0x5a);
  unmap_stack(stack);
}

TEST(StackDeathTest, GuardStopsWritesToItsLastByte) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer has signal handlers of its own";
  const Stack stack = map_stack(kMinStackBytes);
  // The system places the next mapping below the first one, as it does with the stacks of fibers. So the memory below
  // the guard is writable, and only the guard can stop the writes.
  const Stack neighbour = map_stack(size_t{1} << 20);
  ASSERT_TRUE(stack);
  ASSERT_TRUE(neighbour);
  for (const size_t below : {1, 4096, 4097, 32 * 1024, 64 * 1024}) {
    volatile std::byte* byte = stack.bottom - below;
    EXPECT_EXIT(*byte = std::byte{1}, testing::KilledBySignal(SIGSEGV), "") << below << " bytes below the stack";
  }
  unmap_stack(stack);
  unmap_stack(neighbour);
}

// Acts like a function with a frame of 48 KiB that was compiled without stack-clash protection and writes the lowest
// byte of its frame first. A guard of one page would not stop this write.
[[gnu::noinline]] void write_far_below() {
  auto* const here = static_cast<volatile char*>(__builtin_frame_address(0));
  here[-48 * 1024] = 1;
}

TEST(StackDeathTest, GuardStopsALargeFrameOfUnprotectedCode) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer has signal handlers of its own";
  EXPECT_EXIT(
      {
        SchedulerOptions options;
        options.stack_bytes = 32 * 1024;
        FiberScheduler scheduler(options);
        static_cast<void>(scheduler.spawn([] {
          write_far_below();
          std::exit(0);
        }));
        static_cast<void>(scheduler.spawn([] {}));  // its stack lies below the first one
        static_cast<void>(scheduler.spawn([] {}));
        scheduler.run_round(0);
        std::exit(0);
      },
      testing::KilledBySignal(SIGSEGV), "");
}

TEST(Stack, DeepestUseEndsAtTheLowestNonZeroWord) {
  const Stack stack = map_stack(64 * 1024);
  ASSERT_TRUE(stack);
  EXPECT_EQ(used_stack_bytes(stack), 0u);
  stack.top()[-1] = std::byte{1};
  EXPECT_EQ(used_stack_bytes(stack), 8u);
  stack.top()[-20'000] = std::byte{1};
  EXPECT_EQ(used_stack_bytes(stack), 20'000u);
  stack.top()[-40'000] = std::byte{0};  // touched, but still zero
  EXPECT_EQ(used_stack_bytes(stack), 20'000u);
  std::memset(stack.bottom, 0x5a, stack.size_bytes);
  EXPECT_EQ(used_stack_bytes(stack), stack.size_bytes);
  unmap_stack(stack);
}

// Uses a frame of 1 KiB for each call. The sum of the result keeps the compiler from turning the recursion into a loop.
[[gnu::noinline]] int recurse(int depth) {
  volatile char frame[1024];
  frame[0] = static_cast<char>(depth);
  return depth == 0 ? 0 : recurse(depth - 1) + frame[0];
}

TEST(StackDeathTest, OverflowOfAFiberEndsTheProcess) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer has signal handlers of its own";
  EXPECT_EXIT(
      {
        FiberScheduler scheduler;
        static_cast<void>(scheduler.spawn([] { std::exit(recurse(1'000)); }));
        scheduler.run_round(0);
        std::exit(0);
      },
      testing::KilledBySignal(SIGSEGV), "stack of 65536 bytes has overflowed.*fiber_stack_bytes");
}

TEST(StackDeathTest, OtherFaultsOfAFiberAreNotReportedAsOverflows) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer has signal handlers of its own";
  EXPECT_EXIT(
      {
        FiberScheduler scheduler;
        static_cast<void>(scheduler.spawn([] { *static_cast<volatile int*>(nullptr) = 1; }));
        scheduler.run_round(0);
        std::exit(0);
      },
      testing::KilledBySignal(SIGSEGV), "^$");
}

bool standard_handler() {
  struct sigaction present{};
  sigaction(SIGSEGV, nullptr, &present);
  return (present.sa_flags & SA_SIGINFO) == 0 && present.sa_handler == SIG_DFL;
}

TEST(Stack, LastSchedulerRemovesTheSigsegvHandler) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer has signal handlers of its own";
  ASSERT_TRUE(standard_handler());
  {
    const FiberScheduler scheduler;
    std::thread other([] {
      const FiberScheduler another;
      EXPECT_FALSE(standard_handler());
    });
    other.join();
    EXPECT_FALSE(standard_handler()) << "this scheduler still needs the handler";
  }
  EXPECT_TRUE(standard_handler());
}

TEST(Stack, SchedulersKeepASigsegvHandlerOfTheProgram) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer has signal handlers of its own";
  struct sigaction own{};
  own.sa_handler = [](int) { std::_Exit(1); };
  struct sigaction before{};
  ASSERT_EQ(sigaction(SIGSEGV, &own, &before), 0);
  {
    const FiberScheduler scheduler;
    struct sigaction present{};
    sigaction(SIGSEGV, nullptr, &present);
    EXPECT_EQ(present.sa_handler, own.sa_handler);
  }
  struct sigaction after{};
  sigaction(SIGSEGV, &before, &after);
  EXPECT_EQ(after.sa_handler, own.sa_handler);
}

TEST(Stack, HasTheSizeOfTheOption) {
  SchedulerOptions options;
  options.stack_bytes = 1024 * 1024;
  FiberScheduler scheduler(options);
  int seen = -1;
  ASSERT_TRUE(scheduler.spawn([&] { seen = recurse(500); }).ok());
  scheduler.run_round(0);
  EXPECT_NE(seen, -1);
}

TEST(Stack, SchedulerReportsTheDeepestUseOfEndedFibers) {
  SchedulerOptions options;
  options.stack_bytes = 1024 * 1024;
  FiberScheduler scheduler(options);
  for (const int depth : {10, 200, 20}) {
    ASSERT_TRUE(scheduler.spawn([depth] { static_cast<void>(recurse(depth)); }).ok());
  }
  scheduler.run_round(0);
  EXPECT_GE(scheduler.stack_high_watermark_bytes(), size_t{200} * 1024);
  EXPECT_LE(scheduler.stack_high_watermark_bytes(), size_t{400} * 1024);  // frames are larger under a sanitizer
}

#ifdef __SANITIZE_ADDRESS__
constexpr size_t kLocalBytes = 100;

[[gnu::noinline]] void throws_with_a_local_array(char*& where) {
  char local[kLocalBytes] = {};
  where = local;
  throw 1;
}

TEST(Stack, UnwoundFramesAreUnpoisoned) {
  FiberScheduler scheduler;
  char* frame = nullptr;
  ASSERT_TRUE(scheduler
                  .spawn([&] {
                    try {
                      throws_with_a_local_array(frame);
                    } catch (const int&) {
                      EXPECT_EQ(__asan_region_is_poisoned(frame, 2 * kLocalBytes), nullptr)
                          << "AddressSanitizer would report later frames at this address";
                    }
                  })
                  .ok());
  scheduler.run_round(0);
  EXPECT_NE(frame, nullptr);
}
#endif

}  // namespace
}  // namespace loam::fiber
