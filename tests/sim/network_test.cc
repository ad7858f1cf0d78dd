// Transports of simulated processes: how they wait, what they cost, what faults do to them.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/thread.h"
#include "common/net/sim_transport.h"
#include "tests/sim/world.h"

namespace loam::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;

/// A world with a network, whose processes are servers that echo and clients that ask.
class NetworkTest : public ::testing::Test {
 protected:
  NetworkTest() : network_(options()) {
    net::SimNetwork::install(&network_);
    world_.set_crash_hook([this](ProcessNumber process) { network_.kill(world_.name_of(process)); });
  }
  ~NetworkTest() override { net::SimNetwork::install(nullptr); }

  net::SimNetworkOptions options() {
    net::SimNetworkOptions options;
    options.now_ns = [this] { return world_.world_ns(); };
    options.on_arrival = [this](const std::string&, const void* transport, uint64_t at_ns) {
      world_.wake_at(transport, at_ns);
    };
    return options;
  }

  class Echo final : public net::Handler {
   public:
    void on_messages(net::Connection& connection, std::span<const Bytes> messages) override {
      for (const Bytes message : messages) EXPECT_TRUE(connection.send(message).ok());
    }
    void on_closed(net::Connection&, const Status&) override {}
  };

  /// Asks again as soon as it is answered, and connects again as soon as it is cut off.
  struct Asker final : public net::Handler {
    void on_messages(net::Connection& from, std::span<const Bytes>) override {
      ++answers;
      EXPECT_TRUE(from.send(as_bytes("again")).ok());
    }
    void on_closed(net::Connection&, const Status& status) override {
      last = status;
      ++closed;
      connection = nullptr;
    }
    net::Connection* connection = nullptr;
    Status last;
    uint64_t answers = 0, closed = 0;
  };

  static std::unique_ptr<net::Transport> make() { return net::make_transport(net::Scheme::kSim).value(); }

  /// Listens when this returns.
  ProcessNumber start_server() {
    const ProcessNumber server = world_.start("server", {}, [] {
      const auto transport = make();
      Echo echo;
      EXPECT_TRUE(transport->listen(*net::Address::parse("sim://server:7"), echo).ok());
      for (;;) transport->poll(net::kForever);
    });
    run_for(kMs);
    return server;
  }
  void start_client(const std::string& name, Asker& asker) {
    world_.start(name, {}, [&asker] {
      const auto transport = make();
      for (;;) {
        if (asker.connection == nullptr) {
          asker.connection = transport->connect(*net::Address::parse("sim://server:7"), asker).value();
          EXPECT_TRUE(asker.connection->send(as_bytes("first")).ok());
        }
        transport->poll(net::kForever);
      }
    });
  }
  void run_for(uint64_t ns) {
    world_.run(world_.world_ns() + ns, [] { return false; });
  }

  World world_{7};
  net::SimNetwork network_;
};

TEST_F(NetworkTest, ManyAskAndAreAnswered) {
  start_server();
  std::vector<Asker> askers(4);
  for (size_t i = 0; i < askers.size(); ++i) start_client("client" + std::to_string(i), askers[i]);
  const auto begin = std::chrono::steady_clock::now();
  run_for(2'000 * kMs);
  const auto took = std::chrono::steady_clock::now() - begin;
  uint64_t answers = 0;
  for (const Asker& asker : askers) {
    EXPECT_GT(asker.answers, 20'000u);  // a round trip takes 2 to 100 µs
    answers += asker.answers;
  }
  RecordProperty("ns_per_hop", std::to_string(static_cast<uint64_t>(took.count()) / (2 * answers)));
}

TEST_F(NetworkTest, APollEndsInTimeAndWhenItIsWoken) {
  std::vector<uint64_t> times;
  world_.start("p", {}, [&] {
    const auto transport = make();
    EXPECT_EQ(transport->poll(3 * kMs), 0u);
    times.push_back(world_.world_ns());
    Thread other("waker", [&] {
      sleep_ns(kMs);
      transport->wake();
    });
    EXPECT_EQ(transport->poll(net::kForever), 0u);
    times.push_back(world_.world_ns());
    other.join();
  });
  run_for(100 * kMs);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_GE(times[0], 3 * kMs);
  EXPECT_LT(times[0], 3 * kMs + kMs / 10);
  EXPECT_GE(times[1], 4 * kMs);
  EXPECT_LT(times[1], 4 * kMs + kMs / 10);
}

TEST_F(NetworkTest, AServerThatDiesIsFoundAgain) {
  const ProcessNumber server = start_server();
  Asker asker;
  start_client("client", asker);
  run_for(10 * kMs);
  world_.at(world_.world_ns(), [&] { world_.crash(server); });
  run_for(20 * kMs);
  EXPECT_GT(asker.closed, 1u) << "nobody listens there";
  const uint64_t answers = asker.answers;
  run_for(20 * kMs);
  EXPECT_EQ(asker.answers, answers);
  start_server();
  run_for(20 * kMs);
  EXPECT_GT(asker.answers, answers + 100);
}

TEST_F(NetworkTest, ADroppedConnectionIsNoticedByAThreadThatWaits) {
  start_server();
  Asker asker;
  start_client("client", asker);
  run_for(10 * kMs);
  network_.cut("client", "server");  // whatever it waits for does not come
  run_for(10 * kMs);
  const uint64_t answers = asker.answers;
  world_.at(world_.world_ns(), [&] { network_.drop_connections("client", "server"); });
  run_for(kMs);
  EXPECT_EQ(asker.closed, 1u);
  EXPECT_EQ(asker.last, StatusCode::kUnavailable);
  run_for(6'000 * kMs);
  EXPECT_GE(asker.closed, 2u) << "a handshake that comes to nothing ends a wait for ever";
  EXPECT_EQ(asker.last, StatusCode::kTimeout);
  EXPECT_EQ(asker.answers, answers);
  world_.at(world_.world_ns(), [&] { network_.heal_all(); });
  run_for(20 * kMs);
  EXPECT_GT(asker.answers, answers + 100);
}

TEST_F(NetworkTest, APollThatNeverWaitsLetsTimePass) {
  bool answered = false;
  start_server();
  world_.start("p", {}, [&] {
    const auto transport = make();
    Asker asker;
    asker.connection = transport->connect(*net::Address::parse("sim://server:7"), asker).value();
    EXPECT_TRUE(asker.connection->send(as_bytes("first")).ok());
    while (asker.answers == 0) transport->poll(0);
    answered = true;
  });
  run_for(10 * kMs);
  EXPECT_TRUE(answered);
}

}  // namespace
}  // namespace loam::sim
