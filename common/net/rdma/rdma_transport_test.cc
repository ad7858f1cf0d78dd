// Properties of the transport over verbs alone: its module, the limits of devices and memory, dead peers, threads, and
// sleeps that completions end.

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/net/make_transport.h"
#include "common/net/tcp/tcp_socket.h"
#include "common/testing/transport_fixture.h"

namespace loam::net {
namespace {

using testing::echo;
using testing::NetTest;
using testing::RdmaTestNetwork;
using testing::RecordingHandler;

class RdmaTest : public NetTest<RdmaTestNetwork> {
 protected:
  void open(const TransportOptions& options = {}) {
    server_ = &add(options);
    client_ = &add(options);
    address_ = listen(*server_, served_);
    connection_ = &connect(*client_, address_, owner_);
    ASSERT_TRUE(poll_until([&] { return !served_.connections.empty() && !owner_.connections.empty(); }));
  }

  Transport* server_ = nullptr;
  Transport* client_ = nullptr;
  RecordingHandler served_, owner_;
  Address address_;
  Connection* connection_ = nullptr;
};

/// A child process that runs `body` with one end of a pipe. The destructor kills it.
class Child {
 public:
  template <class Body>
  explicit Child(Body body) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe(ends.data()), 0);
    id_ = ::fork();
    if (id_ == 0) {
      ::close(ends[0]);
      body(ends[1]);
      ::_exit(0);
    }
    ::close(ends[1]);
    pipe_.reset(ends[0]);
  }
  ~Child() { kill(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill() {
    if (id_ <= 0) return;
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
    id_ = -1;
  }

  /// Reads a value that the child writes to the pipe. False: it does not arrive in time.
  template <class Value>
  bool read(Value& value) {
    pollfd wanted = {pipe_.get(), POLLIN, 0};
    return ::poll(&wanted, 1, static_cast<int>(RdmaTestNetwork::kTimeoutNs / 1'000'000)) == 1 &&
           ::read(pipe_.get(), &value, sizeof(value)) == static_cast<ssize_t>(sizeof(value));
  }

 private:
  pid_t id_ = -1;
  Fd pipe_;
};

// ---- threads and sleeping -------------------------------------------------------------------------------------------

/// Time-out of a sleep, so that a lost wake-up fails the test instead of blocking it. A round that takes more than half
/// of it has missed its wake-up, even on a busy machine.
constexpr uint64_t kLongSleepNs = 10'000'000'000;
/// Time limit of tests that repeat an attempt as long as time remains.
constexpr uint64_t kTrialNs = 6'000'000'000;

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
  std::vector<Transport::AcceptTarget> targets;
  for (size_t i = 0; i < kThreads; ++i) {
    transports.push_back(world_.make(sleepy));
    targets.push_back({transports[i].get(), &handlers[i]});
  }
  const auto listener = transports[0]->listen(world_.listen_address(0), targets);
  ASSERT_TRUE(listener.ok()) << listener.status().to_string();
  const Address address = (*listener)->address();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (const auto& transport : transports) {
    threads.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) transport->poll(kLongSleepNs);  // relaxed: wake() orders it
    });
  }
  Transport& client = add(sleepy);
  std::vector<Connection*> connections;
  connections.reserve(kConnections);
  for (size_t c = 0; c < kConnections; ++c) connections.push_back(&connect(client, address, owner_));
  bool answered = true;
  for (size_t round = 1; round <= kRounds && answered; ++round) {
    for (Connection* connection : connections) EXPECT_TRUE(connection->send(as_bytes("12345678")).ok());
    answered = poll_until([&] { return owner_.bytes >= round * 8 * kConnections; });
    EXPECT_TRUE(answered) << "round " << round;
  }
  stop.store(true, std::memory_order_relaxed);
  for (const auto& transport : transports) transport->wake();
  for (std::thread& thread : threads) thread.join();
  for (const auto& transport : transports) {
    EXPECT_EQ(transport->counters().connections_opened.read(), kConnections / kThreads);
    EXPECT_GT(transport->counters().sleeps.read(), 0u) << "completions have to end sleeps in this test";
  }
}

