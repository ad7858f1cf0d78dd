// A whole storage node over TCP with a scripted commit manager: lost connections, expired leases, fences, replacement
// of the node, and a stop with requests under way.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <loam/storage/admin.grpc.pb.h>
#include <loam/storage/node.h>

#include "common/base/env.h"
#include "common/net/tcp/tcp_transport.h"
#include "common/testing/eventually.h"
#include "common/wire/manager.h"
#include "common/wire/storage.h"

namespace loam::storage {
namespace {

using testing::eventually;
using wire::Opcode;

net::Address loopback() { return net::Address::parse("tcp://127.0.0.1:0").value(); }

/// A commit manager with one storage node, on a thread of its own.
class ManagerThread : public net::Handler {
 public:
  ManagerThread() : transport_(net::make_tcp_transport().value()) {
    answer_.node = NodeId(1);
    answer_.incarnation = Incarnation(7);
    answer_.manager_epoch = 1;
    answer_.catalog.shards.version = 1;
    answer_.catalog.shards.owners.assign(wire::kVirtualShards, NodeId(1));
    answer_.catalog.tables = {{TableId(2), "loam.counters", TableKind::kNonTransactional, schema()}};
    answer_.publication.cm_epoch = 1;
    answer_.publication.number = 1;
    answer_.history = {{1, 2}, {{1, 101, 1}}, 1};
    address_ = transport_->listen(loopback(), *this).value()->address().to_string();
    thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
  }
  ~ManagerThread() override {
    thread_.request_stop();
    transport_->wake();
  }
  ManagerThread(const ManagerThread&) = delete;
  ManagerThread& operator=(const ManagerThread&) = delete;

  static Schema schema() { return Schema::make({{"next", FieldType::kInt64, true}}).value(); }
  const std::string& address() const { return address_; }

  /// Runs `f(*this)` on the manager's thread, and waits for it.
  void act(const std::function<void()>& f) {
    std::unique_lock lock(mutex_);
    bool done = false;
    actions_.emplace_back([&] { f(), done = true; });
    transport_->wake();
    acted_.wait(lock, [&] { return done; });
  }
  wire::RegisterNodeReply& answer() { return answer_; }                      // inside act() or before
  void refuse_registration(Status status) { refusal_ = std::move(status); }  // inside act()
  void renew(bool renews) { renews_ = renews; }                              // inside act()
  void drop() {                                                              // inside act()
    if (node_ != nullptr) node_->close({StatusCode::kUnavailable, "the test says so"});
  }
  template <wire::Message M>
  void send(uint64_t sequence, const M& message) {  // inside act()
    Buffer buffer;
    wire::encode_message(message, sequence, buffer);
    EXPECT_TRUE(node_->send(buffer).ok());
  }

  size_t count(Opcode opcode) {
    const std::lock_guard lock(mutex_);
    return seen_[opcode];
  }
  std::vector<wire::RegisterNode> registrations() {
    const std::lock_guard lock(mutex_);
    return registrations_;
  }

  void on_messages(net::Connection& connection, std::span<const Bytes> messages) override {
    node_ = &connection;
    for (const Bytes message : messages) {
      ByteReader reader(message);
      wire::Envelope envelope;
      ASSERT_TRUE(wire::decode_envelope(reader, envelope).ok());
      if (envelope.opcode == Opcode::kRegisterNode) {
        wire::RegisterNode request;
        ASSERT_TRUE(wire::decode_body(reader, request).ok());
        if (refusal_.ok()) {
          send(envelope.sequence, answer_);
        } else {
          send(envelope.sequence, wire::Error{refusal_});
        }
        const std::lock_guard lock(mutex_);
        registrations_.push_back(request);
      } else if (envelope.opcode == Opcode::kRenewNode && renews_) {
        send(envelope.sequence, wire::RenewNodeReply{});
      }
      const std::lock_guard lock(mutex_);
      ++seen_[envelope.opcode];
    }
  }
  void on_closed(net::Connection& connection, const Status&) override {
    if (node_ == &connection) node_ = nullptr;
  }

 private:
  void loop(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      transport_->poll(10'000'000);
      const std::lock_guard lock(mutex_);
      for (; !actions_.empty(); actions_.pop_front()) actions_.front()();
      acted_.notify_all();
    }
  }

