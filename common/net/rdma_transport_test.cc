// What only the verbs transport has: the module, device and memory limits, peers that die, threads, sleeping on
// completions.

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "common/net/tcp_socket.h"
#include "common/net/transport_fixture.h"

namespace loam::net {
namespace {

using testing::echo;
using testing::NetTest;
using testing::RdmaWorld;
using testing::Recorder;

class RdmaTest : public NetTest<RdmaWorld> {
 protected:
  void open(const TransportOptions& options = {}) {
    server_ = &add(options);
    client_ = &add(options);
    address_ = listen(*server_, served_);
    connection_ = &connect(*client_, address_, owner_);
    ASSERT_TRUE(pump_until([&] { return !served_.connections.empty() && !owner_.connections.empty(); }));
  }

  Transport* server_ = nullptr;
  Transport* client_ = nullptr;
  Recorder served_, owner_;
  Address address_;
  Connection* connection_ = nullptr;
};

/// Runs `body` in a child with one end of a pipe; returns its id and the other end.
template <class Body>
std::pair<pid_t, Fd> in_a_child(Body body) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    body(ends[1]);
    ::_exit(0);
  }
  ::close(ends[1]);
  return {child, Fd(ends[0])};
}

// ---- threads and sleeping -------------------------------------------------------------------------------------------

TEST_F(RdmaTest, ServerThreadsShareAListenerAndSleepBetweenMessages) {
  constexpr size_t kThreads = 2;
  constexpr size_t kConnections = 6;
  constexpr size_t kRounds = 50;
  struct Served : Handler {
    void on_messages(Connection& connection, std::span<const Bytes> batch) override { echo(connection, batch); }
    void on_closed(Connection&, const Status&) override {}
  };
  TransportOptions sleepy;
  sleepy.spin_ns = 0;
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<Served> handlers(kThreads);
  std::vector<Transport::Share> shares;
  for (size_t i = 0; i < kThreads; ++i) {
    transports.push_back(world_.make(sleepy));
    shares.push_back({transports[i].get(), &handlers[i]});
  }
  const auto listener = transports[0]->listen(world_.listen_address(0), shares);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  const Address address = (*listener)->address();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (const auto& transport : transports) {
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) transport->poll(kForever);  // relaxed: wake() orders it
    });
  }
  Transport& client = add(sleepy);
  std::vector<Connection*> connections;
  connections.reserve(kConnections);
  for (size_t c = 0; c < kConnections; ++c) connections.push_back(&connect(client, address, owner_));
  bool answered = true;
  for (size_t round = 1; round <= kRounds && answered; ++round) {
    for (Connection* connection : connections) EXPECT_TRUE(connection->send(as_bytes("12345678")).ok());
    answered = pump_until([&] { return owner_.bytes >= round * 8 * kConnections; });
    EXPECT_TRUE(answered) << "round " << round;
  }
  stop.store(true, std::memory_order_relaxed);
  for (const auto& transport : transports) transport->wake();
  for (std::thread& thread : threads) thread.join();
  for (const auto& transport : transports) {
    EXPECT_EQ(transport->counters().opened.read(), kConnections / kThreads);
    EXPECT_GT(transport->counters().sleeps.read(), 0u) << "completions have to end sleeps in this test";
  }
}

TEST_F(RdmaTest, WakeEndsASleepFromOtherThreads) {
  TransportOptions options;
  options.spin_ns = 0;
  Transport& transport = add(options);
  constexpr int kWakes = 2'000;
  std::atomic<int> posted{0};
  std::atomic<int> seen{0};
  std::thread waker([&] {
    for (int i = 1; i <= kWakes; ++i) {
      posted.store(i, std::memory_order_relaxed);  // relaxed: wake() orders it
      transport.wake();
      while (seen.load(std::memory_order_acquire) < i) RealEnv::spin_pause();  // acquire: not before the round
    }
  });
  while (seen.load(std::memory_order_relaxed) < kWakes) {
    transport.poll(kForever);
    seen.store(posted.load(std::memory_order_relaxed), std::memory_order_release);  // release: pairs with the waker
  }
  waker.join();
}

