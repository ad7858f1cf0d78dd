// The limits of a network thread for its peers, and its sleeps while memory is short.
#include "storage-node/src/server/network_thread.h"

#include "common/net/tcp/tcp_transport.h"
#include "storage-node/testing/node_fixture.h"

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

class NetworkThreadTest : public NodeFixture, public PeerObserver {
 protected:
  explicit NetworkThreadTest(double of_a_core = 0.25)
      : share({.share = of_a_core, .watermark = 0}),
        thread(0, 1, net::make_tcp_transport().value(), *registry, sessions, epochs, *pool, share) {
    address = thread.transport().listen(net::Address::parse("tcp://127.0.0.1:0").value(), thread).value()->address();
    thread.set_scans(scans, *this);
    thread.run();
  }
  // Not in the destructor: the thread would call a listener that is partly destroyed.
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
    // The thread sleeps after it has sent the replies and before it reads the next requests.
    client.send(++sequence, wire::Read{Snapshot(Version(10)), {{kAccounts, Key(1)}}});
    ASSERT_TRUE(client.poll_until([&] { return client.received == sequence; }));
  }
  void fill_pool() {
    while (pool->fill() < 0.9) blocks.push_back(pool->allocate(pool->page_size(), Reserve::kWrite));
  }
  void peer_disconnected(PeerId) override { gone.store(true, std::memory_order_release); }
  /// Posts a message for the first peer, as scans do.
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

TEST_F(NetworkThreadTest, MessagesForASlowPeerAreQueued) {
  constexpr size_t kMessages = kMaxPeerQueueBytes / kMessageBytes;
  SlowClient client(address);
  ASSERT_TRUE(client.poll_until([&] { return client.connected; }));
  post(kMessages);
  client.resume();
  EXPECT_TRUE(client.poll_until([&] { return client.received == kMessages; }));
  EXPECT_FALSE(client.closed.has_value());
}

TEST_F(NetworkThreadTest, PeerThatDoesNotReadIsClosed) {
  SlowClient client(address);
  ASSERT_TRUE(client.poll_until([&] { return client.connected; }));
  // The queues of the transport and of the network hold some more.
  post(3 * kMaxPeerQueueBytes / kMessageBytes);
  EXPECT_TRUE(client.poll_until([&] { return was_let_go(); })) << "memory without bound for a client that sleeps";
}

// The status of the end is for people; the client acts on the reply.
TEST_F(NetworkThreadTest, AReplyBeforeTheEndOfAConnectionArrives) {
  SlowClient client(address);
  attach(client);
  ASSERT_TRUE(client.poll_until([&] { return client.received == 1; }));
  registry->fence(*epoch_thread, {SessionId(1), {}});
  client.send(2, wire::Read{Snapshot(Version(10)), {{kAccounts, Key(1)}}});
  ASSERT_TRUE(client.poll_until([&] { return client.closed.has_value(); }));
  EXPECT_EQ(client.received, 2u);
}

TEST_F(NetworkThreadTest, SleepsForABackgroundThreadThatIsOwedTime) {
  SlowClient client(address);
  ASSERT_TRUE(client.poll_until([&] { return client.connected; }));
  EXPECT_EQ(thread.throttle_count(), 0u) << "the pool is empty";
  std::byte* const block = pool->allocate(pool->page_size(), Reserve::kWrite);
  share.record_idle(1);  // the background thread has wanted to run since time 1
  EXPECT_TRUE(client.poll_until([&] {
    post(1);  // keeps the thread busy
    return thread.throttle_count() > 3;
  }));
  pool->release(block, pool->page_size());
}

TEST_F(NetworkThreadTest, WritesAreSlowedWhileCompactionIsBehindAndMemoryShort) {
  SlowClient client(address);
  attach(client);
  share.set_collecting(true);
  write_a_thousand(client);
  EXPECT_EQ(thread.throttle_count(), 0u) << "there is room";
  fill_pool();
  share.set_collecting(false);
  write_a_thousand(client);
  EXPECT_EQ(thread.throttle_count(), 0u) << "there is nothing to wait for";
  share.set_collecting(true);
  write_a_thousand(client);
  EXPECT_GT(thread.throttle_count(), 0u);
}

class NoThrottleTest : public NetworkThreadTest {
 protected:
  NoThrottleTest() : NetworkThreadTest(0) {}
};

TEST_F(NoThrottleTest, WithoutAShareOfCompactionWritesAreNotSlowed) {
  SlowClient client(address);
  attach(client);
  fill_pool();
  share.set_collecting(true);
  write_a_thousand(client);
  EXPECT_EQ(thread.throttle_count(), 0u);
}

}  // namespace
}  // namespace loam::storage