  std::unique_ptr<net::Transport> transport_;
  std::string address_;
  // Used by the manager's thread.
  net::Connection* node_ = nullptr;
  wire::RegisterNodeReply answer_;
  Status refusal_;
  bool renews_ = true;
  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable acted_;
  std::deque<std::function<void()>> actions_;
  std::map<Opcode, size_t> seen_;
  std::vector<wire::RegisterNode> registrations_;
  std::jthread thread_;
};

/// A client's connection, polled by the test's thread.
class ClientConnection : public net::Handler {
 public:
  explicit ClientConnection(const std::string& address) : transport_(net::make_tcp_transport().value()) {
    connection_ = transport_->connect(net::Address::parse(address).value(), *this).value();
  }
  template <wire::Message M>
  void send(uint64_t sequence, const M& message) {
    Buffer buffer;
    wire::encode_message(message, sequence, buffer);
    ASSERT_NE(connection_, nullptr);
    EXPECT_TRUE(connection_->send(buffer).ok());
  }
  void attach(uint64_t session) {
    send(1, wire::Attach{SessionId(session), 1, Incarnation(7)});
    EXPECT_EQ(wait(1), Opcode::kAttachReply);
  }
  /// Returns the opcode of the reply with this sequence; kError if none arrives.
  Opcode wait(uint64_t sequence) {
    EXPECT_TRUE(eventually([&] { return poll(), answers_.contains(sequence) || closed_.has_value(); }));
    return answers_.contains(sequence) ? answers_.at(sequence) : Opcode::kError;
  }
  StatusCode error(uint64_t sequence) {
    EXPECT_EQ(wire::to_string(wait(sequence)), wire::to_string(Opcode::kError));
    return errors_[sequence];
  }
  bool closed() {
    poll();
    return closed_.has_value();
  }
  size_t answers() const { return answers_.size(); }
  void poll() { transport_->poll(0); }

  void on_messages(net::Connection&, std::span<const Bytes> messages) override {
    for (const Bytes message : messages) {
      ByteReader reader(message);
      wire::Envelope envelope;
      ASSERT_TRUE(wire::decode_envelope(reader, envelope).ok());
      EXPECT_TRUE(answers_.emplace(envelope.sequence, envelope.opcode).second) << "answered twice";
      wire::Error error;
      if (envelope.opcode == Opcode::kError && wire::decode_body(reader, error).ok()) {
        errors_[envelope.sequence] = error.status.code();
      }
    }
  }
  void on_closed(net::Connection&, const Status& status) override {
    closed_ = status;
    connection_ = nullptr;
  }

 private:
  std::unique_ptr<net::Transport> transport_;
  net::Connection* connection_ = nullptr;
  std::map<uint64_t, Opcode> answers_;
  std::map<uint64_t, StatusCode> errors_;
  std::optional<Status> closed_;
};

wire::PlainRead read() { return {{{TableId(2), Key(1)}}}; }

class NodeManagerTest : public ::testing::Test {
 protected:
  void start(unsigned network_threads = 1, unsigned scan_threads = 1) {
    NodeOptions options;
    options.manager = manager.address();
    options.memory_bytes = 16u << 20;
    options.page_bytes = 256u << 10;
    options.huge_pages = false;
    options.network_threads = network_threads;
    options.scan_threads = scan_threads;
    options.admin_listen = admin_listen;
    auto started = StorageNode::start(options, [this](const Status& status) {
      const std::lock_guard lock(mutex_);
      ended_ = status.code();
    });
    ASSERT_TRUE(started.ok()) << started.status().to_string();
    node = std::move(started).value();
  }
  StatusCode ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  std::string admin_listen;  ///< empty: none
  ManagerThread manager;
  std::unique_ptr<StorageNode> node;

