// The recovery driver with a real core and a stand-in for the recoverer.
#include "commit-manager/src/recovery/recovery_driver.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/testing/core_harness.h"
#include "common/testing/eventually.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

constexpr uint64_t kSweepIntervalNs = 20'000'000'000;

/// The calls that a worker has got; outlives the worker.
struct Record {
  RecovererOptions options;
  std::vector<RecoveryTask> tasks;
  std::vector<wire::Catalog> catalogs;
  std::vector<wire::FenceSet> sweeps;
  std::atomic<bool> running{true};
  bool alive = true;  ///< its thread turns when something is given to it
  RecoveryStatistics statistics;
  std::atomic<bool> may_end{true};

  bool runs() const { return running.load(std::memory_order_acquire); }
  bool ends() const {
    return testing::eventually([this] { return !runs(); });
  }
};

class FakeWorker final : public RecoveryWorker {
 public:
  explicit FakeWorker(Record& record) : record_(record) {}
  ~FakeWorker() override {
    EXPECT_TRUE(testing::eventually([this] { return record_.may_end.load(std::memory_order_acquire); }));
    record_.running.store(false, std::memory_order_release);
  }
  void set_catalog(wire::Catalog catalog) override { record_.catalogs.push_back(std::move(catalog)); }
  void add(std::vector<RecoveryTask> tasks) override {
    if (record_.alive) ++record_.statistics.rounds;
    record_.tasks.insert(record_.tasks.end(), tasks.begin(), tasks.end());
  }
  void sweep(wire::FenceSet ended) override { record_.sweeps.push_back(std::move(ended)); }
  RecoveryStatistics statistics() const override { return record_.statistics; }

 private:
  Record& record_;
};

struct RecoveryDriverTest : ::testing::Test {
  static CoreOptions options() {
    CoreOptions options = CoreHarness::open_at_once();
    options.initial_nodes = 1;
    return options;
  }

  RecoveryDriverTest() {
    node = harness->node("tcp://n:1");
    acknowledge_shards();
    id = harness->core.nodes().at(0).info.id;
  }

  void acknowledge_shards() {
    // Clients are served after the node has acknowledged the shard map.
    const auto install = harness->newest<wire::InstallTable>(node);
    if (install.ok()) harness->deliver(node, CoreHarness::encoded(wire::InstallTableReply{}, install.sequence));
  }

  /// Runs poll rounds of the server for `ns`, with a storage node that acknowledges fences.
  void run_for(uint64_t ns, bool acknowledge = true) {
    const uint64_t end = harness->now_ns + ns;
    while (harness->now_ns < end) {
      harness->run_for(std::min<uint64_t>(end - harness->now_ns, 20'000'000));
      if (acknowledge) {
        harness->acknowledge_all(node);
        harness->post(node, wire::RenewNode{});
      }
      driver.step(harness->core, true);
    }
    run_to_rest();
  }

  void run_to_rest() {
    for (int i = 0; i < 10; ++i) {
      harness->now_ns += RecoveryDriver::kCheckNs;
      driver.step(harness->core, false);
    }
  }

  /// Adds a client that begins `count` transactions and falls silent. Returns the first id.
  TransactionId dead_client(uint32_t count) {
    const PeerId client = harness->client();
    const auto begun = harness->call<wire::BeginReply>(client, wire::Begin{count, false});
    EXPECT_TRUE(begun.ok()) << begun.error.to_string();
    harness->core.on_peer_disconnected(client);
    return begun.ok() ? begun->first_id : TransactionId();
  }

  Record& record(size_t number = 0) { return *records.at(number); }

  RecordingStateStore durable;
  std::unique_ptr<CoreHarness> harness = std::make_unique<CoreHarness>(options(), &durable);
  PeerId node;
  NodeId id;  ///< of it
  std::vector<std::unique_ptr<Record>> records;
  Status start_failure;
  std::atomic<int> wakes{0};
  RecoveryDriver driver{[this](RecovererOptions given) -> Result<std::unique_ptr<RecoveryWorker>> {
                          if (!start_failure.ok()) return start_failure;
                          records.push_back(std::make_unique<Record>());
                          records.back()->options = std::move(given);
                          std::unique_ptr<RecoveryWorker> worker = std::make_unique<FakeWorker>(*records.back());
                          return worker;
                        },
                        [this] { return harness->now_ns; }, [this] { ++wakes; }, kSweepIntervalNs};
};

constexpr uint64_t kBeyondLeaseNs = 3 * CoreHarness::kLeaseNs;