// ---- devices -------------------------------------------------------------------------------------------------------

TEST_F(RdmaTest, AListenerOfAllAddressesServesEveryDevice) {
  const char* second = std::getenv("LOAM_RDMA_SECOND_ADDRESS");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  if (second == nullptr) {
    GTEST_SKIP() << "needs an address of a second RDMA device, in LOAM_RDMA_SECOND_ADDRESS; make test-rdma has one";
  }
  Transport& server = add();
  Transport& client = add();
  served_.when_messages = [](Connection& connection, std::span<const Bytes> batch) { echo(connection, batch); };
  const auto listener = server.listen({Scheme::kRdma, "0.0.0.0", 0}, served_);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  const uint16_t port = (*listener)->address().port;
  std::vector<Connection*> connections;
  for (const std::string& host : {world_.listen_address(0).host, std::string(second)}) {
    connections.push_back(&connect(client, {Scheme::kRdma, host, port}, owner_));
  }
  for (Connection* connection : connections) EXPECT_TRUE(connection->send(as_bytes("12345678")).ok());
  EXPECT_TRUE(pump_until([&] { return owner_.messages.size() == 2; }));
  EXPECT_EQ(served_.connections.size(), 2u);
}

// ---- queues ---------------------------------------------------------------------------------------------------------