 private:
  std::mutex mutex_;
  StatusCode ended_ = StatusCode::kOk;  // guarded by mutex_
};

TEST_F(NodeManagerTest, NodeReconnectsAfterALostConnection) {
  start();
  manager.act([&] {
    manager.answer().catalog.tables.push_back({TableId(3), "t", TableKind::kTransactional, ManagerThread::schema()});
    manager.drop();
  });
  ASSERT_TRUE(eventually([&] { return node->statistics().reconnects == 1; }));
  const auto registrations = manager.registrations();
  ASSERT_EQ(registrations.size(), 2u);
  EXPECT_EQ(registrations[0].incarnation, Incarnation(0));
  EXPECT_EQ(registrations[1].incarnation, Incarnation(7));
  EXPECT_EQ(node->statistics().tables.size(), 2u) << "created while the node was not connected";
  ClientConnection client(node->address());
  client.attach(5);
  client.send(2, read());
  EXPECT_EQ(client.wait(2), Opcode::kPlainReadReply);
}

// Each thread that enters epochs has a slot. All callers of statistics share one slot.
TEST_F(NodeManagerTest, AnyNumberOfCallersGetStatisticsWithTheMostThreads) {
  start(64, 64);
  std::vector<std::jthread> callers;
  callers.reserve(8);
  std::atomic<size_t> tables{0};
  for (size_t i = 0; i < 8; ++i) {
    // Relaxed: a sum, read after the threads have ended.
    callers.emplace_back([&] { tables.fetch_add(node->statistics().tables.size(), std::memory_order_relaxed); });
  }
  callers.clear();
  EXPECT_EQ(tables.load(std::memory_order_relaxed), 8u);
  EXPECT_EQ(node->check_invariants(), "");
}

TEST_F(NodeManagerTest, ReplacedNodeReportsItAndServesNothing) {
  start();
  ClientConnection client(node->address());
  client.attach(5);
  manager.act([&] {
    manager.refuse_registration({StatusCode::kFenced, "replaced by incarnation 8"});
    manager.drop();
  });
  ASSERT_TRUE(eventually([&] { return ended() == StatusCode::kFenced; }));
  client.send(2, read());
  EXPECT_EQ(client.error(2), StatusCode::kUnavailable);
}

TEST_F(NodeManagerTest, WrongCommitManagerEndsTheLeaseAndKeepsTheRecords) {
  manager.act([&] { manager.answer().lease_ns = 100'000'000; });
  start();
  EXPECT_EQ(node->statistics().cluster, wire::to_string({1, 2}));
  const auto right = [&] {
    manager.answer().history.cluster = {1, 2};
    manager.refuse_registration(ok_status());
  };
  const auto refused = [&](const std::string& why) {
    manager.act([&] { manager.drop(); });
    ASSERT_TRUE(eventually([&] { return node->statistics().manager_refusal.find(why) != std::string::npos; })) << why;
    ASSERT_TRUE(eventually([&] { return !node->statistics().lease_holds; }));
    ClientConnection client(node->address());
    client.attach(5);
    client.send(2, read());
    EXPECT_EQ(client.error(2), StatusCode::kUnavailable);
    EXPECT_EQ(node->statistics().tables.size(), 1u);
    EXPECT_EQ(ended(), StatusCode::kOk);
    manager.act([&] { right(), manager.drop(); });
    ASSERT_TRUE(eventually([&] { return node->statistics().lease_holds; }));
    EXPECT_TRUE(node->statistics().manager_refusal.empty());
    client.send(3, read());
    EXPECT_EQ(client.wait(3), Opcode::kPlainReadReply);
  };
  // A commit manager that shows another cluster, and whose catalog would make the node drop its tables.
  manager.act([&] { manager.answer().history.cluster = {3, 4}; });
  refused(wire::to_string({3, 4}));
  // A commit manager that refuses the node's report itself.
  manager.act([&] { manager.refuse_registration({StatusCode::kWrongCluster, "an older state"}); });
  refused("an older state");
}

TEST_F(NodeManagerTest, HealthReportsTheClusterAndTheRefusal) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "gRPC is not built for ThreadSanitizer";
#endif
  admin_listen = "127.0.0.1:0";
  start();
  const auto stub =
      admin::NodeAdmin::NewStub(grpc::CreateChannel(node->admin_address(), grpc::InsecureChannelCredentials()));
  admin::HealthReply health;
  const auto asked = [&] {
    grpc::ClientContext context;
    return stub->Health(&context, admin::HealthRequest(), &health).ok();
  };
  ASSERT_TRUE(asked());
  EXPECT_TRUE(health.in_service());
  EXPECT_EQ(health.cluster(), wire::to_string({1, 2}));
  EXPECT_EQ(health.manager_refusal(), "");
  manager.act([&] { manager.answer().history.cluster = {3, 4}, manager.drop(); });
  ASSERT_TRUE(eventually([&] { return asked() && !health.manager_refusal().empty(); }));
  EXPECT_NE(health.manager_refusal().find(wire::to_string({3, 4})), std::string::npos) << health.manager_refusal();
}

