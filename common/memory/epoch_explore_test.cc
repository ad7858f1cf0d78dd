// Epochs under the explorer: no object is freed while a guard that reached it is active.
#include <array>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "common/base/env.h"
#include "common/memory/epoch.h"
#include "common/memory/page_pool.h"
#include "common/testing/explorer.h"

namespace loam {
namespace {

using testing::explore;
using testing::Explorer;
using testing::ExploreReport;

struct Object {
  bool freed = false;
  Env::Atomic<uint64_t> payload{1};
};

void mark_freed(void* object, void*) { static_cast<Object*>(object)->freed = true; }

/// A writer replaces the shared object twice while readers use it. Without `retire_properly` the writer frees the old
/// object at once, which the explorer must find.
void readers_and_writer(Explorer& ex, bool retire_properly) {
  std::array<Object, 3> objects;
  EpochDomain domain;
  EpochThread writer(domain, "writer");
  EpochThread reader_a(domain, "reader a");
  EpochThread reader_b(domain, "reader b");
  Env::Atomic<Object*> shared{&objects[0]};
  ex.spawn("writer", [&] {
    for (size_t i = 1; i < objects.size(); ++i) {
      const EpochGuard guard(writer);
      Object* old = shared.exchange(&objects[i], std::memory_order_acq_rel);
      if (retire_properly) {
        writer.retire(old, mark_freed);
      } else {
        mark_freed(old, nullptr);
      }
    }
    writer.collect(8);
    writer.collect(8);
  });
  for (EpochThread* reader : {&reader_a, &reader_b}) {
    ex.spawn("reader", [&, reader] {
      for (int i = 0; i < 2; ++i) {
        const EpochGuard guard(*reader);
        const Object* object = shared.load(std::memory_order_acquire);
        ex.check(!object->freed, "a reachable object was freed");
        object->payload.load(std::memory_order_relaxed);
        ex.check(!object->freed, "an object was freed under a guard");
      }
      domain.advance();
    });
  }
  ex.run();
  while (domain.pending() > 0) writer.collect(8);
  ex.check(objects[0].freed && objects[1].freed && !objects[2].freed, "retired objects are freed in the end");
  domain.check_invariants();
}

TEST(EpochExplore, NoObjectIsFreedUnderAGuard) {
  const ExploreReport report = explore({.schedules = 20'000}, [](Explorer& ex) { readers_and_writer(ex, true); });
  EXPECT_TRUE(report.ok()) << report.message;
}

TEST(EpochExplore, FindsAFreeWithoutGrace) {
  const ExploreReport report = explore({.schedules = 2000}, [](Explorer& ex) { readers_and_writer(ex, false); });
  EXPECT_FALSE(report.ok());
}

TEST(EpochExplore, ThreadsComeAndGo) {
  const ExploreReport report = explore({.schedules = 10'000}, [](Explorer& ex) {
    std::array<Object, 2> objects;
    EpochDomain domain;
    Env::Atomic<Object*> shared{&objects[0]};
    for (const char* name : {"a", "b"}) {
      ex.spawn(name, [&] {
        EpochThread self(domain, "self");
        const EpochGuard guard(self);
        const Object* object = shared.load(std::memory_order_acquire);
        ex.check(!object->freed, "a reachable object was freed");
        object->payload.load(std::memory_order_relaxed);
        ex.check(!object->freed, "an object was freed under a guard");
      });
    }
    ex.spawn("writer", [&] {
      EpochThread self(domain, "writer");
      {
        const EpochGuard guard(self);
        self.retire(shared.exchange(&objects[1], std::memory_order_acq_rel), mark_freed);
      }
      for (int i = 0; i < 3; ++i) self.collect(4);
    });
    ex.run();
    domain.check_invariants();
  });
  EXPECT_TRUE(report.ok()) << report.message;
}

TEST(PagePoolExplore, ABlockHasOneOwner) {
  PagePoolOptions options;
  options.page_size_bytes = PagePool::kMinBlockBytes * 2;
  options.limit_bytes = options.page_size_bytes * PagePool::kMinPages;
  auto pool = PagePool::create(options);
  ASSERT_TRUE(pool.ok());
  const ExploreReport report = explore({.schedules = 2000}, [&](Explorer& ex) {
    for (const char* name : {"a", "b"}) {
      ex.spawn(name, [&] {
        for (int i = 0; i < 3; ++i) {
          std::byte* block = (*pool)->allocate(PagePool::kMinBlockBytes, Reserve::kWrite);
          ex.check(block != nullptr && block[0] == std::byte{0}, "a zeroed block");
          block[0] = std::byte{1};
          Env::pause_point("owned");
          ex.check(block[0] == std::byte{1}, "no other thread writes to the block");
          (*pool)->release(block, PagePool::kMinBlockBytes);
        }
      });
    }
    ex.spawn("zeroer", [&] {
      for (int i = 0; i < 4; ++i) (*pool)->zero_step(PagePool::kMinBlockBytes);
    });
    ex.run();
    (*pool)->check_invariants();
    ex.check((*pool)->statistics().used_bytes == 0, "all blocks were released");
  });
  EXPECT_TRUE(report.ok()) << report.message;
}

}  // namespace
}  // namespace loam