struct SweepDriverTest : RecoveryDriverTest {
  void SetUp() override {
    const PeerId client = harness->client();
    const TableId table = create(client, {"accounts", TableKind::kTransactional, test_schema(), {}});
    wire::CreateTable index{"by_balance", TableKind::kNonTransactional, wire::index_node_schema(), {}};
    index.index.table = table;
    index.index.parts = {{1, false}};
    create(client, index);
  }
  TableId create(PeerId client, const wire::CreateTable& request) {
    harness->post(client, request);
    acknowledge_shards();  // and tables
    const auto created = harness->newest<wire::CreateTableReply>(client);
    EXPECT_TRUE(created.ok());
    return created.ok() ? created->table.id : TableId();
  }
  /// Ends the session by its lease. It has nothing to recover.
  void lose_a_session() {
    harness->core.on_peer_disconnected(harness->client());
    run_for(kBeyondLeaseNs);
  }
};

TEST_F(SweepDriverTest, SweepsOnceForALostSession) {
  lose_a_session();
  ASSERT_EQ(records.size(), 1u);
  ASSERT_EQ(record().sweeps.size(), 1u);
  EXPECT_TRUE(record().sweeps[0].fenced(SessionId(1)));
  ASSERT_FALSE(record().catalogs.empty());
  EXPECT_TRUE(std::ranges::any_of(record().catalogs.back().tables, [](const auto& table) { return bool(table.index); }))
      << "the recoverer knows which indexes there are";
  run_for(2 * kSweepIntervalNs);
  EXPECT_EQ(record().sweeps.size(), 1u) << "a pass over tables takes as long as it takes";
  record().options.on_swept(ok_status());
  run_to_rest();
  EXPECT_EQ(harness->core.sweep_due(), nullptr);
  run_for(2 * kSweepIntervalNs);
  EXPECT_EQ(record().sweeps.size(), 1u);
  EXPECT_EQ(records.size(), 1u);
}

TEST_F(SweepDriverTest, KeepsTheSweepInterval) {
  lose_a_session();
  ASSERT_EQ(records.size(), 1u);
  record().options.on_swept(ok_status());
  lose_a_session();
  lose_a_session();
  ASSERT_NE(harness->core.sweep_due(), nullptr);
  EXPECT_EQ(record().sweeps.size(), 1u);
  const uint64_t due_ns = driver.next_deadline_ns();
  EXPECT_LT(due_ns, harness->now_ns + kSweepIntervalNs)
      << "an idle cluster's server sleeps until the driver's deadline";
  run_for(due_ns - harness->now_ns + 1);
  EXPECT_EQ(record().sweeps.size(), 2u) << "one for both";
}