TEST_F(RdmaTest, WakeEndsASleepFromOtherThreads) {
  TransportOptions options;
  options.spin_ns = 0;
  Transport& transport = add(options);
  listen(transport, served_);  // so that the transport has a device to arm before each sleep
  constexpr int kWakes = 20'000;
  constexpr uint64_t kLongestRoundNs = 200'000;
  std::atomic<int> posted{0};
  std::atomic<int> seen{0};
  std::atomic<uint64_t> posted_ns{0};
  const uint64_t deadline = RealEnv::now_ns() + kTrialNs;
  std::atomic<bool> done{false};
  std::thread waker([&] {
    for (int i = 1; i <= kWakes && RealEnv::now_ns() < deadline; ++i) {
      posted_ns.store(RealEnv::now_ns(), std::memory_order_relaxed);  // relaxed, all three: wake() orders them
      posted.store(i, std::memory_order_relaxed);
      transport.wake();
      while (seen.load(std::memory_order_acquire) < i) RealEnv::spin_pause();  // acquire: not before the round
      // Varies the time from the begin of the next round to its wake-up.
      const uint64_t next_ns = RealEnv::now_ns() + static_cast<uint64_t>(i) * 7'919 % kLongestRoundNs;
      while (RealEnv::now_ns() < next_ns) RealEnv::spin_pause();
    }
    done.store(true, std::memory_order_relaxed);
    transport.wake();
  });
  uint64_t longest_ns = 0;
  int count = 0;
  while (!done.load(std::memory_order_relaxed)) {  // relaxed: the waker calls wake() after the store
    transport.poll(kLongSleepNs);
    const int now_posted = posted.load(std::memory_order_relaxed);
    if (now_posted == count) continue;
    count = now_posted;
    longest_ns = std::max(longest_ns, RealEnv::now_ns() - posted_ns.load(std::memory_order_relaxed));
    seen.store(count, std::memory_order_release);  // release: pairs with the waker
  }
  waker.join();
  EXPECT_LT(longest_ns, kLongSleepNs / 2) << "a thread continued to sleep after a wake-up; wakes: " << count;
  EXPECT_GT(transport.counters().sleeps.read(), 0u) << "wakes have to end sleeps in this test";
}

TEST_F(RdmaTest, ACompletionEndsEverySleepOfEitherSide) {
  TransportOptions sleepy;
  sleepy.spin_ns = 0;
  sleepy.peer_timeout_ns = 4 * kLongSleepNs;  // longer than the test, because a probe of the peer also ends a sleep
  server_ = &add(sleepy);
  client_ = &add(sleepy);
  address_ = listen(*server_, served_);
  served_.when_messages = echo;
  served_.keep = owner_.keep = false;
  connection_ = &connect(*client_, address_, owner_);
  ASSERT_TRUE(poll_until([&] { return !served_.connections.empty() && !owner_.connections.empty(); }));
  std::atomic<bool> stop{false};
  std::thread server([&] {
    while (!stop.load(std::memory_order_relaxed)) server_->poll(kLongSleepNs);  // relaxed: wake() orders it
  });
  constexpr size_t kEchoes = 4'000;
  const uint64_t deadline = RealEnv::now_ns() + kTrialNs;
  uint64_t longest_ns = 0;
  size_t echoes = 0;
  for (uint64_t now = RealEnv::now_ns(); echoes < kEchoes && now < deadline && longest_ns < kLongSleepNs / 2;
       ++echoes) {
    EXPECT_TRUE(connection_->send(as_bytes("12345678")).ok());
    while (owner_.bytes < (echoes + 1) * 8 && owner_.closed.empty() && RealEnv::now_ns() < deadline + kTrialNs) {
      client_->poll(kLongSleepNs);
    }
    longest_ns = std::max(longest_ns, RealEnv::now_ns() - now);
    now = RealEnv::now_ns();
  }
  stop.store(true, std::memory_order_relaxed);
  server_->wake();
  server.join();
  EXPECT_TRUE(owner_.closed.empty()) << owner_.closed[0].to_string();
  EXPECT_LT(longest_ns, kLongSleepNs / 2)
      << "a thread continued to sleep although a message had arrived; echoes: " << echoes;
  EXPECT_GT(client_->counters().sleeps.read(), 0u) << "completions have to end sleeps in this test";
  EXPECT_GT(server_->counters().sleeps.read(), 0u) << "completions have to end sleeps in this test";
}

// ---- devices -------------------------------------------------------------------------------------------------------

TEST_F(RdmaTest, AListenerOfAllAddressesServesEveryDevice) {
  const char* second = std::getenv("LOAM_RDMA_SECOND_ADDRESS");  // NOLINT(concurrency-mt-unsafe): no thread sets it
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
  EXPECT_TRUE(poll_until([&] { return owner_.messages.size() == 2; }));
  EXPECT_EQ(served_.connections.size(), 2u);
}

// ---- queues ---------------------------------------------------------------------------------------------------------

