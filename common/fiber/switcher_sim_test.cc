// Tests of several schedulers in one thread of the operating system, as the virtual threads of the simulator have them.

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <boost/context/fiber.hpp>
#include <gtest/gtest.h>

#include "common/base/env.h"
#include "common/fiber/scheduler.h"
#include "common/fiber/wait.h"

namespace loam::fiber {
namespace {

/// A simulator that the test drives by hand: it sets the running virtual thread and the clock.
class TestWorld final : public SimScheduler {
 public:
  TestWorld() { sim_scheduler = this; }
  ~TestWorld() override { sim_scheduler = nullptr; }
  void point(const char*) override {}
  void yield() override {}
  uint64_t now_ns() override { return clock_ns; }
  uint64_t thread() override { return running; }
  void pause_point(const char*) override {
    if (when_paused) when_paused();
  }

  uint64_t clock_ns = 1'000;
  uint64_t running = 1;
  std::function<void()> when_paused;
};

/// A scheduler on the virtual thread with the given number.
class Side {
 public:
  Side(TestWorld& world, uint64_t number) : world_(world), number_(number) {
    world_.running = number_;
    SchedulerOptions options;
    options.idle = [this](uint64_t timeout_ns) { idle_timeout_ns = timeout_ns; };
    options.wake = [this] { ++rings; };
    scheduler.emplace(std::move(options));
  }
  ~Side() {
    world_.running = number_;
    scheduler.reset();
  }
  void spawn(Task body) {
    world_.running = number_;
    ASSERT_TRUE(scheduler->spawn(std::move(body)).ok());
  }
  size_t round(uint64_t timeout_ns = kForever) {
    world_.running = number_;
    return scheduler->run_round(timeout_ns);
  }

  uint64_t idle_timeout_ns = 0;
  size_t rings = 0;
  std::optional<FiberScheduler> scheduler;

 private:
  TestWorld& world_;
  const uint64_t number_;
};

TEST(SwitcherSim, TwoSchedulersTakeTurnsInOneThread) {
  TestWorld world;
  Side one(world, 1), two(world, 2);
  std::string log;
  const auto play = [&](Side& side, char name) {
    for (int i = 0; i < 2; ++i) {
      side.spawn([&, name] {
        EXPECT_TRUE(FiberScheduler::in_fiber());
        EXPECT_EQ(FiberScheduler::current(), &*side.scheduler);
        for (int turn = 0; turn < 2; ++turn) {
          log += name;
          log += std::to_string(side.scheduler->current_fiber());
          side.scheduler->yield();
        }
      });
    }
  };
  play(one, 'a');
  play(two, 'b');
  while (one.round() + two.round() > 0) {
  }
  EXPECT_EQ(log, "a1a2b1b2a1a2b1b2");
  EXPECT_FALSE(FiberScheduler::in_fiber());
}

TEST(SwitcherSim, DeadlinesFollowTheSimulatedClock) {
  TestWorld world;
  Side one(world, 1), two(world, 2);
  std::string log;
  one.spawn([&] {
    EXPECT_TRUE(one.scheduler->sleep_until(3'000));
    log += 'a';
  });
  two.spawn([&] {
    WaitPoint point;
    EXPECT_FALSE(point.wait_until(2'000));
    log += 'b';
  });
  one.round();
  two.round();
  EXPECT_EQ(one.idle_timeout_ns, 2'000u);
  EXPECT_EQ(two.idle_timeout_ns, 1'000u);
  for (const char* wanted : {"", "b", "ba"}) {
    one.round();
    two.round();
    EXPECT_EQ(log, wanted);
    world.clock_ns += 1'000;
  }
  EXPECT_EQ(one.scheduler->living_fibers() + two.scheduler->living_fibers(), 0u);
}

TEST(SwitcherSim, OneSchedulerWakesAnother) {
  TestWorld world;
  Side one(world, 1), two(world, 2);
  PendingValue<int> there, back;
  int answer = 0;
  one.spawn([&] {
    two.scheduler->post([&] { there.set(20); });
    answer = back.take();
  });
  two.spawn([&] {
    const int value = there.take();
    one.scheduler->spawn_remote([&, value] {
      EXPECT_EQ(FiberScheduler::current(), &*one.scheduler);
      back.set(value + 1);
    });
  });
  for (int i = 0; i < 4; ++i) {
    one.round();
    two.round();
  }
  EXPECT_EQ(answer, 21);
  EXPECT_EQ(one.rings, 1u);
  EXPECT_EQ(two.rings, 1u);
}

TEST(SwitcherSim, OthersRunWhileAVirtualThreadIsPausedInAFiber) {
  TestWorld world;
  std::string log;
  Side one(world, 1);
  auto* left = new Side(world, 2);  // its virtual thread stays paused in a fiber for ever
  one.spawn([&] {
    for (int i = 0; i < 3; ++i) {
      log += 'a';
      one.scheduler->yield();
    }
  });
  namespace context = boost::context;
  context::fiber main;
  context::fiber thread;  // virtual thread 2: first the stack that runs the scheduler, then that of its fiber
  world.when_paused = [&] { main = std::move(main).resume(); };
  thread = context::fiber([&](context::fiber&& caller) {
    main = std::move(caller);
    left->spawn([&] {
      log += 'x';
      Env::pause_point("here");
      log += 'y';
      Env::pause_point("there");
      log += 'z';
    });
    left->round();
    return std::move(main);
  });
  one.round();
  thread = std::move(thread).resume();
  one.round();
  EXPECT_EQ(log, "axa");
  world.running = 2;
  thread = std::move(thread).resume();
  EXPECT_EQ(log, "axay");
  one.round();
  one.round();
  EXPECT_EQ(log, "axaya");
  EXPECT_EQ(one.scheduler->living_fibers(), 0u);
  // A scheduler that is paused in a fiber cannot be destroyed. It stays reachable, so that it is no leak.
  static auto* const abandoned = new std::pair(left, std::move(thread));
  EXPECT_EQ(abandoned->first, left);
}

TEST(SwitcherSim, NewRunHasNoSchedulersOfTheLastRun) {
  static std::vector<Side*>* const abandoned = new std::vector<Side*>;
  for (int run = 0; run < 3; ++run) {
    TestWorld world;
    EXPECT_EQ(FiberScheduler::current(), nullptr);
    abandoned->push_back(new Side(world, 1));
    EXPECT_EQ(FiberScheduler::current(), &*abandoned->back()->scheduler);
  }
}

TEST(SwitcherSim, StacksAreUsedAgain) {
  TestWorld world;
  Side one(world, 1);
  int ran = 0;
  for (int i = 0; i < 10; ++i) {
    for (int k = 0; k < 5; ++k) one.spawn([&] { ++ran; });
    one.round();
  }
  EXPECT_EQ(ran, 50);
  EXPECT_EQ(one.scheduler->counters().stacks_mapped, 5u);
  EXPECT_EQ(one.scheduler->counters().switches, 50u);
  one.spawn([] { throw std::runtime_error("on purpose"); });
  one.round();
  EXPECT_EQ(one.scheduler->counters().escaped_exceptions, 1u);
}

}  // namespace
}  // namespace loam::fiber