TEST_F(NodeManagerTest, StartsAlthoughTheCommitManagerWaitsForOthers) {
  manager.refuse_registration({StatusCode::kUnavailable, "storage node 2 has not reported"});
  start();
  EXPECT_EQ(node->statistics().node, 0u);
  manager.act([&] { manager.refuse_registration(ok_status()); });
  EXPECT_TRUE(eventually([&] { return node->statistics().node == 1; }));
}

TEST_F(NodeManagerTest, WithoutRenewalsTheNodeStopsServingUntilTheNextOne) {
  manager.act([&] { manager.answer().lease_ns = 100'000'000; });
  start();
  ClientConnection client(node->address());
  client.attach(5);
  ASSERT_TRUE(eventually([&] { return manager.count(Opcode::kRenewNode) > 4; })) << "four in a lease";
  client.send(2, read());
  EXPECT_EQ(client.wait(2), Opcode::kPlainReadReply);
  manager.act([&] { manager.renew(false); });
  ASSERT_TRUE(eventually([&] { return !node->statistics().lease_holds; }));
  client.send(3, read());
  EXPECT_EQ(client.error(3), StatusCode::kUnavailable);
  manager.act([&] { manager.renew(true); });
  // The node closes the connection with the unanswered renewal.
  ASSERT_TRUE(eventually([&] { return node->statistics().lease_holds; }));
  client.send(4, read());
  EXPECT_EQ(client.wait(4), Opcode::kPlainReadReply);
  EXPECT_GE(node->statistics().refused, 1u);
}

TEST_F(NodeManagerTest, AFenceEndsTheSessionsConnectionsOnEveryThread) {
  start(2);
  std::deque<ClientConnection> clients;
  for (uint64_t session = 5; session <= 8; ++session) clients.emplace_back(node->address()).attach(session);
  EXPECT_EQ(node->statistics().sessions, 4u);
  manager.act([&] { manager.send(9, wire::Fence{{SessionId(8), {SessionId(6)}}}); });
  ASSERT_TRUE(eventually([&] { return manager.count(Opcode::kFenceReply) == 1; }));
  for (const size_t dead : {size_t{0}, size_t{2}, size_t{3}})
    EXPECT_TRUE(eventually([&] { return clients[dead].closed(); })) << dead;
  clients[1].send(2, read());
  EXPECT_EQ(clients[1].wait(2), Opcode::kPlainReadReply);
  EXPECT_EQ(node->statistics().sessions, 1u);
}

TEST_F(NodeManagerTest, ANewConnectionOfASessionEndsTheOlderOnAnotherThread) {
  start(2);
  ClientConnection first(node->address());
  first.attach(5);
  ClientConnection second(node->address());
  second.attach(5);
  EXPECT_TRUE(eventually([&] { return first.closed(); }));
  second.send(2, read());
  EXPECT_EQ(second.wait(2), Opcode::kPlainReadReply);
  EXPECT_EQ(node->statistics().sessions, 1u);
}

TEST_F(NodeManagerTest, StopAnswersReceivedRequests) {
  constexpr uint64_t kRequests = 2'000;
  start();
  ClientConnection client(node->address());
  client.attach(5);
  for (uint64_t i = 0; i < kRequests; ++i) client.send(2 + i, read());
  EXPECT_EQ(client.wait(2), Opcode::kPlainReadReply);
  std::jthread stopping([&] { node->stop(); });
  EXPECT_TRUE(eventually([&] { return client.closed(); }));
  EXPECT_EQ(client.answers(), 1 + kRequests) << "each has a reply, if only that the node stops";
}

}  // namespace
}  // namespace loam::storage
