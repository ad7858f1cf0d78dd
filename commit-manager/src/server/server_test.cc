// The server on the simulated network: one thread, one clock, everything from a seed.
#include "commit-manager/src/server/server.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "commit-manager/testing/test_peer.h"
#include "common/net/simulated/sim_transport.h"
#include "common/net/tcp/tcp_transport.h"

namespace loam::commit {
namespace {

struct ServerTest : ::testing::Test {
  ServerTest() {
    server_transport = network.make_transport("cm").value();
    peer_transport = network.make_transport("peers").value();
    server = std::make_unique<Server>(options(), *server_transport, [this] { return network.now_ns(); });
    EXPECT_TRUE(server->listen(net::Address::parse("sim://cm:1").value()).ok());
  }
  ~ServerTest() override { server_transport.reset(); }

  static CoreOptions options() {
    CoreOptions options;
    options.initial_nodes = 0;
    options.client_lease_ns = 100'000'000;
    return options;
  }

  void step() {
    server->step(1'000'000);
    peer_transport->poll(1'000'000);
  }

  std::unique_ptr<TestPeer> connect() {
    return std::make_unique<TestPeer>(*peer_transport, "sim://cm:1", [this] { step(); });
  }

  std::unique_ptr<TestPeer> client() {
    auto peer = connect();
    EXPECT_TRUE(peer->call<wire::OpenSessionReply>(wire::OpenSession{"test"}).ok());
    return peer;
  }

  net::SimNetwork network;
  std::unique_ptr<net::Transport> server_transport;
  std::unique_ptr<net::Transport> peer_transport;
  std::unique_ptr<Server> server;
};

TEST_F(ServerTest, ServesClientsAndNodes) {
  auto node = connect();
  const auto registered = node->call<wire::RegisterNodeReply>(wire::RegisterNode{"sim://node:1", "", 1});
  ASSERT_TRUE(registered.ok()) << registered.status().to_string();
  auto a = client();
  auto b = client();
  const auto begun = a->call<wire::BeginReply>(wire::Begin{2, true});
  ASSERT_TRUE(begun.ok()) << begun.status().to_string();
  ASSERT_TRUE(a->call<wire::CompleteReply>(wire::Complete{{{begun->first_id, true}}}).ok());
  const auto later = b->call<wire::BeginReply>(wire::Begin{1, false});
  EXPECT_TRUE(later->snapshot.visible(version_of(begun->first_id)));
  const auto published = node->receive<wire::Publish>();
  ASSERT_TRUE(published.ok()) << "the deadline wakes the server";
  EXPECT_GT(published->publication.number, registered->publication.number);
}

TEST_F(ServerTest, AFrameIsOneBatch) {
  auto a = client();
  const uint64_t frames = server->counters().frames_in.read();
  for (int i = 0; i < 10; ++i) a->post(wire::Begin{1, false});
  for (uint64_t i = 0; i < 10; ++i) {
    const auto begun = a->receive<wire::BeginReply>();
    ASSERT_TRUE(begun.ok());
    EXPECT_EQ(begun->first_id.value, i + 1);
  }
  EXPECT_EQ(server->counters().frames_in.read(), frames + 1);
}

TEST_F(ServerTest, EndsSilentSession) {
  auto a = client();
  ASSERT_TRUE(a->call<wire::BeginReply>(wire::Begin{3, true}).ok());
  network.drop_connections("cm", "peers");
  ASSERT_TRUE(a->until([&] { return server->core().statistics().sessions == 0; }));
  EXPECT_EQ(server->core().statistics().open, 0u);
  EXPECT_EQ(server->core().statistics().recovered_aborted, 3u) << "without storage nodes there is nothing to undo";
  EXPECT_EQ(server->core().statistics().read_only_snapshots, 0u);
  server->core().check_invariants();
}

TEST_F(ServerTest, MalformedBytesCloseOnlyTheirConnection) {
  auto good = client();
  auto bad = client();
  const Buffer garbage = {std::byte{42}, std::byte{0xff}, std::byte{0xff}};
  bad->send_raw(garbage);
  const auto error = bad->receive<wire::CompleteReply>();
  EXPECT_EQ(error.code(), StatusCode::kMalformed) << error.status().to_string();
  ASSERT_TRUE(bad->until([&] { return bad->closed().has_value(); }));
  EXPECT_TRUE(good->call<wire::BeginReply>(wire::Begin{1, false}).ok()) << "no other client is disturbed";
  EXPECT_EQ(server->core().statistics().sessions, 1u);
}

TEST_F(ServerTest, RunsPostedTasksUntilPostsAreClosed) {
  auto a = client();
  int ran = 0;
  ASSERT_TRUE(server->post([&](Core& core) { ran += core.statistics().sessions == 1 ? 1 : 0; }));
  ASSERT_TRUE(a->until([&] { return ran == 1; }));
  ASSERT_TRUE(server->post([&](Core&) { ++ran; }));
  server->close_task_queue();
  EXPECT_FALSE(server->post([&](Core&) { ++ran; }));
  step();
  EXPECT_EQ(ran, 1);
}

TEST(ServerOnTcp, OtherThreadsPostWhileClientsWork) {
  auto server_transport = net::make_tcp_transport().value();
  Server server(ServerTest::options(), *server_transport, [] { return Env::now_ns(); });
  const net::Address address = server.listen(net::Address::parse("tcp://127.0.0.1:0").value()).value();
  std::atomic<bool> stopping{false};
  std::thread thread([&] {
    while (!stopping.load(std::memory_order_relaxed)) server.step(1'000'000'000);
  });
  std::atomic<uint64_t> posted{0};
  std::thread poster([&] {
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(server.post([&](Core&) { posted.fetch_add(1, std::memory_order_relaxed); }));
    }
  });
  auto transport = net::make_tcp_transport().value();
  TestPeer peer(*transport, address.to_string(), [&] { transport->poll(10'000'000); });
  ASSERT_TRUE(peer.call<wire::OpenSessionReply>(wire::OpenSession{"tcp"}).ok());
  for (uint64_t i = 0; i < 200; ++i) {
    const auto begun = peer.call<wire::BeginReply>(wire::Begin{4, true});
    ASSERT_TRUE(begun.ok()) << begun.status().to_string();
    ASSERT_EQ(begun->snapshot.high().value, i * 4);
    wire::Complete complete;
    for (uint64_t k = 0; k < 4; ++k) complete.outcomes.push_back({TransactionId(begun->first_id.value + k), k != 1});
    peer.post(complete);
    peer.post(wire::ReleaseSnapshots{{begun->snapshot_number}});
    ASSERT_TRUE(peer.receive<wire::CompleteReply>().ok());
  }
  poster.join();
  EXPECT_TRUE(peer.until([&] { return posted.load(std::memory_order_relaxed) == 200; }));
  stopping.store(true, std::memory_order_relaxed);
  server_transport->wake();
  thread.join();
  EXPECT_EQ(server.core().statistics().commits, 600u);
  EXPECT_EQ(server.core().statistics().aborts, 200u);
  server.core().check_invariants();
  server_transport.reset();
}

}  // namespace
}  // namespace loam::commit
