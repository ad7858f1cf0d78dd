// What only the simulated network can do: repeat itself, delay, cut, heal, drop.

#include "common/net/sim_transport.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/net/transport_fixture.h"

namespace loam::net {
namespace {

using testing::echo;
using testing::Recorder;

/// Two hosts, "a" (serves) and "b", one connection.
struct Pair {
  explicit Pair(const SimNetworkOptions& options = {}) : network(options) {
    server = std::move(network.make_transport("a")).value();
    client = std::move(network.make_transport("b")).value();
    served.when_messages = echo;
    address = (*server->listen(*Address::parse("sim://a:7"), served))->address();
    connection = *client->connect(address, owner);
  }
  void run(size_t rounds) {
    for (size_t i = 0; i < rounds; ++i) {
      server->poll(1'000'000);
      client->poll(1'000'000);
    }
  }

  SimNetwork network;
  std::unique_ptr<Transport> server, client;
  Recorder served, owner;
  Address address;
  Connection* connection = nullptr;
};

TEST(SimTransport, ASeedRepeatsItself) {
  const auto history = [](uint64_t seed) {
    Pair pair({.seed = seed});
    std::vector<uint64_t> times;
    pair.owner.when_messages = [&](Connection& connection, std::span<const Bytes>) {
      times.push_back(pair.network.now_ns());
      if (times.size() < 50) {
        ASSERT_TRUE(connection.send(as_bytes("again")).ok());
      }
    };
    EXPECT_TRUE(pair.connection->send(as_bytes("first")).ok());
    for (int i = 0; i < 10'000 && times.size() < 50; ++i) pair.run(1);
    return times;
  };
  const auto first = history(11);
  EXPECT_EQ(first.size(), 50u);
  EXPECT_EQ(first, history(11));
  EXPECT_NE(first, history(12));
}

TEST(SimTransport, TheClockMovesOnlyWhenThereIsNothingToDo) {
  SimNetwork network;
  auto transport = std::move(network.make_transport("a")).value();
  transport->poll(0);
  EXPECT_EQ(network.now_ns(), 0u);
  transport->poll(500);
  EXPECT_EQ(network.now_ns(), 500u);
  EXPECT_EQ(network.next_event_ns(), kForever);
  network.advance_to(2'000);
  EXPECT_EQ(network.now_ns(), 2'000u);
}

void cut_and_heal(uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const SimNetworkOptions options{.seed = seed};
  Pair pair(options);
  pair.run(20);
  ASSERT_TRUE(pair.connection->is_open());
  ASSERT_TRUE(pair.connection->send(as_bytes("before")).ok());
  pair.client->poll(0);  // on its way when the cut comes
  pair.network.cut("b", "a");
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(pair.connection->send(as_bytes("during " + std::to_string(i))).ok());
    pair.run(5);
  }
  EXPECT_TRUE(pair.served.messages.empty());
  EXPECT_TRUE(pair.owner.closed.empty()) << "a cut is silence, not an end";
  pair.network.heal("a", "b");
  ASSERT_TRUE(pair.connection->send(as_bytes("after")).ok());
  pair.run(50);
  const std::vector<std::string> wanted = {"before",   "during 0", "during 1", "during 2",
                                           "during 3", "during 4", "after"};
  EXPECT_EQ(pair.served.messages, wanted);
  EXPECT_EQ(pair.owner.messages, wanted);
}

TEST(SimTransport, ACutHoldsAndHealingDeliversInOrder) {
  for (uint64_t seed = 1; seed <= 30; ++seed) cut_and_heal(seed);
}

TEST(SimTransport, ConnectingThroughACutHangsUntilTheHandshakeDeadline) {
  SimNetwork network;
  auto server = std::move(network.make_transport("a")).value();
  auto client = std::move(network.make_transport("b")).value();
  Recorder served, owner;
  ASSERT_TRUE(server->listen(*Address::parse("sim://a:7"), served).ok());
  network.cut("a", "b");
  ASSERT_TRUE(client->connect(*Address::parse("sim://a:7"), owner).ok());
  client->poll(1'000'000);
  EXPECT_TRUE(owner.closed.empty());
  network.advance_to(kHandshakeTimeoutNs + 100'000'000);
  client->poll(1'000'000);
  client->poll(0);
  ASSERT_EQ(owner.closed.size(), 1u);
  EXPECT_EQ(owner.closed[0].code(), StatusCode::kTimeout);
}

TEST(SimTransport, DroppedConnectionsEndOnBothSides) {
  Pair pair;
  pair.run(20);
  ASSERT_TRUE(pair.connection->send(as_bytes("lost")).ok());
  pair.client->poll(0);
  pair.network.drop_connections("a", "b");
  pair.run(50);
  ASSERT_EQ(pair.owner.closed.size(), 1u);
  ASSERT_EQ(pair.served.closed.size(), 1u);
  EXPECT_EQ(pair.owner.closed[0].code(), StatusCode::kUnavailable);
  EXPECT_TRUE(pair.served.messages.empty());
}

TEST(SimTransport, TheDelayHookSeesAndDelaysEveryChunk) {
  Pair pair({.seed = 3, .min_delay_ns = 100, .max_delay_ns = 100});
  pair.run(20);
  size_t chunks = 0;
  pair.network.set_delay_hook([&](const std::string& from, const std::string& to, Bytes chunk) {
    EXPECT_EQ(from == "a" ? "b" : "a", to);
    chunks += chunk.empty() ? 0 : 1;
    return from == "b" ? 10'000u : 0u;
  });
  const uint64_t sent_at = pair.network.now_ns();
  uint64_t answered_at = 0;
  pair.owner.when_messages = [&](Connection&, std::span<const Bytes>) { answered_at = pair.network.now_ns(); };
  ASSERT_TRUE(pair.connection->send(as_bytes("slowly")).ok());
  pair.client->poll(0);
  for (int i = 0; i < 100 && answered_at == 0; ++i) {
    pair.server->poll(1'000);
    pair.client->poll(1'000);
  }
  EXPECT_GE(answered_at - sent_at, 10'200u);
  EXPECT_GE(chunks, 2u);
}

TEST(SimTransport, AHostExistsOnce) {
  SimNetwork network;
  auto first = std::move(network.make_transport("a")).value();
  EXPECT_EQ(network.make_transport("a").code(), StatusCode::kInvalidArgument);
  first.reset();
  EXPECT_TRUE(network.make_transport("a").ok());
}

}  // namespace
}  // namespace loam::net