TEST_F(RdmaTest, TheReceiveQueueNeverRunsEmptyWhenManyPeersFloodASleepingServer) {
  // tests/rdma/transport_test.py checks the counters of the devices afterwards.
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
  ASSERT_TRUE(poll_until([&] { return owner_.connections.size() == kConnections; }));
  for (Connection* connection : connections) {
    for (size_t i = 0; i < kMessages; ++i) ASSERT_TRUE(connection->send(as_bytes(text)).ok());
  }
  // The server does not poll until every peer has used its credits.
  for (int i = 0; i < 200; ++i) client_->poll(1'000'000);
  EXPECT_GT(connections.front()->queued_bytes(), 0u) << "credits did not stop the sender";
  ASSERT_TRUE(poll_until([&] { return served_.bytes >= kConnections * kMessages * text.size(); }));
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
  ASSERT_TRUE(poll_until([&] { return served_.bytes == text.size(); }));
  ASSERT_TRUE(connection_->send(as_bytes("small")).ok());
  client_->poll(0);
  EXPECT_EQ(client_->counters().inline_sends.read(), 1u);
}

// ---- peers that die -------------------------------------------------------------------------------------------------

TEST_F(RdmaTest, AKilledPeerEndsItsConnection) {
  // The child has a device context of its own: the parent's first transport is made after the fork.
  Child child([&](int out) {
    RecordingHandler served;
    auto transport = make_rdma_transport().value();
    const Address address = (*transport->listen(world_.listen_address(0), served))->address();
    static_cast<void>(!::write(out, &address.port, sizeof(address.port)));
    for (;;) transport->poll(1'000'000);
  });
  uint16_t port = 0;
  ASSERT_TRUE(child.read(port)) << "the child does not report its port";
  client_ = &add();
  Address address = world_.listen_address(0);
  address.port = port;
  connect(*client_, address, owner_);
  ASSERT_TRUE(poll_until([&] { return !owner_.connections.empty(); }));
  child.kill();
  ASSERT_TRUE(poll_until([&] { return !owner_.closed.empty(); }));
  EXPECT_EQ(owner_.closed[0].code(), StatusCode::kUnavailable) << owner_.closed[0].to_string();
}

TEST_F(RdmaTest, AForkedChildDoesNotDisturbTheParent) {
  open();
  served_.when_messages = echo;
  const Child child([](int) {
    // Writes to every page that it shares with the parent.
    std::vector<std::byte> mine(32 * 1024 * 1024, std::byte{7});
    static_cast<void>(mine.back());
    ::pause();
  });
  const std::string text(200'000, 'y');
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(connection_->send(as_bytes(text)).ok());
  ASSERT_TRUE(poll_until([&] { return owner_.messages.size() == 5; }));
  for (const std::string& message : owner_.messages) EXPECT_EQ(message, text);
}

// ---- clear errors ---------------------------------------------------------------------------------------------------

TEST_F(RdmaTest, AnAddressWithoutADeviceIsAClearError) {
  Transport& one = add();
  const auto listener = one.listen(*Address::parse("rdma://192.0.2.1:7400"), served_);
  EXPECT_EQ(listener.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(listener.status().message().find("192.0.2.1 is not an address of an RDMA device"), std::string_view::npos)
      << listener.status().to_string();
  connect(one, *Address::parse("rdma://192.0.2.1:7400"), owner_);
  ASSERT_TRUE(poll_until([&] { return !owner_.closed.empty(); }));
  EXPECT_EQ(owner_.closed[0].code(), StatusCode::kUnavailable);
  EXPECT_NE(owner_.closed[0].message().find("cannot connect to rdma://192.0.2.1:7400: "), std::string_view::npos)
      << owner_.closed[0].to_string();
}

/// Needs no device, because the error occurs before a device is opened.
class RdmaModuleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* set = std::getenv("LOAM_MODULE_DIR"); set != nullptr) {  // NOLINT(concurrency-mt-unsafe)
      GTEST_SKIP() << "the module may be loaded already, from " << set;
    }
  }
};

TEST_F(RdmaModuleTest, AMissingModuleErrorListsTheSearchedFolders) {
  const auto transport = make_transport(Scheme::kRdma);
  ASSERT_EQ(transport.code(), StatusCode::kUnavailable);
  const std::string text = transport.status().to_string();
  EXPECT_NE(text.find("rdma:// needs the module loam-rdma.so, which is not in "), std::string::npos) << text;
  EXPECT_NE(text.find(std::filesystem::read_symlink("/proc/self/exe").parent_path().string()), std::string::npos)
      << text;
  EXPECT_NE(text.find("LOAM_MODULE_DIR"), std::string::npos) << text;
}

TEST_F(RdmaModuleTest, InvalidOptionsAreRefusedWithoutTheModule) {
  TransportOptions options;
  options.window_frames = 1;
  EXPECT_EQ(make_transport(Scheme::kRdma, options).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace loam::net
