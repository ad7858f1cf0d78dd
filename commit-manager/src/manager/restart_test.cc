// The data that survives a commit manager, and its end when its folder fails.
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>
#include <utility>

#include "commit-manager/testing/manager_fixture.h"
#include "commit-manager/testing/memory_disk.h"

namespace loam::commit {
namespace {

namespace fs = std::filesystem;

struct RestartTest : ManagerTest {
  RestartTest() {
    std::string name = (fs::temp_directory_path() / "loam_manager_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    folder = name;
  }
  ~RestartTest() override {
    manager.reset();
    fs::remove_all(folder);
  }

  ManagerOptions options(uint32_t nodes = 0) const {
    ManagerOptions options = default_options(nodes);
    options.data = folder.string();
    options.admin_listen = "";
    return options;
  }

  /// Opens a session when the running manager serves clients.
  std::unique_ptr<TestPeer> open_session(wire::OpenSessionReply& opened) {
    std::unique_ptr<TestPeer> peer = connect();
    EXPECT_TRUE(peer->until([&] {
      auto answer = peer->call<wire::OpenSessionReply>(wire::OpenSession{"test"});
      if (answer.ok()) opened = std::move(answer).value();
      return answer.ok() || answer.code() != StatusCode::kUnavailable;
    }));
    EXPECT_NE(opened.session, SessionId());
    return peer;
  }

  /// Begins `count` transactions, once the manager has recovered the transactions of earlier epochs.
  Result<wire::BeginReply> begin(TestPeer& peer, uint32_t count) {
    Result<wire::BeginReply> begun = Status(StatusCode::kTimeout, "never");
    (void)peer.until([&] {
      begun = peer.call<wire::BeginReply>(wire::Begin{count, false});
      return begun.code() != StatusCode::kUnavailable;
    });
    return begun;
  }

  fs::path folder;
};

TEST_F(RestartTest, NeverGivesAnIdOrSessionTwice) {
  uint64_t last_id = 0;
  uint64_t last_session = 0;
  uint64_t last_epoch = 0;
  for (int round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    ManagerOptions wanted = options();
    wanted.core.ids_ahead = 1 + static_cast<uint64_t>(round) * 3;  // also when the bound is met on the way
    start(wanted);
    if (HasFatalFailure()) return;
    wire::OpenSessionReply opened;
    const auto client = open_session(opened);
    EXPECT_GT(opened.session.value, last_session);
    EXPECT_GT(opened.manager_epoch, last_epoch);
    last_session = opened.session.value;
    last_epoch = opened.manager_epoch;
    for (uint32_t count = 1; count <= 4; ++count) {
      const auto begun = begin(*client, count);
      ASSERT_TRUE(begun.ok()) << begun.status().to_string();
      ASSERT_GT(begun->first_id.value, last_id);
      last_id = begun->first_id.value + count - 1;
    }
    manager.reset();  // with everything open
    ASSERT_TRUE(client->until([&] { return client->closed().has_value(); }));
  }
}

TEST_F(RestartTest, FailedStartsTakeNoEpoch) {
  start(options());
  ManagerOptions other = options();
  other.data = (folder / "other").string();
  other.admin_listen = "127.0.0.1:0";
  for (int attempt = 0; attempt < 5; ++attempt) {
    other.listen = manager->address();
    ASSERT_EQ(CommitManager::start(other).code(), StatusCode::kUnavailable);
    other.listen = "tcp://127.0.0.1:0";
    other.admin_listen = manager->address().substr(std::string("tcp://").size());
    ASSERT_EQ(CommitManager::start(other).code(), StatusCode::kUnavailable);
    other.admin_listen = "127.0.0.1:0";
  }
  const auto right = CommitManager::start(other);
  ASSERT_TRUE(right.ok()) << right.status().to_string();
  EXPECT_EQ((*right)->statistics().core.epoch, 1u);
}

/// A storage that outlives the managers of a test.
struct MemoryStore final : StableStorage {
  Bytes stored_state() const override { return state; }
  Status store(Bytes wanted) override {
    if (full) return {StatusCode::kNoSpace, "the disk is full"};
    state.assign(wanted.begin(), wanted.end());
    return ok_status();
  }
  Result<std::unique_ptr<LogDevice>> log_device() override { return disk.device(); }
  Buffer state;
  MemoryDisk disk;
  bool full = false;
};

TEST_F(RestartTest, StoreKeepsTheSameAsAFolder) {
  MemoryStore store;
  ManagerOptions wanted = options();
  wanted.store = &store;
  EXPECT_EQ(wanted.check().code(), StatusCode::kInvalidArgument) << "both a folder and a store";
  wanted.data.clear();
  uint64_t last_session = 0;
  for (uint64_t round = 1; round <= 3; ++round) {
    start(wanted);
    if (HasFatalFailure()) return;
    wire::OpenSessionReply opened;
    const auto client = open_session(opened);
    EXPECT_EQ(opened.manager_epoch, round);
    EXPECT_GT(opened.session.value, last_session);
    last_session = opened.session.value;
    manager.reset();
    ASSERT_TRUE(client->until([&] { return client->closed().has_value(); }));
  }
  store.full = true;
  EXPECT_EQ(CommitManager::start(wanted).code(), StatusCode::kNoSpace);
  store.full = false;
  store.state.back() ^= std::byte{1};
  const auto damaged = CommitManager::start(wanted);
  EXPECT_EQ(damaged.code(), StatusCode::kInternal);
  EXPECT_NE(damaged.status().message().find("store"), std::string_view::npos) << damaged.status().to_string();
}

TEST_F(RestartTest, StateAndCommitLogBelongTogether) {
  MemoryStore store;
  ManagerOptions wanted = options();
  wanted.data.clear();
  wanted.store = &store;
  start(wanted);
  if (HasFatalFailure()) return;
  wire::OpenSessionReply opened;
  const auto client = open_session(opened);
  const auto begun = begin(*client, 1);
  ASSERT_TRUE(begun.ok()) << begun.status().to_string();
  ASSERT_TRUE(client->call<wire::CompleteReply>(wire::Complete{{{begun->first_id, true}}}).ok());
  manager.reset();
  const Buffer state = std::exchange(store.state, {});
  const auto without = CommitManager::start(wanted);
  EXPECT_EQ(without.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(without.status().message().find("a commit log of 1 commits, and no state"), std::string_view::npos)
      << without.status().to_string();
  EXPECT_TRUE(store.state.empty()) << "nothing was begun";
  store.state = state;
  EXPECT_TRUE(CommitManager::start(wanted).ok());
}

/// A storage that stalls on demand.
class StallingStore final : public StableStorage {
 public:
  Bytes stored_state() const override { return state_; }
  Status store(Bytes wanted) override {
    std::unique_lock lock(mutex_);
    ++entered_;
    changed_.wait(lock, [this] { return !stalled_; });
    state_.assign(wanted.begin(), wanted.end());
    return ok_status();
  }
  Result<std::unique_ptr<LogDevice>> log_device() override { return disk_.device(); }
  void stall(bool stalled) {
    const std::lock_guard lock(mutex_);
    stalled_ = stalled;
    entered_ = 0;
    changed_.notify_all();
  }
  bool stalls() {
    const std::lock_guard lock(mutex_);
    return stalled_ && entered_ > 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Buffer state_;
  MemoryDisk disk_;
  bool stalled_ = false;
  int entered_ = 0;
};

TEST_F(RestartTest, ADiskThatStallsStopsNeitherBeginsNorRenewals) {
  StallingStore store;
  const std::shared_ptr<void> end(nullptr, [&](void*) {
    store.stall(false);
    manager.reset();  // before its store
  });
  ManagerOptions wanted = options(1);
  wanted.data.clear();
  wanted.store = &store;
  wanted.core.client_lease_ns = wanted.core.node_lease_ns = 3'600'000'000'000;
  start(wanted);
  const auto node = connect();
  ASSERT_TRUE(node->call<wire::RegisterNodeReply>(wire::RegisterNode{"tcp://n:1", "", 1}).ok());
  wire::OpenSessionReply opened;
  const auto client = open_session(opened);
  const auto creator = open_session(opened);
  store.stall(true);
  creator->post(wire::CreateTable{"accounts", TableKind::kTransactional,
                                  Schema::make({{"id", FieldType::kInt64, false}}).value()});
  ASSERT_TRUE(creator->until([&] { return store.stalls(); }));
  for (int i = 0; i < 50; ++i) {
    const auto begun = client->call<wire::BeginReply>(wire::Begin{2, true});
    ASSERT_TRUE(begun.ok()) << begun.status().to_string();
    ASSERT_TRUE(client->call<wire::CompleteReply>(wire::Complete{{{begun->first_id, true}}}).ok());
    ASSERT_TRUE(client->call<wire::RenewSessionReply>(wire::RenewSession{}).ok());
    ASSERT_TRUE(node->call<wire::RenewNodeReply>(wire::RenewNode{}).ok());
  }
  const ManagerStatistics statistics = manager->statistics();
  EXPECT_TRUE(statistics.core.storing);
  EXPECT_EQ(statistics.core.pending_changes, 1u) << "the storage node hears of the table later";
  store.stall(false);
  uint64_t sequence = 0;
  ASSERT_TRUE(node->receive<wire::InstallTable>(&sequence).ok());
  node->reply(sequence, wire::InstallTableReply{});
  EXPECT_TRUE(creator->receive<wire::CreateTableReply>().ok());
  EXPECT_EQ(manager->statistics().core.sessions, 2u);
}

TEST_F(RestartTest, StatisticsOfAStoppedManagerAreZero) {
  start(options());
  EXPECT_GT(manager->statistics().uptime_ns, 0u);
  std::thread stopping([&] { manager->stop(); });
  while (manager->statistics().uptime_ns > 0) std::this_thread::yield();  // until it is refused, or dropped
  stopping.join();
  EXPECT_EQ(manager->statistics().uptime_ns, 0u);
}

TEST_F(RestartTest, KeepsTables) {
  ManagerOptions with_admin = options();
  with_admin.admin_listen = "127.0.0.1:0";
  start(with_admin);
  admin::CreateTableReply created;
  ASSERT_EQ(call(&Stub::CreateTable, accounts(), created), grpc::OK) << message;
  manager.reset();
  start(with_admin);
  admin::Table table;
  admin::DescribeTableRequest describe;
  describe.set_name("accounts");
  ASSERT_EQ(call(&Stub::DescribeTable, describe, table), grpc::OK) << message;
  EXPECT_EQ(table.id(), created.table().id());
  EXPECT_EQ(table.fields_size(), 2);
  admin::StatisticsReply statistics;
  ASSERT_EQ(call(&Stub::Statistics, admin::StatisticsRequest(), statistics), grpc::OK);
  EXPECT_EQ(number_of(statistics, "epoch"), 2u);
  EXPECT_GT(number_of(statistics, "durable_bytes"), 0u);
}

TEST_F(RestartTest, RefusesAFolderInUse) {
  start(options());
  const auto second = CommitManager::start(options());
  EXPECT_EQ(second.code(), StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find(folder.string()), std::string_view::npos) << second.status().to_string();
}

TEST_F(RestartTest, RefusesADamagedState) {
  start(options());
  manager.reset();
  const auto size = static_cast<std::streamoff>(fs::file_size(folder / "state"));
  {
    std::fstream file(folder / "state", std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(size - 1);
    const int last = file.get();
    file.seekp(size - 1);
    file.put(static_cast<char>(last ^ 1));
  }
  const auto damaged = CommitManager::start(options());
  EXPECT_EQ(damaged.code(), StatusCode::kInternal);
  EXPECT_NE(damaged.status().message().find("checksum"), std::string_view::npos) << damaged.status().to_string();
  EXPECT_NE(damaged.status().message().find(folder.string()), std::string_view::npos);
  fs::resize_file(folder / "state", static_cast<uintmax_t>(size / 2));
  EXPECT_EQ(CommitManager::start(options()).code(), StatusCode::kInternal);
}

TEST_F(RestartTest, EndsItselfWhenItsFolderFails) {
  std::mutex mutex;
  Status failure;
  ManagerOptions wanted = options();
  wanted.admin_listen = "127.0.0.1:0";
  wanted.on_failure = [&](const Status& status) {
    const std::lock_guard lock(mutex);
    failure = status;
  };
  start(wanted);
  wire::OpenSessionReply opened;
  const auto client = open_session(opened);
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  fs::create_symlink("/dev/full", folder / "state.new");
  admin::CreateTableReply created;
  EXPECT_NE(call(&Stub::CreateTable, accounts(), created), grpc::OK);
  ASSERT_TRUE(client->until([&] {
    const std::lock_guard lock(mutex);
    return !failure.ok();
  }));
  EXPECT_EQ(failure.code(), StatusCode::kNoSpace) << failure.to_string();
  EXPECT_TRUE(client->until([&] { return client->closed().has_value(); })) << "it answers no request any more";
  manager.reset();
  start(options());
  wire::OpenSessionReply again;
  const auto next = open_session(again);
  EXPECT_GT(again.session, opened.session) << "the next one goes on";
}

TEST_F(RestartTest, LossesAreAcceptedByAnOperator) {
  ManagerOptions wanted = options(1);
  wanted.admin_listen = "127.0.0.1:0";
  wanted.admin_timeout_ns = 10'000'000'000;
  start(wanted);
  const auto first = connect();
  ASSERT_TRUE(first->call<wire::RegisterNodeReply>(wire::RegisterNode{"tcp://n:1", "", 1}).ok());
  admin::AcceptLossRequest loss;
  admin::AcceptLossReply accepted;
  loss.set_node(7);
  EXPECT_EQ(call(&Stub::AcceptLoss, loss, accepted), grpc::INVALID_ARGUMENT) << message;
  loss.set_node(1);
  EXPECT_EQ(call(&Stub::AcceptLoss, loss, accepted), grpc::INVALID_ARGUMENT) << message;

  // A new process of the same storage node.
  const auto second = connect();
  const auto registered = second->call<wire::RegisterNodeReply>(wire::RegisterNode{"tcp://n:1", "", 1});
  ASSERT_TRUE(registered.ok()) << registered.status().to_string();
  EXPECT_TRUE(registered->memory_lost);
  second->keep_lease();  // the loss counts when the leases of the node's earlier starts have run out
  admin::ListNodesReply nodes;
  ASSERT_EQ(call(&Stub::ListNodes, admin::ListNodesRequest(), nodes), grpc::OK);
  ASSERT_EQ(nodes.nodes_size(), 1);
  EXPECT_EQ(nodes.nodes(0).state(), admin::LOST);
  EXPECT_FALSE(nodes.nodes(0).live());
  EXPECT_EQ(nodes.nodes(0).shards(), wire::kVirtualShards) << "they stay its own";

  grpc::StatusCode code = grpc::UNKNOWN;
  std::thread operator_thread([&] {
    grpc::ClientContext context;
    code = stub->AcceptLoss(&context, loss, &accepted).error_code();
  });
  uint64_t sequence = 0;
  const auto accept_loss = second->receive<wire::AcceptLoss>(&sequence);
  EXPECT_TRUE(accept_loss.ok()) << accept_loss.status().to_string();
  if (accept_loss.ok()) second->reply(sequence, wire::AcceptLossReply{});
  EXPECT_TRUE(second->until(
      [&] { return call(&Stub::ListNodes, admin::ListNodesRequest(), nodes) == grpc::OK && nodes.nodes(0).live(); }));
  operator_thread.join();
  EXPECT_EQ(code, grpc::OK);
  admin::ShardMap shards;
  ASSERT_EQ(call(&Stub::GetShardMap, admin::GetShardMapRequest(), shards), grpc::OK);
  ASSERT_EQ(shards.owners_size(), wire::kVirtualShards);
  EXPECT_EQ(shards.owners(0), 1u);
}

TEST_F(RestartTest, ListsSessions) {
  ManagerOptions wanted = options();
  wanted.admin_listen = "127.0.0.1:0";
  wanted.core.client_lease_ns = 3'600'000'000'000;
  start(wanted);
  wire::OpenSessionReply opened;
  const auto client = open_session(opened);
  ASSERT_TRUE(begin(*client, 2).ok());
  admin::ListSessionsReply sessions;
  ASSERT_EQ(call(&Stub::ListSessions, admin::ListSessionsRequest(), sessions), grpc::OK);
  ASSERT_EQ(sessions.sessions_size(), 1);
  EXPECT_EQ(sessions.sessions(0).id(), opened.session.value);
  EXPECT_EQ(sessions.sessions(0).name(), "test");
  EXPECT_EQ(sessions.sessions(0).state(), admin::OPEN);
  EXPECT_TRUE(sessions.sessions(0).connected());
  EXPECT_EQ(sessions.sessions(0).open(), 2u);
}

}  // namespace
}  // namespace loam::commit
