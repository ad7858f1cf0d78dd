#include "tests/sim/simulator.h"

#include <tuple>

#include <gtest/gtest.h>

#include "common/base/thread.h"

namespace loam::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr auto kNever = [] { return false; };

TEST(Simulator, ThreadsOfAProcessLockWaitAndEnd) {
  Simulator simulator(1);
  std::vector<int> order;
  bool joined = false;
  simulator.start("p", {}, [&] {
    Mutex mutex;
    Condition changed;
    bool ready = false;
    Thread other("other", [&] {
      sleep_ns(5 * kMs);
      const std::scoped_lock lock(mutex);
      ready = true;
      order.push_back(1);
      changed.notify_all();
    });
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return ready; });
      order.push_back(2);
      EXPECT_FALSE(changed.wait_for(lock, std::chrono::milliseconds(2), [] { return false; }));
    }
    other.join();
    joined = true;
  });
  simulator.run(kForever, kNever);
  EXPECT_TRUE(joined);
  EXPECT_EQ(order, (std::vector{1, 2}));
  EXPECT_GE(simulator.virtual_now_ns(), 7 * kMs);
  EXPECT_LT(simulator.virtual_now_ns(), 8 * kMs);
  EXPECT_FALSE(simulator.alive(1));
}

TEST(Simulator, ThreadsWaitForMutexHeldDuringStall) {
  Simulator simulator(1);
  simulator.set_pause_hook(
      [](ProcessNumber, std::string_view) { return PauseDecision{PauseDecision::Kind::kStall, 3 * kMs}; });
  uint64_t got_ns = 0;
  simulator.start("p", {}, [&] {
    Mutex mutex;
    Thread holder("holder", [&] {
      const std::scoped_lock lock(mutex);
      Env::pause_point("test.held");
    });
    sleep_ns(kMs);
    {
      const std::scoped_lock lock(mutex);
      got_ns = simulator.virtual_now_ns();
    }
    holder.join();
  });
  simulator.run(kForever, kNever);
  EXPECT_GE(got_ns, 3 * kMs);
  EXPECT_EQ(simulator.probes().at("test.held"), 1u);
}

TEST(Simulator, DeadProcessDoesNotRun) {
  Simulator simulator(1);
  uint64_t steps = 0;
  const ProcessNumber victim = simulator.start("victim", {}, [&] {
    for (;;) {
      sleep_ns(kMs);
      ++steps;
    }
  });
  simulator.at(10 * kMs + kMs / 2, [&] { simulator.crash(victim); });
  simulator.run(100 * kMs, kNever);
  EXPECT_GE(steps, 8u);
  EXPECT_LE(steps, 10u);
  EXPECT_FALSE(simulator.alive(victim));
}

TEST(Simulator, RequestHookGetsProcessAndMessage) {
  Simulator simulator(1);
  const Buffer message(5);
  std::vector<std::tuple<ProcessNumber, uint64_t, uint64_t, size_t>> received;
  simulator.set_request_hook([&](ProcessNumber server, uint64_t session, uint64_t sequence, Bytes bytes) {
    received.emplace_back(server, session, sequence, bytes.size());
  });
  const ProcessNumber server = simulator.start("p", {}, [&] { Env::observe_request(3, 7, message); });
  simulator.run(kForever, kNever);
  EXPECT_EQ(received, (std::vector{std::tuple(server, uint64_t{3}, uint64_t{7}, message.size())}));
}

TEST(Simulator, CrashAtPausePointStopsThreadThere) {
  Simulator simulator(1);
  simulator.set_pause_hook([](ProcessNumber, std::string_view name) {
    return PauseDecision{name == "test.die" ? PauseDecision::Kind::kCrash : PauseDecision::Kind::kGoOn, 0};
  });
  ProcessNumber crashed = 0;
  simulator.set_crash_hook([&](ProcessNumber process) { crashed = process; });
  bool before = false;
  bool after = false;
  simulator.start("p", {}, [&] {
    before = true;
    Env::pause_point("test.die");
    after = true;
  });
  simulator.run(kForever, kNever);
  EXPECT_TRUE(before);
  EXPECT_FALSE(after);
  EXPECT_EQ(crashed, 1u);
}

TEST(Simulator, PausedProcessDoesNotRun) {
  Simulator simulator(1);
  std::vector<uint64_t> at_ns;
  const ProcessNumber paused = simulator.start("p", {}, [&] {
    for (int i = 0; i < 10; ++i) {
      sleep_ns(kMs);
      at_ns.push_back(simulator.virtual_now_ns());
    }
  });
  simulator.at(3 * kMs, [&] { simulator.pause(paused, 50 * kMs); });
  simulator.run(kForever, kNever);
  ASSERT_EQ(at_ns.size(), 10u);
  for (const uint64_t at : at_ns) EXPECT_TRUE(at <= 3 * kMs || at >= 50 * kMs) << at;
}

TEST(Simulator, ClocksDrift) {
  Simulator simulator(1);
  const auto lasted = [&](ClockShape clock) {
    const uint64_t from_ns = simulator.virtual_now_ns();
    uint64_t local_ns = 0;
    simulator.start("p", clock, [&] {
      const uint64_t begin_ns = Env::now_ns();
      sleep_ns(1'000 * kMs);
      local_ns = Env::now_ns() - begin_ns;
    });
    simulator.run(kForever, kNever);
    EXPECT_GE(local_ns, 1'000 * kMs);
    EXPECT_LE(local_ns, 1'001 * kMs);
    return (simulator.virtual_now_ns() - from_ns) / kMs;
  };
  EXPECT_EQ(lasted({123'456, 50'000}), 952u);
  EXPECT_EQ(lasted({0, -50'000}), 1'052u);
  EXPECT_EQ(lasted({7, 0}), 1'000u);
}

TEST(Simulator, TheSameSeedGivesTheSameEvents) {
  const auto hash = [](uint64_t seed) {
    Simulator simulator(seed);
    for (int p = 0; p < 3; ++p) {
      simulator.start("p", {}, [&simulator] {
        for (int i = 0; i < 100; ++i) sleep_ns(1 + simulator.random().below(kMs));
      });
    }
    simulator.run(kForever, kNever);
    EXPECT_GE(simulator.events(), 300u);
    return simulator.hash();
  };
  EXPECT_EQ(hash(1), hash(1));
  EXPECT_NE(hash(1), hash(2));
}

}  // namespace
}  // namespace loam::sim
