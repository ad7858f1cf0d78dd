#include "common/memory/epoch.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace loam {
namespace {

struct Counted {
  explicit Counted(std::atomic<int>& counter) : alive(counter) { ++alive; }
  ~Counted() { --alive; }
  std::atomic<int>& alive;
};

TEST(Epoch, FreesNothingThatAGuardMayReach) {
  std::atomic<int> alive{0};
  EpochDomain domain;
  EpochThread reader(domain, "reader");
  EpochThread writer(domain, "writer");
  {
    const EpochGuard reading(reader);
    {
      const EpochGuard writing(writer);
      writer.retire_delete(new Counted(alive));
    }
    for (int i = 0; i < 100; ++i) EXPECT_EQ(writer.collect(10), 0u);
    EXPECT_EQ(alive, 1);
    EXPECT_EQ(domain.pending(), 1u);
  }
  for (int i = 0; i < 10; ++i) writer.collect(10);
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(domain.pending(), 0u);
  domain.check_invariants();
}

TEST(Epoch, LaterGuardsDoNotDelayFrees) {
  std::atomic<int> alive{0};
  EpochDomain domain;
  EpochThread reader(domain, "reader");
  EpochThread writer(domain, "writer");
  {
    const EpochGuard writing(writer);
    writer.retire_delete(new Counted(alive));
  }
  // Each guard begins after the retirement, so none of them can reach the object.
  for (int i = 0; i < 10; ++i) {
    const EpochGuard reading(reader);
    domain.advance();
  }
  writer.collect(1);
  EXPECT_EQ(alive, 0);
}

TEST(Epoch, PassedMeansThatEveryGuardOfThatTimeHasEnded) {
  EpochDomain domain;
  EpochThread reader(domain, "reader");
  EpochThread writer(domain, "writer");
  uint64_t epoch = 0;
  {
    const EpochGuard reading(reader);
    {
      const EpochGuard writing(writer);
      epoch = domain.current();
    }
    for (int i = 0; i < 10; ++i) domain.advance();
    EXPECT_FALSE(domain.passed(epoch));
  }
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(domain.advance());
  EXPECT_TRUE(domain.passed(epoch));
}

TEST(Epoch, GuardsNest) {
  std::atomic<int> alive{0};
  EpochDomain domain;
  EpochThread thread(domain, "thread");
  {
    const EpochGuard outer(thread);
    {
      const EpochGuard inner(thread);
      thread.retire_delete(new Counted(alive));
    }
    EXPECT_TRUE(thread.inside());
    for (int i = 0; i < 10; ++i) domain.advance();
    EXPECT_EQ(alive, 1);
  }
  EXPECT_FALSE(thread.inside());
  for (int i = 0; i < 10; ++i) thread.collect(1);
  EXPECT_EQ(alive, 0);
}

TEST(Epoch, ExitsFreeABoundedNumberAndKeepUpWithRetirement) {
  std::atomic<int> alive{0};
  EpochDomain domain;
  EpochThread thread(domain, "thread");
  EpochThread sleeper(domain, "sleeper");
  {
    // Builds a backlog of retired objects: the guard of another thread blocks all frees.
    const EpochGuard stalled(sleeper);
    for (int i = 0; i < 1000; ++i) {
      const EpochGuard guard(thread);
      thread.retire_delete(new Counted(alive));
    }
    EXPECT_EQ(alive, 1000);
  }
  size_t most = 0;
  for (int i = 0; i < 1200; ++i) {
    const int before = alive;
    {
      const EpochGuard guard(thread);
      thread.retire_delete(new Counted(alive));
    }
    most = std::max(most, static_cast<size_t>(before + 1 - alive));
  }
  EXPECT_LE(most, std::max(EpochThread::kFreesPerExit, EpochThread::kFreesPerRetire));
  EXPECT_LT(alive, 20);  // the exits have freed the backlog, although each guard has retired another object
  // Guards that retire nothing drain the rest.
  for (int i = 0; i < 100; ++i) const EpochGuard guard(thread);
  EXPECT_EQ(alive, 0);
}

TEST(Epoch, OtherThreadsOrTheDomainFreeObjectsOfEndedThreads) {
  std::atomic<int> alive{0};
  {
    EpochDomain domain;
    EpochThread other(domain, "other");
    for (int round = 0; round < 2; ++round) {
      EpochThread ending(domain, "ending");
      const EpochGuard guard(ending);
      for (int i = 0; i < 300; ++i) ending.retire_delete(new Counted(alive));
    }
    EXPECT_GE(alive, 590);
    for (int i = 0; i < 10; ++i) other.collect(100);
    EXPECT_EQ(alive, 0);
    {
      EpochThread ending(domain, "ending");
      const EpochGuard guard(ending);
      ending.retire_delete(new Counted(alive));
    }
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Epoch, StallNamesTheBlockingThread) {
  EpochDomain domain;
  EpochThread thread(domain, "worker");
  EpochThread stalled(domain, "network 3");
  EpochStall stall;
  EXPECT_FALSE(domain.stall(0, stall));
  {
    const EpochGuard guard(stalled);
    EXPECT_TRUE(domain.advance());
    EXPECT_FALSE(domain.advance());
    ASSERT_TRUE(domain.stall(0, stall));
    EXPECT_EQ(stall.thread, "network 3");
    EXPECT_EQ(stall.epoch, 1u);
    EXPECT_FALSE(domain.stall(3'600'000'000'000, stall));
  }
  EXPECT_TRUE(domain.advance());
  EXPECT_FALSE(domain.stall(0, stall));
}

TEST(Epoch, StallNamesTheThreadThatStillBlocks) {
  EpochDomain domain;
  EpochThread slow(domain, "slow");
  EpochThread stalled(domain, "stalled");
  const EpochGuard guard(stalled);
  EpochStall stall;
  {
    const EpochGuard short_one(slow);
    EXPECT_TRUE(domain.advance());
    EXPECT_FALSE(domain.advance());
    ASSERT_TRUE(domain.stall(0, stall));
    EXPECT_EQ(stall.thread, "slow");
  }
  EXPECT_FALSE(domain.advance());
  ASSERT_TRUE(domain.stall(0, stall)) << "a guard blocks the epoch, and stall() names no thread";
  EXPECT_EQ(stall.thread, "stalled");
}

TEST(EpochDeathTest, TooManyThreads) {
  for (const size_t most : {size_t{1}, EpochDomain::kDefaultThreads, EpochDomain::kDefaultThreads + 3}) {
    EpochDomain domain(most);
    std::vector<std::unique_ptr<EpochThread>> threads;
    for (size_t i = 0; i < most; ++i) threads.push_back(std::make_unique<EpochThread>(domain, "t"));
    EXPECT_DEATH(EpochThread(domain, "one more"), "more threads than this EpochDomain was made for");
  }
}

// Writers replace a shared object that readers read. A reader would recognise a freed object by its invalid content,
// and a sanitizer would report it.
TEST(Epoch, StressOfReadersAndWriters) {
  struct Object {
    uint64_t value;
    uint64_t inverse;
  };
  EpochDomain domain;
  std::atomic<Object*> shared{new Object{0, ~uint64_t{0}}};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      EpochThread self(domain, "reader");
      while (!stop.load(std::memory_order_relaxed)) {
        const EpochGuard guard(self);
        for (int i = 0; i < 8; ++i) {
          const Object* object = shared.load(std::memory_order_acquire);
          ASSERT_EQ(object->value, ~object->inverse);
        }
      }
    });
  }
  std::vector<std::thread> writers;
  for (uint64_t t = 0; t < 2; ++t) {
    writers.emplace_back([&, t] {
      EpochThread self(domain, "writer");
      for (uint64_t i = 0; i < 20'000; ++i) {
        const EpochGuard guard(self);
        const uint64_t value = i * 2 + t;
        Object* old = shared.exchange(new Object{value, ~value}, std::memory_order_acq_rel);
        self.retire(old, [](void* object, void*) {
          auto* dead = static_cast<Object*>(object);
          dead->value = dead->inverse = 7;
          delete dead;
        });
      }
    });
  }
  for (std::thread& thread : writers) thread.join();
  stop.store(true, std::memory_order_relaxed);
  for (std::thread& thread : threads) thread.join();
  EpochThread last(domain, "last");
  for (int i = 0; i < 10 && domain.pending() > 0; ++i) last.collect(SIZE_MAX);
  EXPECT_EQ(domain.pending(), 0u);
  delete shared.load(std::memory_order_relaxed);
}

}  // namespace
}  // namespace loam