TEST_F(SweepDriverTest, RepeatsFailedSweep) {
  lose_a_session();
  ASSERT_EQ(records.size(), 1u);
  record().options.on_swept({StatusCode::kUnavailable, "a node is away"});
  run_for(kSweepIntervalNs + 1'000'000'000);
  EXPECT_EQ(record().sweeps.size(), 2u);
  record().options.on_failed({StatusCode::kFenced, "its time is over"});
  run_for(2 * kSweepIntervalNs);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(record(1).sweeps.size(), 1u) << "by the next one, too";
  record().options.on_swept(ok_status());
  run_to_rest();
  EXPECT_NE(harness->core.sweep_due(), nullptr) << "an old one's word";
}

TEST_F(SweepDriverTest, ARecovererThatHangsInASweepIsReplaced) {
  lose_a_session();
  ASSERT_EQ(records.size(), 1u);
  record().alive = false;
  run_for((RecoveryDriver::kMaxStalledChecks + 2) * RecoveryDriver::kWatchdogIntervalNs +
          2 * RecoveryDriver::kRestartNs);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(record(1).sweeps.size(), 1u);
}

TEST_F(RecoveryDriverTest, StartsNoRecovererWithoutTasks) {
  (void)harness->client();
  run_for(kBeyondLeaseNs / 4);
  EXPECT_TRUE(records.empty());
  EXPECT_EQ(driver.next_deadline_ns(), UINT64_MAX);
}

TEST_F(RecoveryDriverTest, RecoversAnEndedSession) {
  const TransactionId first = dead_client(2);
  run_for(kBeyondLeaseNs);
  ASSERT_EQ(records.size(), 1u);
  ASSERT_EQ(record().tasks.size(), 1u) << "once";
  const RecoveryTask task = record().tasks[0];
  EXPECT_EQ(task.session, SessionId(1));
  EXPECT_EQ(task.nodes, std::vector{id});
  EXPECT_TRUE(task.must_undo(first) && task.must_undo(TransactionId(first.value + 1)));
  EXPECT_FALSE(task.must_undo(TransactionId(first.value + 2)));
  ASSERT_FALSE(record().catalogs.empty());
  EXPECT_EQ(record().catalogs[0].nodes.size(), 1u);
  EXPECT_NE(record().options.session, SessionId());
  EXPECT_EQ(record().options.manager_epoch, harness->core.statistics().epoch);

  record().options.on_recovered(task);
  EXPECT_EQ(wakes, 1);
  EXPECT_EQ(harness->core.statistics().open, 2u) << "the callback itself touches nothing";
  driver.step(harness->core, false);
  EXPECT_EQ(harness->core.statistics().open, 0u);
  EXPECT_EQ(harness->core.statistics().aborts, 2u);
  EXPECT_TRUE(harness->core.recovery_tasks(10).empty());
  run_to_rest();
  EXPECT_EQ(record().tasks.size(), 1u);
  EXPECT_EQ(driver.next_deadline_ns(), UINT64_MAX) << "nothing to wait for";
}

TEST_F(RecoveryDriverTest, PassesTasksInSeveralBatches) {
  constexpr size_t kSessions = RecoveryDriver::kMaxTaskBatch + 200;
  for (size_t i = 0; i < kSessions; ++i) (void)dead_client(1);
  run_for(kBeyondLeaseNs);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(record().tasks.size(), kSessions);
  std::set<SessionId> sessions;
  for (const RecoveryTask& task : record().tasks) sessions.insert(task.session);
  EXPECT_EQ(sessions.size(), kSessions) << "each once";
}

struct TwoNodesTest : RecoveryDriverTest {
  TwoNodesTest() {
    CoreOptions both = options();
    both.initial_nodes = 2;
    harness = std::make_unique<CoreHarness>(both);
    node = harness->node("tcp://n:1");
    other = harness->node("tcp://n:2");
    for (const PeerId peer : {node, other}) harness->acknowledge_all(peer);
  }
  /// Both nodes live; `answering` acknowledge.
  void run_both(uint64_t ns, const std::vector<PeerId>& answering) {
    const uint64_t end = harness->now_ns + ns;
    while (harness->now_ns < end) {
      harness->run_for(20'000'000);
      for (const PeerId peer : {node, other}) harness->post(peer, wire::RenewNode{});
      for (const PeerId peer : answering) harness->acknowledge_all(peer);
      driver.step(harness->core, true);
    }
    run_to_rest();
  }

  PeerId other;
};

TEST_F(TwoNodesTest, GivesEachNodeOfASessionOnce) {
  (void)dead_client(1);
  run_both(kBeyondLeaseNs, {node});
  ASSERT_EQ(records.size(), 1u);
  ASSERT_EQ(record().tasks.size(), 1u);
  EXPECT_EQ(record().tasks[0].nodes, std::vector{NodeId(1)}) << "the other one may still be written to";
  run_both(100'000'000, {node, other});
  ASSERT_EQ(record().tasks.size(), 2u);
  EXPECT_EQ(record().tasks[1].session, record().tasks[0].session);
  EXPECT_EQ(record().tasks[1].nodes, std::vector{NodeId(2)}) << "the first one is under way";

  record().options.on_recovered(record().tasks[1]);
  run_to_rest();
  EXPECT_EQ(harness->core.statistics().open, 1u) << "one node is not done";
  EXPECT_EQ(record().tasks.size(), 2u);
  record().options.on_recovered(record().tasks[0]);
  run_to_rest();
  EXPECT_EQ(harness->core.statistics().open, 0u);
  EXPECT_EQ(record().tasks.size(), 2u);
}

TEST_F(RecoveryDriverTest, AFailedRecovererIsFollowedByAnother) {
  for (int i = 0; i < 3; ++i) (void)dead_client(1);
  run_for(kBeyondLeaseNs);
  ASSERT_EQ(records.size(), 1u);
  ASSERT_EQ(record().tasks.size(), 3u);
  const SessionId session = record().options.session;
  record().statistics.tasks = 7;
  record().options.on_recovered(record().tasks[0]);
  record().options.on_failed({StatusCode::kFenced, "test"});
  record().options.on_recovered(record().tasks[1]);  // undone before it failed, and told after it
  driver.step(harness->core, false);
  EXPECT_TRUE(record().ends());
  EXPECT_EQ(harness->core.statistics().open, 1u);
  run_for(2 * RecoveryDriver::kRestartNs);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_GT(record(1).options.session, session);
  ASSERT_EQ(record(1).tasks.size(), 1u) << "everything that is left";
  EXPECT_EQ(record(1).tasks[0].session, record().tasks[2].session);
  EXPECT_FALSE(record(1).catalogs.empty());
  EXPECT_EQ(driver.statistics().starts, 2u);
  EXPECT_EQ(driver.statistics().tasks, 7u) << "what the first did counts";
  record().options.on_failed({StatusCode::kFenced, "late"});
  driver.step(harness->core, false);
  EXPECT_TRUE(record(1).runs()) << "an old one's word";
  EXPECT_TRUE(std::ranges::none_of(harness->core.sessions(), [&](const SessionStatus& one) {
    return one.id == session && one.state == SessionStatus::State::kOpen;
  })) << "the nodes refuse the first one";
}

TEST_F(RecoveryDriverTest, TheServerDoesNotWaitForARecovererThatEnds) {
  (void)dead_client(1);
  run_for(kBeyondLeaseNs);
  ASSERT_EQ(records.size(), 1u);
  record().may_end.store(false, std::memory_order_release);  // its thread waits for a resolver
  record().options.on_failed({StatusCode::kFenced, "test"});
  run_for(2 * RecoveryDriver::kRestartNs);
  EXPECT_TRUE(record().runs());
  ASSERT_EQ(records.size(), 2u) << "the next one does not wait for it either";
  record().may_end.store(true, std::memory_order_release);
  EXPECT_TRUE(record().ends());
  run_to_rest();
  EXPECT_TRUE(record(1).runs());
}

constexpr uint64_t kUntilSilent = (RecoveryDriver::kMaxStalledChecks + 2) * RecoveryDriver::kWatchdogIntervalNs;
constexpr uint64_t kUntilIdle = (RecoveryDriver::kMaxIdleChecks + 2) * RecoveryDriver::kWatchdogIntervalNs;

TEST_F(RecoveryDriverTest, ReplacesRecovererWhoseThreadHangs) {
  (void)dead_client(1);
  run_for(kBeyondLeaseNs);
  ASSERT_EQ(records.size(), 1u);
  record().alive = false;
  run_for(kUntilSilent + 2 * RecoveryDriver::kRestartNs);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_TRUE(record().runs()) << "no thread waits for the end of one that hangs";
  EXPECT_GT(record(1).options.session, record().options.session) << "and the nodes refuse it";
  ASSERT_EQ(record(1).tasks.size(), 1u);
  record().options.on_recovered(record().tasks[0]);  // it was only slow
  run_to_rest();
  EXPECT_EQ(harness->core.statistics().open, 0u);
  record(1).options.on_recovered(record(1).tasks[0]);
  run_to_rest();
  EXPECT_EQ(harness->core.statistics().aborts, 1u);
  EXPECT_EQ(driver.next_deadline_ns(), UINT64_MAX);
}

TEST_F(RecoveryDriverTest, ReplacesRecovererWithoutProgress) {
  (void)dead_client(3);
  run_for(kBeyondLeaseNs);
  ASSERT_EQ(records.size(), 1u);
  run_for(kUntilIdle / 2);
  ++record().statistics.repeated;  // it tries
  run_for(kUntilIdle * 3 / 4);
  ++record().statistics.intents;  // it reads
  run_for(kUntilIdle * 3 / 4);
  EXPECT_EQ(records.size(), 1u);
  record().statistics.waiting[NodeId(1)] = 3;
  run_for(2 * kUntilIdle);
  EXPECT_EQ(records.size(), 1u) << "it waits for a node";
  record().statistics.waiting.clear();
  run_for(kUntilIdle + 2 * RecoveryDriver::kRestartNs);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_TRUE(record().ends());
  EXPECT_EQ(record(1).tasks.size(), 1u);
}

// Two recoverers may work on one task: what the first one has sent may still be executed.
TEST_F(RecoveryDriverTest, StartsNextRecovererBeforeTheFailedOneIsFenced) {
  (void)dead_client(1);
  run_for(kBeyondLeaseNs);
  ASSERT_EQ(records.size(), 1u);
  record().options.on_failed({StatusCode::kFenced, "its time is over"});
  run_for(2 * RecoveryDriver::kRestartNs, false);
  EXPECT_TRUE(record().ends());
  EXPECT_EQ(records.size(), 2u);
}

TEST_F(RecoveryDriverTest, ReplacesAFailedRecovererWithoutOtherEvents) {
  (void)dead_client(3);
  run_for(kBeyondLeaseNs);
  ASSERT_EQ(records.size(), 1u);
  const uint64_t end = harness->now_ns + (RecoveryDriver::kMaxIdleChecks + 2) * RecoveryDriver::kWatchdogIntervalNs;
  while (records.size() == 1 && driver.next_deadline_ns() <= end) {
    harness->now_ns = std::max(harness->now_ns + 1, driver.next_deadline_ns());
    driver.step(harness->core, false);
  }
  EXPECT_EQ(records.size(), 2u) << "an idle cluster's server sleeps until the driver's deadline";
  EXPECT_TRUE(record().ends()) << "it ended nothing";
}

TEST_F(RecoveryDriverTest, APauseOfTheManagerDoesNotReplaceTheRecoverer) {
  (void)dead_client(1);
  run_for(kBeyondLeaseNs);
  record().alive = false;
  for (uint32_t i = 0; i + 2 < RecoveryDriver::kMaxStalledChecks; ++i) {
    harness->now_ns += kUntilSilent;
    driver.step(harness->core, false);
  }
  EXPECT_EQ(records.size(), 1u);
}

TEST_F(RecoveryDriverTest, IgnoresReportsAfterItsDestruction) {
  const auto orphan = std::make_unique<Record>();
  {
    RecoveryDriver other(
        [&](RecovererOptions given) -> Result<std::unique_ptr<RecoveryWorker>> {
          orphan->options = std::move(given);
          std::unique_ptr<RecoveryWorker> worker = std::make_unique<FakeWorker>(*orphan);
          return worker;
        },
        [this] { return harness->now_ns; }, [this] { ++wakes; }, kSweepIntervalNs);
    (void)dead_client(1);
    harness->run_for(kBeyondLeaseNs);
    other.step(harness->core, true);
  }
  if (orphan->options.on_failed) orphan->options.on_failed({StatusCode::kFenced, "late"});
  EXPECT_EQ(wakes, 0);
}

TEST_F(RecoveryDriverTest, TriesAgainIfARecovererCannotStart) {
  start_failure = Status(StatusCode::kUnavailable, "no descriptors");
  (void)dead_client(1);
  run_for(kBeyondLeaseNs);
  EXPECT_TRUE(records.empty());
  start_failure = ok_status();
  run_for(2 * RecoveryDriver::kRetryStartNs);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(record().tasks.size(), 1u);
}

struct RestartTest : RecoveryDriverTest {
  /// The next manager, from what the first one stored, and the node that comes back to it.
  void restart() {
    const Buffer state = durable.state;
    const auto nodes = harness->core.nodes();
    ASSERT_EQ(nodes.size(), 1u);
    const uint64_t now_ns = harness->now_ns;
    harness = std::make_unique<CoreHarness>(options(), &durable, state);
    harness->now_ns = now_ns + 1;
    node = harness->node("tcp://n:1", nodes[0].info.incarnation);
    run_for(100'000'000);
  }
};

TEST_F(RestartTest, UndoesAllEarlierSessionsBeforeAnythingBegins) {
  const TransactionId first = dead_client(1);
  restart();
  ASSERT_EQ(records.size(), 1u);
  ASSERT_EQ(record().tasks.size(), 1u);
  const RecoveryTask task = record().tasks[0];
  EXPECT_EQ(task.session, SessionId());
  EXPECT_EQ(task.nodes, std::vector{id});
  EXPECT_TRUE(task.must_undo(first));
  run_for(1'000'000'000);
  EXPECT_EQ(record().tasks.size(), 1u) << "once is enough";
  EXPECT_FALSE(harness->core.ready()) << "not before it is done";
  record().options.on_recovered(task);
  run_to_rest();
  EXPECT_TRUE(harness->core.ready());
  const PeerId client = harness->client();
  EXPECT_TRUE(harness->call<wire::BeginReply>(client, wire::Begin{1, false}).ok());
}

// The recoverer calls back from its own thread.
TEST_F(RecoveryDriverTest, ProcessesReportsFromAnotherThread) {
  constexpr size_t kCount = 500;
  for (size_t i = 0; i < kCount; ++i) (void)dead_client(1);
  run_for(kBeyondLeaseNs);
  ASSERT_EQ(records.size(), 1u);
  ASSERT_EQ(record().tasks.size(), kCount);
  std::thread recoverer([this] {
    for (const RecoveryTask& task : record().tasks) record().options.on_recovered(task);
  });
  EXPECT_TRUE(testing::eventually([&] {
    driver.step(harness->core, false);
    return harness->core.statistics().aborts == kCount;
  }));
  recoverer.join();
  run_to_rest();
  EXPECT_EQ(record().tasks.size(), kCount);
  EXPECT_TRUE(harness->core.recovery_tasks(10).empty());
}

}  // namespace
}  // namespace loam::commit