TEST_F(RdmaTest, ManyPeersFloodASleepingServerAndNoneMeetsAFullReceiver) {
  // What the devices counted is looked at by tests/rdma/transport_test.py.
  server_ = &add();
  client_ = &add();
  address_ = listen(*server_, served_);
  served_.keep = owner_.keep = false;
  constexpr size_t kConnections = 40;
  constexpr size_t kMessages = 60;
  const std::string text(4'000, 'x');
  std::vector<Connection*> connections;
  connections.reserve(kConnections);
  for (size_t c = 0; c < kConnections; ++c) connections.push_back(&connect(*client_, address_, owner_));
  ASSERT_TRUE(pump_until([&] { return owner_.connections.size() == kConnections; }));
  for (Connection* connection : connections) {
    for (size_t i = 0; i < kMessages; ++i) ASSERT_TRUE(connection->send(as_bytes(text)).ok());
  }
  // The server looks away until every peer has used up what it was granted.
  for (int i = 0; i < 200; ++i) client_->poll(1'000'000);
  EXPECT_GT(connections.front()->queued_bytes(), 0u) << "credits did not stop the sender";
  ASSERT_TRUE(pump_until([&] { return served_.bytes >= kConnections * kMessages * text.size(); }));
  EXPECT_TRUE(owner_.closed.empty());
}

TEST_F(RdmaTest, SendsShareDoorbellsAndSmallOnesAreInline) {
  open();
  served_.keep = false;
  const auto before = client_->counters().flushes.read();
  const auto requests = client_->counters().work_requests.read();
  const std::string text(60'000, 'x');
  ASSERT_TRUE(connection_->send(as_bytes(text)).ok());
  client_->poll(0);
  EXPECT_EQ(client_->counters().flushes.read(), before + 1);
  EXPECT_EQ(client_->counters().work_requests.read(), requests + 8) << "a frame of 60 KB in messages of 8 KiB";
  EXPECT_EQ(client_->counters().inline_sends.read(), 0u);
  ASSERT_TRUE(pump_until([&] { return served_.bytes == text.size(); }));
  ASSERT_TRUE(connection_->send(as_bytes("small")).ok());
  client_->poll(0);
  EXPECT_EQ(client_->counters().inline_sends.read(), 1u);
}

// ---- peers that die -------------------------------------------------------------------------------------------------

TEST_F(RdmaTest, AKilledPeerEndsItsConnection) {
  // The child has a device context of its own: the parent's first transport is made after the fork.
  const auto [child, pipe] = in_a_child([&](int out) {
    Recorder served;
    auto transport = make_rdma_transport().value();
    const Address address = (*transport->listen(world_.listen_address(0), served))->address();
    static_cast<void>(!::write(out, &address.port, sizeof(address.port)));
    for (;;) transport->poll(1'000'000);
  });
  uint16_t port = 0;
  ASSERT_EQ(::read(pipe.get(), &port, sizeof(port)), static_cast<ssize_t>(sizeof(port)));
  client_ = &add();
  Address address = world_.listen_address(0);
  address.port = port;
  connect(*client_, address, owner_);
  ASSERT_TRUE(pump_until([&] { return !owner_.connections.empty(); }));
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_TRUE(pump_until([&] { return !owner_.closed.empty(); }));
  EXPECT_EQ(owner_.closed[0].code(), StatusCode::kUnavailable) << owner_.closed[0].to_string();
  ::waitpid(child, nullptr, 0);
}

TEST_F(RdmaTest, AForkedChildDoesNotDisturbTheParent) {
  open();
  served_.when_messages = echo;
  const auto [child, pipe] = in_a_child([](int) {
    // Writes to every page that it shares with the parent.
    std::vector<std::byte> mine(32 * 1024 * 1024, std::byte{7});
    static_cast<void>(mine.back());
    ::pause();
  });
  const std::string text(200'000, 'y');
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(connection_->send(as_bytes(text)).ok());
  ASSERT_TRUE(pump_until([&] { return owner_.messages.size() == 5; }));
  for (const std::string& message : owner_.messages) EXPECT_EQ(message, text);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// ---- clear errors ---------------------------------------------------------------------------------------------------

TEST_F(RdmaTest, AnAddressWithoutADeviceIsAClearError) {
  Transport& one = add();
  const auto listener = one.listen(*Address::parse("rdma://192.0.2.1:7400"), served_);
  EXPECT_EQ(listener.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(listener.status().message().find("192.0.2.1 is no address of an RDMA device"), std::string_view::npos)
      << listener.status().to_string();
  connect(one, *Address::parse("rdma://192.0.2.1:7400"), owner_);
  ASSERT_TRUE(pump_until([&] { return !owner_.closed.empty(); }));
  EXPECT_EQ(owner_.closed[0].code(), StatusCode::kUnavailable);
  EXPECT_NE(owner_.closed[0].message().find("cannot connect to rdma://192.0.2.1:7400: "), std::string_view::npos)
      << owner_.closed[0].to_string();
}

/// Needs no device: what is wrong is found before one is looked for.
class RdmaModuleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* set = std::getenv("LOAM_MODULE_DIR"); set != nullptr) {  // NOLINT(concurrency-mt-unsafe)
      GTEST_SKIP() << "the module may be loaded already, from " << set;
    }
  }
};

TEST_F(RdmaModuleTest, AMissingModuleIsToldWithThePlacesThatWereTried) {
  const auto transport = make_transport(Scheme::kRdma);
  ASSERT_EQ(transport.code(), StatusCode::kUnavailable);
  const std::string text = transport.status().to_string();
  EXPECT_NE(text.find("rdma:// needs the module loam-rdma.so, which is not in "), std::string::npos) << text;
  EXPECT_NE(text.find(std::filesystem::read_symlink("/proc/self/exe").parent_path().string()), std::string::npos)
      << text;
  EXPECT_NE(text.find("LOAM_MODULE_DIR"), std::string::npos) << text;
}

TEST_F(RdmaModuleTest, OptionsOutOfTheirRangeAreToldWithoutTheModule) {
  TransportOptions options;
  options.window_frames = 1;
  EXPECT_EQ(make_transport(Scheme::kRdma, options).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace loam::net
