// Transports of simulated processes: their waits, their costs, and the effects of faults.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/thread.h"
#include "common/net/make_transport.h"
#include "common/net/simulated/sim_transport.h"
#include "tests/sim/simulator.h"

namespace loam::sim {
namespace {

constexpr uint64_t kMs = 1'000'000;

/// A simulator with a network. Its processes are echo servers and clients that send to them.
class NetworkTest : public ::testing::Test {
 protected:
  NetworkTest() : network_(options()) {
    net::SimNetwork::install(&network_);
    simulator_.set_crash_hook([this](ProcessNumber process) { network_.kill(simulator_.name_of(process)); });
  }
  ~NetworkTest() override { net::SimNetwork::install(nullptr); }

  net::SimNetworkOptions options() {
    net::SimNetworkOptions options;
    options.now_ns = [this] { return simulator_.virtual_now_ns(); };
    options.on_arrival = [this](const std::string&, const void* transport, uint64_t at_ns) {
      simulator_.wake_at(transport, at_ns);
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

  /// Sends again as soon as it is answered, and connects again as soon as its connection ends.
  struct EchoClient final : public net::Handler {
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

  /// Returns when the server listens.
  ProcessNumber start_server() {
    const ProcessNumber server = simulator_.start("server", {}, [] {
      const auto transport = make();
      Echo echo;
      EXPECT_TRUE(transport->listen(*net::Address::parse("sim://server:7"), echo).ok());
      for (;;) transport->poll(net::kForever);
    });
    run_for(kMs);
    return server;
  }
  void start_client(const std::string& name, EchoClient& echo_client) {
    simulator_.start(name, {}, [&echo_client] {
      const auto transport = make();
      for (;;) {
        if (echo_client.connection == nullptr) {
          echo_client.connection = transport->connect(*net::Address::parse("sim://server:7"), echo_client).value();
          EXPECT_TRUE(echo_client.connection->send(as_bytes("first")).ok());
        }
        transport->poll(net::kForever);
      }
    });
  }
  void run_for(uint64_t ns) {
    simulator_.run(simulator_.virtual_now_ns() + ns, [] { return false; });
  }

  Simulator simulator_{7};
  net::SimNetwork network_;
};

TEST_F(NetworkTest, EveryRequestIsAnswered) {
  start_server();
  std::vector<EchoClient> askers(4);
  for (size_t i = 0; i < askers.size(); ++i) start_client("client" + std::to_string(i), askers[i]);
  const auto begin = std::chrono::steady_clock::now();
  run_for(2'000 * kMs);
  const auto took = std::chrono::steady_clock::now() - begin;
  uint64_t answers = 0;
  for (const EchoClient& echo_client : askers) {
    EXPECT_GT(echo_client.answers, 20'000u);  // a round trip takes 2 to 100 µs
    answers += echo_client.answers;
  }
  RecordProperty("ns_per_hop", std::to_string(static_cast<uint64_t>(took.count()) / (2 * answers)));
}

TEST_F(NetworkTest, PollEndsAtTimeoutAndWhenWoken) {
  std::vector<uint64_t> times;
  simulator_.start("p", {}, [&] {
    const auto transport = make();
    EXPECT_EQ(transport->poll(3 * kMs), 0u);
    times.push_back(simulator_.virtual_now_ns());
    Thread other("waker", [&] {
      sleep_ns(kMs);
      transport->wake();
    });
    EXPECT_EQ(transport->poll(net::kForever), 0u);
    times.push_back(simulator_.virtual_now_ns());
    other.join();
  });
  run_for(100 * kMs);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_GE(times[0], 3 * kMs);
  EXPECT_LT(times[0], 3 * kMs + kMs / 10);
  EXPECT_GE(times[1], 4 * kMs);
  EXPECT_LT(times[1], 4 * kMs + kMs / 10);
}

TEST_F(NetworkTest, ClientReconnectsToRestartedServer) {
  const ProcessNumber server = start_server();
  EchoClient echo_client;
  start_client("client", echo_client);
  run_for(10 * kMs);
  simulator_.at(simulator_.virtual_now_ns(), [&] { simulator_.crash(server); });
  run_for(20 * kMs);
  EXPECT_GT(echo_client.closed, 1u) << "no server listens there";
  const uint64_t answers = echo_client.answers;
  run_for(20 * kMs);
  EXPECT_EQ(echo_client.answers, answers);
  start_server();
  run_for(20 * kMs);
  EXPECT_GT(echo_client.answers, answers + 100);
}

TEST_F(NetworkTest, WaitingThreadNoticesDroppedConnection) {
  start_server();
  EchoClient echo_client;
  start_client("client", echo_client);
  run_for(10 * kMs);
  network_.cut("client", "server");  // nothing arrives at the client any more
  run_for(10 * kMs);
  const uint64_t answers = echo_client.answers;
  simulator_.at(simulator_.virtual_now_ns(), [&] { network_.drop_connections("client", "server"); });
  run_for(kMs);
  EXPECT_EQ(echo_client.closed, 1u);
  EXPECT_EQ(echo_client.last, StatusCode::kUnavailable);
  run_for(6'000 * kMs);
  EXPECT_GE(echo_client.closed, 2u) << "a failed handshake ends a wait without a deadline";
  EXPECT_EQ(echo_client.last, StatusCode::kTimeout);
  EXPECT_EQ(echo_client.answers, answers);
  simulator_.at(simulator_.virtual_now_ns(), [&] { network_.heal_all(); });
  run_for(20 * kMs);
  EXPECT_GT(echo_client.answers, answers + 100);
}

TEST_F(NetworkTest, PollWithoutWaitAdvancesTime) {
  bool answered = false;
  start_server();
  simulator_.start("p", {}, [&] {
    const auto transport = make();
    EchoClient echo_client;
    echo_client.connection = transport->connect(*net::Address::parse("sim://server:7"), echo_client).value();
    EXPECT_TRUE(echo_client.connection->send(as_bytes("first")).ok());
    while (echo_client.answers == 0) transport->poll(0);
    answered = true;
  });
  run_for(10 * kMs);
  EXPECT_TRUE(answered);
}

}  // namespace
}  // namespace loam::sim
