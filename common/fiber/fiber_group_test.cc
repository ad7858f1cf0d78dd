#include "common/fiber/fiber_group.h"

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace loam::fiber {
namespace {

class FiberGroupTest : public ::testing::Test {
 protected:
  static constexpr size_t kMaxFibers = 8;

  static SchedulerOptions options() {
    SchedulerOptions result;
    result.max_fibers = kMaxFibers;
    result.idle = [](uint64_t) {};
    result.wake = [] {};
    return result;
  }
  /// Runs `body` in a fiber until it and all fibers that it starts have ended.
  void run(Task body) {
    ASSERT_TRUE(scheduler_.spawn(std::move(body)).ok());
    scheduler_.stop();
    scheduler_.run();
  }
  void yield(int times) {
    for (int i = 0; i < times; ++i) scheduler_.yield();
  }

  FiberScheduler scheduler_{options()};
};

TEST_F(FiberGroupTest, WaitsForAllFibers) {
  int ended = 0;
  run([&] {
    FiberGroup group(scheduler_);
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(group.spawn([&, i] {
        yield(i);
        ++ended;
      }));
    }
    group.wait();
    EXPECT_EQ(ended, 5);
  });
  EXPECT_EQ(ended, 5);
}

TEST_F(FiberGroupTest, WaitThrowsTheFirstExceptionAfterAllFibersEnded) {
  std::string caught;
  int ended = 0;
  run([&] {
    FiberGroup group(scheduler_);
    ASSERT_TRUE(group.spawn([] { throw std::runtime_error("the first"); }));
    ASSERT_TRUE(group.spawn([] { throw std::runtime_error("the second"); }));
    ASSERT_TRUE(group.spawn([&] {
      yield(3);
      ++ended;
    }));
    try {
      group.wait();
    } catch (const std::runtime_error& error) {
      caught = error.what();
    }
    EXPECT_EQ(ended, 1);
    group.wait();
  });
  EXPECT_EQ(caught, "the first");
  EXPECT_EQ(scheduler_.counters().escaped_exceptions, 0u);
}

TEST_F(FiberGroupTest, DestructorWaitsForFibersDuringUnwinding) {
  struct Frame {
    std::vector<std::string>& events;
    ~Frame() { events.emplace_back("the frame ends"); }
  };
  std::vector<std::string> events;
  run([&] {
    try {
      const Frame frame{events};
      FiberGroup group(scheduler_);
      ASSERT_TRUE(group.spawn([&] {
        yield(3);
        events.emplace_back("the fiber ends");
      }));
      throw 1;
    } catch (int) {
      events.emplace_back("the exception arrives");
    }
  });
  EXPECT_EQ(events, (std::vector<std::string>{"the fiber ends", "the frame ends", "the exception arrives"}));
}

TEST_F(FiberGroupTest, RefusedBodyIsDestroyedAndNotAwaited) {
  size_t started = 0;
  int destroyed = 0;
  struct Count {
    explicit Count(int& to) : count(&to) {}
    Count(Count&& other) noexcept : count(std::exchange(other.count, nullptr)) {}
    ~Count() {
      if (count != nullptr) ++*count;
    }
    int* count;
  };
  run([&] {
    FiberGroup group(scheduler_);
    while (group.spawn([counted = Count(destroyed)] {})) ++started;
    EXPECT_EQ(destroyed, 1) << "the refused body";
    group.wait();
  });
  EXPECT_EQ(started, kMaxFibers - 1);
  EXPECT_EQ(destroyed, static_cast<int>(kMaxFibers));
}

TEST_F(FiberGroupTest, SpawnFailsIfTheTaskCannotBeMade) {
  struct Throws {
    Throws() = default;
    Throws(const Throws&) = default;
    Throws(Throws&& other) noexcept(false) : moves(other.moves + 1) {
      if (moves > 1) throw std::bad_alloc();
    }
    int moves = 0;
    void operator()() const {}
  };
  run([&] {
    FiberGroup group(scheduler_);
    EXPECT_FALSE(group.spawn(Throws()));
    group.wait();
  });
}

TEST_F(FiberGroupTest, TokenOfATaskThatNeverRunsIsReleased) {
  WaitGroup group;
  {
    const Task task([part = WaitGroupToken(group)] {});
    EXPECT_EQ(group.open(), 1u);
  }
  EXPECT_EQ(group.open(), 0u);
}

}  // namespace
}  // namespace loam::fiber
