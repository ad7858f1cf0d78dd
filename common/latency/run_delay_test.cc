// Tests of the run delay on a real scheduler.
#include "common/latency/run_delay.h"

#include <atomic>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>

#include "common/base/env.h"

namespace loam::latency {
namespace {

/// Binds the calling thread, and the threads that it starts, to one core.
void bind_to(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(static_cast<size_t>(core), &cores);
  ASSERT_EQ(sched_setaffinity(0, sizeof(cores), &cores), 0);
}

TEST(RunDelayTest, CountsTheTimeInWhichAnotherThreadHasTheCore) {
  if (!std::ifstream("/proc/thread-self/schedstat")) GTEST_SKIP() << "this kernel has no /proc/thread-self/schedstat";
  std::thread([] {
    bind_to(sched_getcpu());
    std::atomic<bool> stop{false};
    std::thread other([&stop] {
      while (!stop.load(std::memory_order_relaxed)) Env::spin_pause();  // relaxed: it guards no other data
    });
    RunDelay delay;
    const uint64_t began_ns = Env::now_ns();
    uint64_t waited_ns = 0;
    // Both threads want one core all the time, so this one has to wait.
    while (waited_ns < 5 * 1'000'000) waited_ns += delay.since_last_ns();
    EXPECT_LE(waited_ns, Env::now_ns() - began_ns);
    stop.store(true, std::memory_order_relaxed);  // relaxed: as above
    other.join();
  }).join();
}

}  // namespace
}  // namespace loam::latency
