// Limits of a network thread towards its peers.
#include "storage-node/src/server/network_thread.h"

#include "common/net/tcp_transport.h"
#include "storage-node/src/request/node_fixture.h"

namespace loam::storage {
namespace {

constexpr size_t kMessageBytes = size_t{1} << 20;
constexpr uint64_t kDeadlineNs = 30'000'000'000;

/// A client that reads only when it is told to.
class SlowClient : public net::Handler {
 public:
  explicit SlowClient(const net::Address& address) : transport_(net::make_tcp_transport().value()) {
    connection_ = transport_->connect(address, *this).value();
  }
  template <class F>
  [[nodiscard]] bool poll_until(F&& f) {
    for (const uint64_t until_ns = Env::now_ns() + kDeadlineNs; Env::now_ns() < until_ns;) {
      transport_->poll(10'000'000);
      if (f()) return true;
    }
    return false;
  }
  void on_connected(net::Connection& connection) override {
    connected = true;
    connection.pause_receiving();
  }
  void resume() { connection_->resume_receiving(); }
  template <wire::Message M>
  void send(uint64_t sequence, const M& message) {
    Buffer buffer;
    wire::encode_message(message, sequence, buffer);
    EXPECT_TRUE(connection_->send(buffer).ok());
  }
  void on_messages(net::Connection&, std::span<const Bytes> messages) override { received += messages.size(); }
  void on_closed(net::Connection&, const Status& status) override { closed = status; }

  bool connected = false;
  size_t received = 0;
  std::optional<Status> closed;

 private:
  std::unique_ptr<net::Transport> transport_;
  net::Connection* connection_ = nullptr;
};

class NetworkThreadTest : public NodeFixture, public PeerListener {
 protected:
  explicit NetworkThreadTest(double of_a_core = 0.25)
      : share({.share = of_a_core, .watermark = 0}),
        thread(0, 1, net::make_tcp_transport().value(), *registry, sessions, epochs, *pool, share) {
    address = thread.transport().listen(net::Address::parse("tcp://127.0.0.1:0").value(), thread).value()->address();
    thread.set_scans(scans, *this);
    thread.run();
  }
  // Not the destructor: by then the thread would call a listener that is half gone.
  void TearDown() override {
    thread.stop();
    for (std::byte* const block : blocks) pool->release(block, pool->page_size());
  }
  void attach(SlowClient& client) {
    enter_service();
    ASSERT_TRUE(client.poll_until([&] { return client.connected; }));
    client.resume();
    client.send(sequence, wire::Attach{SessionId(1), 1, kIncarnation});
  }
  void write_a_thousand(SlowClient& client) {
    const Buffer hundred = row(100);
    for (uint64_t batch = 0; batch < 10; ++batch) {
      wire::Write write{TransactionId(11), Snapshot(Version(10)), {}};
      for (uint64_t i = 0; i < 100; ++i) {
        write.operations.push_back({wire::WriteKind::kInsert, {kAccounts, Key(sequence * 100 + i)}, hundred});
      }
      client.send(++sequence, write);
    }
    ASSERT_TRUE(client.poll_until([&] { return client.received == sequence; }));
    // The thread gives way after the answers have left, and before it reads what comes then.
    client.send(++sequence, wire::Read{Snapshot(Version(10)), {{kAccounts, Key(1)}}});
    ASSERT_TRUE(client.poll_until([&] { return client.received == sequence; }));
  }
  void fill_pool() {
    while (pool->fill() < 0.9) blocks.push_back(pool->allocate(pool->page_size(), Reserve::kWrite));
  }
  void peer_gone(PeerId) override { gone.store(true, std::memory_order_release); }
  /// As scans do for the first peer.
  void post(size_t messages) {
    for (size_t i = 0; i < messages; ++i) thread.post({1, Buffer(kMessageBytes), {}});
  }
  bool was_let_go() const { return gone.load(std::memory_order_acquire); }

  uint64_t sequence = 1;  // of a client's requests
  std::vector<std::byte*> blocks;
  std::atomic<bool> gone{false};
  CompactionShare share;
  NetworkThread thread;
  net::Address address;
};

TEST_F(NetworkThreadTest, WhatASlowPeerHasNotReadYetWaits) {
  constexpr size_t kMessages = kMaxWaitingBytes / kMessageBytes;
  SlowClient client(address);
  ASSERT_TRUE(client.poll_until([&] { return client.connected; }));
  post(kMessages);
  client.resume();
  EXPECT_TRUE(client.poll_until([&] { return client.received == kMessages; }));
  EXPECT_FALSE(client.closed.has_value());
}

TEST_F(NetworkThreadTest, APeerThatDoesNotReadIsLetGo) {
  SlowClient client(address);
  ASSERT_TRUE(client.poll_until([&] { return client.connected; }));
  // The transport's own queue and the network take some more.
  post(3 * kMaxWaitingBytes / kMessageBytes);
  EXPECT_TRUE(client.poll_until([&] { return was_let_go(); })) << "memory without bound for a client that sleeps";
}

TEST_F(NetworkThreadTest, ItGivesWayToABackgroundThreadThatIsOwedTime) {
  SlowClient client(address);
  ASSERT_TRUE(client.poll_until([&] { return client.connected; }));
  EXPECT_EQ(thread.gave_way(), 0u) << "the pool is empty";
  std::byte* const block = pool->allocate(pool->page_size(), Reserve::kWrite);
  share.rests(1);  // it wants to run since the beginning of time
  EXPECT_TRUE(client.poll_until([&] {
    post(1);  // as if it were busy
    return thread.gave_way() > 3;
  }));
  pool->release(block, pool->page_size());
}

TEST_F(NetworkThreadTest, WritesAreSlowedWhileCompactionIsBehindAndMemoryShort) {
  SlowClient client(address);
  attach(client);
  share.collects(true);
  write_a_thousand(client);
  EXPECT_EQ(thread.gave_way(), 0u) << "there is room";
  fill_pool();
  share.collects(false);
  write_a_thousand(client);
  EXPECT_EQ(thread.gave_way(), 0u) << "there is nothing to wait for";
  share.collects(true);
  write_a_thousand(client);
  EXPECT_GT(thread.gave_way(), 0u);
}

class NeverGivesWayTest : public NetworkThreadTest {
 protected:
  NeverGivesWayTest() : NetworkThreadTest(0) {}
};

TEST_F(NeverGivesWayTest, WithoutAShareOfCompactionWritesAreNotSlowed) {
  SlowClient client(address);
  attach(client);
  fill_pool();
  share.collects(true);
  write_a_thousand(client);
  EXPECT_EQ(thread.gave_way(), 0u);
}

}  // namespace
}  // namespace loam::storage
