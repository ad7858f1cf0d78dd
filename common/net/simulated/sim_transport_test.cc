// Properties of the simulated network alone: equal runs for equal seeds, delays, cuts, healing, lost connections.

#include "common/net/simulated/sim_transport.h"

#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/testing/transport_fixture.h"

namespace loam::net {
namespace {

using testing::echo;
using testing::RecordingHandler;

/// A network with the hosts "a", which serves, and "b", and one connection between them.
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
  RecordingHandler served, owner;
  Address address;
  Connection* connection = nullptr;
};

TEST(SimTransport, EqualSeedsGiveEqualRuns) {
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

TEST(SimTransport, TheClockAdvancesOnlyInAnIdlePoll) {
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
  pair.client->poll(0);  // the bytes are in flight when the route is cut
  pair.network.cut("b", "a");
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(pair.connection->send(as_bytes("during " + std::to_string(i))).ok());
    pair.run(5);
  }
  EXPECT_TRUE(pair.served.messages.empty());
  EXPECT_TRUE(pair.owner.closed.empty()) << "a cut does not end the connection";
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
  RecordingHandler served, owner;
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

TEST(SimTransport, TransportsOfAHostShareItsPorts) {
  SimNetwork network;
  auto first = std::move(network.make_transport("a")).value();
  auto second = std::move(network.make_transport("a")).value();
  auto client = std::move(network.make_transport("b")).value();
  RecordingHandler one, two, owner;
  const std::vector<Transport::AcceptTarget> targets = {{first.get(), &one}, {second.get(), &two}};
  ASSERT_TRUE(second->listen(*Address::parse("sim://a:7"), targets).ok());
  EXPECT_EQ(first->listen(*Address::parse("sim://a:7"), one).code(), StatusCode::kUnavailable);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(client->connect(*Address::parse("sim://a:7"), owner).ok());
  for (int i = 0; i < 50; ++i) {
    for (Transport* transport : {first.get(), second.get(), client.get()}) transport->poll(100'000);
  }
  EXPECT_EQ(one.connections.size(), 2u);
  EXPECT_EQ(two.connections.size(), 2u);
  EXPECT_EQ(owner.connections.size(), 4u);
  second.reset();  // its connections end, the others stay, and the port is closed
  for (int i = 0; i < 50; ++i) {
    for (Transport* transport : {first.get(), client.get()}) transport->poll(100'000);
  }
  EXPECT_EQ(owner.closed.size(), 2u);
  EXPECT_EQ(one.connections.size(), 2u);
  ASSERT_TRUE(first->listen(*Address::parse("sim://a:7"), one).ok());
}

TEST(SimTransport, AKilledProcessIsNoticedLaterAndMayComeBack) {
  bool late_messages = false, lost_messages = false;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Pair pair({.seed = seed});
    pair.run(20);
    ASSERT_TRUE(pair.connection->send(as_bytes("asked")).ok());
    for (uint64_t i = 0; i < 1 + seed % 4; ++i) {
      if (pair.network.next_event_ns() != kForever) pair.network.advance_to(pair.network.next_event_ns());
      pair.client->poll(0);
      pair.server->poll(0);
    }
    const bool served = !pair.served.messages.empty();
    const size_t answered = pair.owner.messages.size();
    pair.network.kill("a");
    const uint64_t died_ns = pair.network.now_ns();
    EXPECT_EQ(pair.server->poll(0), 0u);
    EXPECT_TRUE(pair.owner.closed.empty());
    for (int i = 0; i < 100 && pair.owner.closed.empty(); ++i) pair.client->poll(1'000'000);
    ASSERT_EQ(pair.owner.closed.size(), 1u);
    EXPECT_EQ(pair.owner.closed[0].code(), StatusCode::kUnavailable);
    EXPECT_LE(pair.network.now_ns(), died_ns + 5'000'000 + 2 * 50'000);
    // Bytes that the killed process has sent arrive; bytes sent to it do not.
    EXPECT_EQ(pair.owner.messages.size(), served ? 1u : 0u);
    late_messages = late_messages || pair.owner.messages.size() > answered;
    lost_messages = lost_messages || !served;

    auto next = std::move(pair.network.make_transport("a")).value();
    RecordingHandler again, owner;
    again.when_messages = echo;
    ASSERT_TRUE(next->listen(*Address::parse("sim://a:7"), again).ok());
    Connection* connection = *pair.client->connect(pair.address, owner);
    ASSERT_TRUE(connection->send(as_bytes("anew")).ok());
    for (int i = 0; i < 50; ++i) {
      next->poll(1'000'000);
      pair.client->poll(1'000'000);
    }
    EXPECT_EQ(owner.messages, std::vector<std::string>{"anew"});
  }
  EXPECT_TRUE(late_messages);
  EXPECT_TRUE(lost_messages);
}

TEST(SimTransport, ACutInOneDirectionStopsThatDirectionOnly) {
  Pair pair;
  pair.run(20);
  pair.network.cut_one_way("a", "b");
  ASSERT_TRUE(pair.connection->send(as_bytes("there")).ok());
  pair.run(20);
  EXPECT_EQ(pair.served.messages.size(), 1u);
  EXPECT_TRUE(pair.owner.messages.empty());
  pair.network.heal_all();
  pair.run(20);
  EXPECT_EQ(pair.owner.messages.size(), 1u);
}

TEST(SimTransport, AnExtraDelayHoldsForOneDirection) {
  Pair pair({.seed = 5, .min_delay_ns = 100, .max_delay_ns = 100});
  pair.run(20);
  pair.network.set_extra_delay("a", "b", 7'000);
  const uint64_t sent_ns = pair.network.now_ns();
  uint64_t served_ns = 0, answered_ns = 0;
  pair.served.when_messages = [&](Connection& connection, std::span<const Bytes> batch) {
    served_ns = pair.network.now_ns();
    echo(connection, batch);
  };
  pair.owner.when_messages = [&](Connection&, std::span<const Bytes>) { answered_ns = pair.network.now_ns(); };
  ASSERT_TRUE(pair.connection->send(as_bytes("slow back")).ok());
  pair.client->poll(0);
  pair.run(20);
  EXPECT_EQ(served_ns - sent_ns, 100u);
  EXPECT_EQ(answered_ns - served_ns, 7'100u);
}

/// Resets a connection with requests in flight. Returns whether the server received some of them after the client had
/// connected again.
bool reset_in_flight(uint64_t seed, size_t& lost) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Pair pair({.seed = seed});
  pair.run(20);
  const size_t sent = 8;
  for (size_t i = 0; i < sent; ++i) {
    EXPECT_TRUE(pair.connection->send(as_bytes("old " + std::to_string(i))).ok());
    pair.client->poll(0);
  }
  EXPECT_EQ(pair.network.reset("a", "b"), 1u);
  RecordingHandler again;
  bool reconnected = false, late = false;
  size_t old = 0;
  pair.served.when_messages = [&](Connection&, std::span<const Bytes> batch) {
    for (const Bytes message : batch) {
      if (as_text(message) == "new") continue;
      EXPECT_EQ(as_text(message), "old " + std::to_string(old)) << "the server received no prefix of the sent messages";
      ++old;
      late = late || !again.connections.empty();
    }
  };
  for (int i = 0; i < 200; ++i) {
    pair.client->poll(100'000);
    pair.server->poll(100'000);
    if (pair.owner.closed.empty() || reconnected) continue;
    reconnected = true;
    Connection* connection = *pair.client->connect(pair.address, again);
    EXPECT_TRUE(connection->send(as_bytes("new")).ok());
  }
  EXPECT_TRUE(reconnected);
  EXPECT_EQ(pair.served.closed.size(), 1u);
  EXPECT_EQ(pair.served.connections.size(), 1u);
  EXPECT_EQ(again.connections.size(), 1u);
  lost += sent - old;
  return late;
}

TEST(SimTransport, AResetLetsTheTailArriveLate) {
  size_t late = 0, lost = 0;
  const size_t seeds = 200;
  for (uint64_t seed = 1; seed <= seeds; ++seed) late += reset_in_flight(seed, lost) ? 1 : 0;
  EXPECT_GT(late, 10u);
  EXPECT_GT(lost, seeds);
  EXPECT_LT(lost, 7 * seeds);
}

TEST(SimTransport, AFullPipeContinuesWhenTheReceiverHasRead) {
  Pair pair({.seed = 9, .pipe_bytes = 4'096});
  pair.run(20);
  pair.owner.keep = false;
  const std::string text(1'000, 'x');
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(pair.connection->send(as_bytes(text)).ok());
  pair.run(3'000);
  EXPECT_EQ(pair.owner.bytes, 500'000u);
}

/// Applies all kinds of faults at random while clients send, and returns the digest of the network's events.
uint64_t random_faults(uint64_t seed) {
  SimNetwork network({.seed = seed});
  std::mt19937_64 random(seed);
  const std::vector<std::string> names = {"a", "b", "c"};
  std::vector<std::unique_ptr<Transport>> transports(names.size());
  std::vector<std::unique_ptr<RecordingHandler>> servers(names.size());
  RecordingHandler clients;
  clients.keep = false;
  const auto start = [&](size_t i) {
    transports[i] = std::move(network.make_transport(names[i])).value();
    servers[i] = std::make_unique<RecordingHandler>();
    servers[i]->keep = false;
    servers[i]->when_messages = echo;
    EXPECT_TRUE(transports[i]->listen(*Address::parse("sim://" + names[i] + ":7"), *servers[i]).ok());
  };
  for (size_t i = 0; i < names.size(); ++i) start(i);
  for (int step = 0; step < 6'000; ++step) {
    network.advance_to(network.now_ns() + random() % 20'000);
    const size_t i = random() % names.size(), j = random() % names.size();
    switch (random() % 200) {
      case 0:
        network.cut_one_way(names[i], names[j]);
        break;
      case 1:
        network.heal_all();
        break;
      case 2:
        network.reset(names[i], names[j]);
        break;
      case 3:
        network.set_extra_delay(names[i], names[j], random() % 100'000);
        break;
      case 4:
        network.drop_connections(names[i], names[j]);
        break;
      case 5:
        clients.connections.clear();  // connections of a killed process end without a callback
        network.kill(names[i]);
        start(i);
        break;
      default:
        if (random() % 4 == 0) {
          EXPECT_TRUE(transports[i]->connect(*Address::parse("sim://" + names[j] + ":7"), clients).ok());
        }
        for (Connection* connection : clients.connections) {
          if (connection->is_open()) static_cast<void>(connection->send(as_bytes("hello")));
        }
        transports[i]->poll(random() % 200'000);
    }
  }
  EXPECT_GT(clients.bytes, 1'000u);
  return network.digest();
}

TEST(SimTransport, EqualSeedsGiveEqualRunsWithFaults) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    EXPECT_EQ(random_faults(seed), random_faults(seed));
  }
  EXPECT_NE(random_faults(1), random_faults(2));
}

}  // namespace
}  // namespace loam::net
