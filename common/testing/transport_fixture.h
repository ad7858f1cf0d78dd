// Common parts of the tests of all transports: a handler that records its events, and one interface to each network.
#pragma once

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/env.h"
#include "common/net/rdma/rdma_module.h"
#include "common/net/simulated/sim_transport.h"
#include "common/net/tcp/tcp_transport.h"

namespace loam::net::testing {

/// A handler that records the events of its connections, and then calls the hook that the test has set for the event.
class RecordingHandler : public Handler {
 public:
  void on_connected(Connection& connection) override {
    connections.push_back(&connection);
    if (when_connected) when_connected(connection);
  }
  void on_messages(Connection& connection, std::span<const Bytes> batch) override {
    ++batches;
    for (const Bytes message : batch) {
      misaligned += reinterpret_cast<uintptr_t>(message.data()) % 8 != 0;
      bytes += message.size();
      if (keep) messages.emplace_back(as_text(message));
    }
    if (when_messages) when_messages(connection, batch);
  }
  void on_writable(Connection& connection) override {
    ++writable;
    if (when_writable) when_writable(connection);
  }
  void on_closed(Connection& connection, const Status& status) override {
    std::erase(connections, &connection);
    closed.push_back(status);
    if (when_closed) when_closed(connection);
  }

  std::vector<Connection*> connections;
  std::vector<std::string> messages;
  std::vector<Status> closed;
  size_t batches = 0;
  size_t bytes = 0;
  size_t writable = 0;
  size_t misaligned = 0;
  bool keep = true;
  std::function<void(Connection&)> when_connected;
  std::function<void(Connection&, std::span<const Bytes>)> when_messages;
  std::function<void(Connection&)> when_writable;
  std::function<void(Connection&)> when_closed;
};

/// A text of `size` bytes that differs for each number: "7:hhhh". It is longer than `size` if the number needs more.
inline std::string text_of(size_t i, size_t size) {
  std::string text = std::to_string(i) + ":";
  text.resize(std::max(size, text.size()), static_cast<char>('a' + i % 26));
  return text;
}

/// Sends all messages of a batch back.
inline void echo(Connection& connection, std::span<const Bytes> batch) {
  for (const Bytes message : batch) EXPECT_TRUE(connection.send(message).ok());
}

/// TCP on the loopback interface. The other networks have the same members.
class TcpTestNetwork {
 public:
  /// Makes a transport of this network.
  std::unique_ptr<Transport> make(const TransportOptions& options) {
    auto transport = make_tcp_transport(options);
    EXPECT_TRUE(transport.ok()) << transport.status().to_string();
    return std::move(transport).value();
  }
  /// The address on which the transport made as number `n` listens.
  Address listen_address(size_t) const { return *Address::parse("tcp://127.0.0.1:0"); }
  static constexpr Scheme kScheme = Scheme::kTcp;
  /// Number of rounds without an event after which no more events are expected.
  static constexpr int kIdleRounds = 20;
  /// Time limit of a wait.
  static constexpr uint64_t kTimeoutNs = 10'000'000'000;
  /// The reason why this machine does not have the network; null: it has it.
  static const char* unavailable() { return nullptr; }
};

/// RDMA verbs, on the device with the address LOAM_RDMA_ADDRESS. tests/rdma sets this environment variable in a guest
/// with Soft-RoCE.
class RdmaTestNetwork {
 public:
  std::unique_ptr<Transport> make(const TransportOptions& options) {
    auto transport = make_rdma_transport(options);
    EXPECT_TRUE(transport.ok()) << transport.status().to_string();
    return std::move(transport).value();
  }
  Address listen_address(size_t) const { return {Scheme::kRdma, host(), 0}; }
  static constexpr Scheme kScheme = Scheme::kRdma;
  /// Larger than for the other networks, because Soft-RoCE may need 10 ms for a message.
  static constexpr int kIdleRounds = 400;
  static constexpr uint64_t kTimeoutNs = 60'000'000'000;
  static const char* unavailable() {
    return host() != nullptr ? nullptr : "needs an RDMA device, named in LOAM_RDMA_ADDRESS; make test-rdma has one";
  }

