// The pauses of the background thread in simulated time. The test is its scheduler.
#include "storage-node/src/server/background_thread.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/env.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "storage-node/src/compact/compactor.h"
#include "storage-node/src/request/registry.h"

namespace loam::storage {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr size_t kPageBytes = size_t{64} << 10;
constexpr size_t kPages = 16;

/// Runs one thread; time passes while it sleeps, and the test acts after each sleep.
struct OneThread final : SimScheduler {
  OneThread() { sim_scheduler = this; }
  ~OneThread() override { sim_scheduler = nullptr; }
  void point(const char*) override {}
  void yield() override {}
  uint64_t now_ns() override { return now; }
  uint64_t spawn(const std::string&, std::function<void()> thread) override {
    body = std::move(thread);
    return 1;
  }
  void join(uint64_t) override {}
  void block(const void*, uint64_t until_ns) override {
    pauses_ms.push_back((until_ns - now) / kMs);
    now = until_ns;
    act(pauses_ms.size());
  }

  uint64_t now = 1;
  std::function<void()> body;
  std::vector<uint64_t> pauses_ms;
  std::function<void(size_t pause)> act;
};

struct BackgroundThreadTest : ::testing::Test {
  static PagePoolOptions pool_options() {
    PagePoolOptions options;
    options.limit_bytes = kPages * kPageBytes;
    options.page_size_bytes = kPageBytes;
    options.huge_pages = false;
    options.prefault = false;
    return options;
  }

  /// Returns the lengths of the first `count` pauses. Calls `act` after each pause with its number, from 1.
  std::vector<uint64_t> pauses(size_t count, const std::function<void(size_t)>& act = [](size_t) {}) {
    scheduler.act = [&, count](size_t pause) {
      act(pause);
      if (pause == count) background.stop();
    };
    background.run();
    scheduler.body();
    return scheduler.pauses_ms;
  }

  OneThread scheduler;
  std::unique_ptr<PagePool> pool = PagePool::create(pool_options()).value();
  EpochDomain epochs;
  Compactor compactor{CompactorOptions{}, *pool, epochs};
  Registry registry{epochs, *pool, compactor, Registry::Options{1, {}}};
  CompactionShare share{{}};
  BackgroundThread background{registry, compactor, *pool, epochs, share, {}};
};

using Pauses = std::vector<uint64_t>;

TEST_F(BackgroundThreadTest, SleepsLongerWhileTheNodeIsIdle) { EXPECT_EQ(pauses(7), (Pauses{1, 2, 4, 8, 16, 16, 16})); }

TEST_F(BackgroundThreadTest, WorkAndGrowthShortenThePause) {
  std::byte* block = nullptr;
  const auto act = [&](size_t pause) {
    if (pause == 5) block = pool->allocate(kPageBytes, Reserve::kWrite);  // the pool fills
    if (pause == 8) pool->release(block, kPageBytes);                     // and has a page to zero
  };
  EXPECT_EQ(pauses(11, act), (Pauses{1, 2, 4, 8, 16, 1, 2, 4, 1, 2, 4}));
}

TEST_F(BackgroundThreadTest, FullPoolKeepsThePauseShort) {
  std::vector<std::byte*> blocks;
  const auto act = [&](size_t pause) {
    for (size_t i = 0; pause == 3 && i < kPages / 2; ++i) blocks.push_back(pool->allocate(kPageBytes, Reserve::kWrite));
  };
  EXPECT_EQ(pauses(8, act), (Pauses{1, 2, 4, 1, 1, 1, 1, 1}));
  for (std::byte* const block : blocks) pool->release(block, kPageBytes);
}

TEST_F(BackgroundThreadTest, PublicationShortensThePause) {
  const auto act = [&](size_t pause) {
    if (pause != 5) return;
    Publication publication;
    publication.number = 1;
    publication.cm_epoch = 1;
    compactor.publish(std::make_shared<const Publication>(publication));
  };
  // The compactor may use the publication when its epoch has passed, which takes two steps.
  EXPECT_EQ(pauses(8, act), (Pauses{1, 2, 4, 8, 16, 1, 2, 4}));
}

}  // namespace
}  // namespace loam::storage