 private:
  static const char* host() {
    return std::getenv("LOAM_RDMA_ADDRESS");
  }  // NOLINT(concurrency-mt-unsafe): no code sets the variable
};

/// The simulated network. Each transport is on a host of its own.
class SimTestNetwork {
 public:
  std::unique_ptr<Transport> make(const TransportOptions& options) {
    auto transport = network_.make_transport("host" + std::to_string(hosts_++), options);
    EXPECT_TRUE(transport.ok()) << transport.status().to_string();
    return std::move(transport).value();
  }
  Address listen_address(size_t n) const { return *Address::parse("sim://host" + std::to_string(n) + ":0"); }
  static constexpr Scheme kScheme = Scheme::kSim;
  static constexpr int kIdleRounds = 20;
  static constexpr uint64_t kTimeoutNs = 10'000'000'000;
  static const char* unavailable() { return nullptr; }

 private:
  SimNetwork network_;
  size_t hosts_ = 0;
};

/// A suite with some transports of the network World. The one thread of the test polls them in turn.
template <class World>
class NetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* reason = World::unavailable(); reason != nullptr) GTEST_SKIP() << reason;
  }

  /// Adds a transport.
  Transport& add(const TransportOptions& options = {}) {
    transports_.push_back(world_.make(options));
    return *transports_.back();
  }

  /// Listens with `handler` and returns the real address.
  Address listen(Transport& transport, Handler& handler) {
    for (size_t i = 0; i < transports_.size(); ++i) {
      if (transports_[i].get() != &transport) continue;
      auto listener = transport.listen(world_.listen_address(i), handler);
      EXPECT_TRUE(listener.ok()) << listener.status().to_string();
      if (!listener.ok()) return {};
      return (*listener)->address();
    }
    ADD_FAILURE();
    return {};
  }

  /// Begins a connection; the handler learns when it is open.
  Connection& connect(Transport& transport, const Address& address, Handler& handler) {
    auto connection = transport.connect(address, handler);
    EXPECT_TRUE(connection.ok()) << connection.status().to_string();
    return **connection;
  }

  /// Polls all transports until `done()` is true. Fails after World::kTimeoutNs.
  ::testing::AssertionResult poll_until(const std::function<bool()>& done) {
    const uint64_t deadline = RealEnv::now_ns() + World::kTimeoutNs;
    while (!done()) {
      for (const auto& transport : transports_) transport->poll(50'000);
      if (RealEnv::now_ns() > deadline)
        return ::testing::AssertionFailure() << World::kTimeoutNs / 1'000'000'000 << " seconds have passed";
    }
    return ::testing::AssertionSuccess();
  }
  /// Polls all transports until World::kIdleRounds consecutive rounds over all of them find no event. The test fails
  /// after World::kTimeoutNs.
  void poll_until_idle() {
    int quiet = 0;
    const auto turn = [&] {
      size_t events = 0;
      for (const auto& transport : transports_) events += transport->poll(100'000);
      quiet = events == 0 ? quiet + 1 : 0;
    };
    const uint64_t deadline = RealEnv::now_ns() + World::kTimeoutNs;
    while (quiet < World::kIdleRounds && RealEnv::now_ns() < deadline) turn();
    EXPECT_EQ(quiet, World::kIdleRounds) << World::kTimeoutNs / 1'000'000'000 << " seconds have passed";
  }

  World world_;
  std::vector<std::unique_ptr<Transport>> transports_;
};

/// A suite with a server and a client of the network World.
template <class World>
class PairTest : public NetTest<World> {
 protected:
  /// Makes the server and the client, and opens one connection between them.
  void open(const TransportOptions& server_options = {}, const TransportOptions& client_options = {}) {
    server_ = &this->add(server_options);
    client_ = &this->add(client_options);
    address_ = this->listen(*server_, served_);
    connection_ = &this->connect(*client_, address_, owner_);
    ASSERT_TRUE(this->poll_until([&] { return !served_.connections.empty() && !owner_.connections.empty(); }));
    accepted_ = served_.connections.front();
  }

  Transport* server_ = nullptr;
  Transport* client_ = nullptr;
  RecordingHandler served_, owner_;
  Address address_;
  Connection* connection_ = nullptr;  // the client's end
  Connection* accepted_ = nullptr;    // the server's end
};

/// All networks, for typed suites. TestNetworkNames names each by its scheme.
using TestNetworks = ::testing::Types<TcpTestNetwork, SimTestNetwork, RdmaTestNetwork>;
struct TestNetworkNames {
  template <class World>
  static std::string GetName(int) {  // NOLINT(readability-identifier-naming): googletest calls it so
    return std::string(to_string(World::kScheme));
  }
};

}  // namespace loam::net::testing
