// The states that the commit manager stores, and its restart from them (R11, commit log and restart of the commit
// manager).
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "commit-manager/src/catalog/durable_state.h"
#include "commit-manager/src/core/committed_ids.h"
#include "commit-manager/testing/core_harness.h"
#include "common/testing/random.h"
#include "common/wire/system_tables.h"

namespace loam::commit {
namespace {

using testing::Random;
using wire::Begin;
using wire::BeginReply;
using wire::Fence;
using wire::FenceReply;
using wire::GetOutcomes;
using wire::NodeState;
using wire::OpenSession;
using wire::OpenSessionReply;
using wire::Outcome;
using wire::RegisterNode;
using wire::RegisterNodeReply;

struct RestartTest : ::testing::Test {
  static CoreOptions options() {
    CoreOptions options = CoreHarness::open_at_once();
    options.initial_nodes = 2;
    options.ids_ahead = 100;
    return options;
  }

  void SetUp() override { start(); }

  /// Starts a commit manager from the stored state, and from the commit log's records up to `position`.
  void start(uint64_t position = UINT64_MAX) {
    const uint64_t now_ns = h ? h->now_ns + 1'000'000 : 1'000'000'000;
    const Buffer state = durable.state;
    ASSERT_TRUE(Core::check_state(state).ok()) << Core::check_state(state).to_string();
    CommitLogContents logged;
    if (log) logged = log->left(std::min(position, log->end()));
    log = std::make_unique<RecordingLog>(logged);
    h = std::make_unique<CoreHarness>(options(), &durable, state, log.get());
    h->now_ns = now_ns;
    h->core.on_timer(now_ns);
  }

  /// Two nodes with shards and a table.
  void fill() {
    nodes = {h->node("tcp://a:1"), h->node("tcp://b:1")};
    acknowledge_all();
    const PeerId client = h->client();
    h->post(client, wire::CreateTable{"accounts", TableKind::kTransactional, test_schema()});
    acknowledge_all();
    ASSERT_TRUE(h->newest<wire::CreateTableReply>(client).ok());
    for (int i = 0; i < 150; ++i) ASSERT_TRUE(h->call<BeginReply>(client, Begin{1, false}).ok());
  }

  /// After a restart each storage node reports its history, and has to register again when all others have reported
  /// (R10, cluster identity and incarnations).
  void report(const std::string& address, Incarnation incarnation = Incarnation(0)) {
    const PeerId peer = h->connect();
    EXPECT_EQ(h->call<RegisterNodeReply>(peer, RegisterNode{address, "", 1, incarnation}).error.code(),
              StatusCode::kUnavailable);
    h->core.on_peer_disconnected(peer);
  }

  void acknowledge_all() {
    for (const PeerId node : nodes) {
      const auto install = h->newest<wire::InstallTable>(node);
      if (install.ok()) h->deliver(node, CoreHarness::encoded(wire::InstallTableReply{}, install.sequence));
    }
  }

  RecordingStateStore durable;
  std::unique_ptr<RecordingLog> log;
  std::unique_ptr<CoreHarness> h;
  std::vector<PeerId> nodes;
};

TEST_F(RestartTest, KeepsTheCatalogAndGoesAboveAllIds) {
  fill();
  const wire::Catalog before = h->core.catalog();
  const Statistics last = h->core.statistics();
  start();
  const wire::Catalog after = h->core.catalog();
  EXPECT_GT(after.version, before.version) << "clients see that something has changed";
  ASSERT_EQ(after.tables.size(), before.tables.size());
  EXPECT_EQ(after.tables.back().id, before.tables.back().id);
  EXPECT_EQ(after.shards.owners, before.shards.owners);
  EXPECT_EQ(after.shards.version, before.shards.version);
  ASSERT_EQ(after.nodes.size(), 2u);
  EXPECT_EQ(after.nodes[1].address, "tcp://b:1");
  EXPECT_EQ(after.nodes[1].incarnation, before.nodes[1].incarnation);
  EXPECT_EQ(h->core.statistics().epoch, 2u);
  EXPECT_GE(h->core.statistics().last_transaction, last.last_transaction);
  EXPECT_TRUE(h->core.statistics().restarting);
  EXPECT_FALSE(h->core.ready());
  h->core.check_invariants();
}

TEST_F(RestartTest, AnswersNoBeginBeforeEverythingOfEarlierEpochsIsUndone) {
  fill();
  start();
  EXPECT_EQ(h->call<OpenSessionReply>(h->connect(), OpenSession{"early"}).error.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(h->core.recovery_tasks(10).empty()) << "no node has registered again";
  report("tcp://b:1", Incarnation(2));
  const PeerId a = h->connect();
  const auto registered = h->call<RegisterNodeReply>(a, RegisterNode{"tcp://a:1", "", 1, Incarnation(1)});
  ASSERT_TRUE(registered.ok()) << registered.error.to_string();
  EXPECT_EQ(registered->manager_epoch, 2u);
  EXPECT_EQ(registered->publication.number, 0u) << "no horizon before all is recovered (R11)";
  EXPECT_TRUE(registered->fences.fenced(SessionId(1)));
  ASSERT_TRUE(h->acknowledge_fence(a));
  EXPECT_TRUE(h->core.recovery_tasks(10).empty()) << "index changes would be undone after their records";
  const PeerId client = h->client();
  EXPECT_EQ(h->call<BeginReply>(client, Begin{1, false}).error.code(), StatusCode::kUnavailable);
  EXPECT_EQ(h->call<BeginReply>(client, Begin{0, true}).error.code(), StatusCode::kUnavailable);
  const PeerId b = h->node("tcp://b:1", Incarnation(2));
  EXPECT_TRUE(h->core.recovery_tasks(10).empty()) << "it may still be writing (R7)";
  ASSERT_TRUE(h->acknowledge_fence(b));
  const auto tasks = h->core.recovery_tasks(10);
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(tasks[0].session, SessionId());
  EXPECT_EQ(tasks[0].nodes, (std::vector{NodeId(1), NodeId(2)}));
  EXPECT_EQ(tasks[0].last_id_of_earlier_epochs.value, h->core.statistics().last_transaction);
  EXPECT_TRUE(tasks[0].must_undo(TransactionId(150)));
  h->run_for(kLease / 2);
  EXPECT_TRUE(h->outbox.sent[a].empty()) << "no publication goes out";
  RecoveryTask half = tasks[0];
  half.nodes.pop_back();
  h->core.complete_recovery(half, h->now_ns);
  EXPECT_TRUE(h->core.statistics().restarting);
  EXPECT_EQ(h->call<BeginReply>(client, Begin{1, false}).error.code(), StatusCode::kUnavailable);
  ASSERT_EQ(h->core.recovery_tasks(10).size(), 1u);
  EXPECT_EQ(h->core.recovery_tasks(10)[0].nodes, std::vector{NodeId(2)});
  h->core.complete_recovery(tasks[0], h->now_ns);
  EXPECT_TRUE(h->core.ready());
  EXPECT_TRUE(h->core.recovery_tasks(10).empty());
  const auto begun = h->call<BeginReply>(client, Begin{1, false});
  ASSERT_TRUE(begun.ok());
  EXPECT_GT(begun->first_id, tasks[0].last_id_of_earlier_epochs);
  EXPECT_FALSE(tasks[0].must_undo(begun->first_id));
  EXPECT_EQ(begun->snapshot, Snapshot(Version(begun->first_id.value - 1))) << "every id of earlier epochs is complete";
  h->run_for(kLease / 4);
  const auto publish = h->newest<wire::Publish>(a);
  ASSERT_TRUE(publish.ok());
  EXPECT_EQ(publish->publication.cm_epoch, 2u);
  h->core.complete_recovery(tasks[0], h->now_ns);  // a repetition
  h->core.check_invariants();
}

TEST_F(RestartTest, OutcomesOfEarlierEpochsAreWhatTheCommitLogSays) {
  fill();
  const PeerId client = h->client();
  const uint64_t first = h->call<BeginReply>(client, Begin{6, false})->first_id.value;
  for (const uint64_t id : {first + 1, first + 2, first + 4}) {
    ASSERT_TRUE(h->call<wire::CompleteReply>(client, wire::Complete{{{TransactionId(id), true}}}).ok());
  }
  start(2);  // the record of the third commit was not on the disk when the power went
  report("tcp://b:1", Incarnation(2));
  nodes = {h->node("tcp://a:1", Incarnation(1)), h->node("tcp://b:1", Incarnation(2))};
  const PeerId again = h->client();
  std::vector<TransactionId> ids;
  for (uint64_t id = first; id < first + 6; ++id) ids.emplace_back(id);
  ids.emplace_back(100'000);
  const std::vector<Outcome> known = {Outcome::kAborted, Outcome::kCommitted, Outcome::kCommitted, Outcome::kAborted,
                                      Outcome::kAborted, Outcome::kAborted,   Outcome::kForgotten};
  EXPECT_EQ(h->call<wire::GetOutcomesReply>(again, GetOutcomes{ids})->outcomes, known);
  for (const PeerId node : nodes) ASSERT_TRUE(h->acknowledge_fence(node));
  const auto tasks = h->core.recovery_tasks(10);
  ASSERT_EQ(tasks.size(), 1u);
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(tasks[0].must_undo(ids[i]), known[i] == Outcome::kAborted) << i;
  h->core.complete_recovery(tasks[0], h->now_ns);
  EXPECT_EQ(h->call<wire::GetOutcomesReply>(again, GetOutcomes{ids})->outcomes, known);
  EXPECT_EQ(h->core.statistics().log_end, 2u) << "positions continue";
  EXPECT_EQ(h->core.statistics().log_flushed, 2u);
  h->core.check_invariants();
}

TEST_F(RestartTest, OutcomesBelowTheCutAreForgotten) {
  fill();
  log->before.truncated_up_to = TransactionId(CommittedIds::kBlockIds - 1);
  log->before.committed = {{TransactionId(CommittedIds::kBlockIds + 3), TransactionId(CommittedIds::kBlockIds + 4)}};
  start();
  EXPECT_EQ(h->core.outcome(TransactionId(1)), Outcome::kForgotten);
  EXPECT_EQ(h->core.outcome(TransactionId(CommittedIds::kBlockIds - 1)), Outcome::kForgotten);
  EXPECT_EQ(h->core.statistics().log_truncated_up_to, CommittedIds::kBlockIds - 1);
}

TEST_F(RestartTest, RestartWaitsForTheAcceptanceOfALoss) {
  fill();
  start();
  report("tcp://b:1");
  const PeerId a = h->node("tcp://a:1", Incarnation(1));
  const PeerId b = h->node("tcp://b:1");
  EXPECT_EQ(h->core.nodes()[1].info.state, NodeState::kLost);
  const auto keep_alive = [&] {
    for (int i = 0; i < 6; ++i) {
      h->acknowledge_fence(a);
      h->acknowledge_fence(b);
      h->post(a, wire::RenewNode{});
      h->post(b, wire::RenewNode{});
      h->run_for(kLease / 4);
    }
  };
  keep_alive();
  EXPECT_TRUE(h->core.recovery_tasks(10).empty());
  std::optional<Status> done;
  h->core.accept_loss(NodeId(2), [&](Status status) { done = std::move(status); });
  const auto told = h->newest<wire::AcceptLoss>(b);
  ASSERT_TRUE(told.ok());
  ASSERT_EQ(h->core.recovery_tasks(10).size(), 1u);
  EXPECT_EQ(h->core.recovery_tasks(10)[0].nodes, std::vector{NodeId(1)}) << "nothing is left at the other one";
  start();  // the acceptance was stored before the node heard of it
  report("tcp://a:1", Incarnation(1));
  const auto back = h->call<RegisterNodeReply>(h->connect(), RegisterNode{"tcp://b:1", "", 1, Incarnation(3)});
  ASSERT_TRUE(back.ok()) << back.error.to_string();
  EXPECT_FALSE(back->memory_lost);
  EXPECT_EQ(h->core.nodes()[1].info.state, NodeState::kLive);
}

TEST_F(RestartTest, NodeRestartedDuringTheRestartCountsWhenItsLossIsAccepted) {
  fill();
  start();
  report("tcp://b:1", Incarnation(2));
  nodes = {h->node("tcp://a:1", Incarnation(1)), h->node("tcp://b:1", Incarnation(2))};
  for (const PeerId node : nodes) ASSERT_TRUE(h->acknowledge_fence(node));
  const auto tasks = h->core.recovery_tasks(10);
  ASSERT_EQ(tasks.size(), 1u);
  nodes[1] = h->node("tcp://b:1");
  h->core.complete_recovery(tasks[0], h->now_ns);
  EXPECT_TRUE(h->core.statistics().restarting);
  h->core.accept_loss(NodeId(2), [](const Status&) {});
  for (int i = 0; i < 5; ++i) {
    for (const PeerId node : nodes) h->post(node, wire::RenewNode{});
    h->run_for(kLease / 4);
  }
  EXPECT_FALSE(h->core.statistics().restarting);
  h->core.check_invariants();
}

TEST_F(RestartTest, WaitsForTheLeasesOfIncarnationsThatWereReplaced) {
  fill();
  start();
  report("tcp://b:1");
  std::vector<PeerId> back;
  for (uint64_t node : {1u, 2u}) back.push_back(h->node(node == 1 ? "tcp://a:1" : "tcp://b:1"));
  for (uint64_t node : {1u, 2u}) h->core.accept_loss(NodeId(node), [](Status) {});
  for (const PeerId peer : back) {
    EXPECT_FALSE(h->newest<wire::AcceptLoss>(peer).ok()) << "the earlier processes may still hold their leases";
  }
  EXPECT_TRUE(h->core.statistics().restarting);
  for (int i = 0; i < 5; ++i) {
    for (const PeerId peer : back) h->post(peer, wire::RenewNode{});
    h->run_for(kLease / 4);
  }
  for (const PeerId peer : back) EXPECT_TRUE(h->newest<wire::AcceptLoss>(peer).ok());
  EXPECT_FALSE(h->core.statistics().restarting);
}

TEST_F(RestartTest, WithoutShardsThereIsNothingToRecover) {
  h->node("tcp://a:1");
  start();
  EXPECT_FALSE(h->core.statistics().restarting);
  EXPECT_EQ(h->core.statistics().epoch, 2u);
  nodes = {h->node("tcp://a:1"), h->node("tcp://b:1")};
  acknowledge_all();
  EXPECT_TRUE(h->core.ready());
}

TEST_F(RestartTest, SessionsOfOlderEpochsAreFenced) {
  fill();
  start();
  EXPECT_EQ(h->call<OpenSessionReply>(h->connect(), OpenSession{"test", SessionId(1), 1}).error.code(),
            StatusCode::kFenced);
  report("tcp://b:1", Incarnation(2));
  h->node("tcp://a:1", Incarnation(1));
  const auto opened = h->call<OpenSessionReply>(h->connect(), OpenSession{"test"});
  EXPECT_GT(opened->session, SessionId(1));
  EXPECT_EQ(opened->manager_epoch, 2u);
  const auto node = h->call<RegisterNodeReply>(h->connect(), RegisterNode{"tcp://a:1", "", 1, Incarnation(1)});
  EXPECT_TRUE(node->fences.fenced(SessionId(opened->session.value - 1)));
  EXPECT_FALSE(node->fences.fenced(opened->session));
}

TEST_F(RestartTest, PendingTableIsForgottenExceptItsId) {
  fill();
  const PeerId client = h->client();
  h->post(client, wire::CreateTable{"late", TableKind::kTransactional, test_schema()});
  const TableId given = h->newest<wire::InstallTable>(nodes[0])->table.id;
  start();
  EXPECT_EQ(h->core.catalog().tables.size(), 2u);
  report("tcp://b:1", Incarnation(2));
  nodes = {h->node("tcp://a:1", Incarnation(1)), h->node("tcp://b:1", Incarnation(2))};
  const PeerId again = h->client();
  h->post(again, wire::CreateTable{"late", TableKind::kTransactional, test_schema()});
  EXPECT_GT(h->newest<wire::InstallTable>(nodes[0])->table.id, given);
}

TEST_F(RestartTest, BeginsWaitForTheDiskOnceInManyIds) {
  fill();
  const PeerId client = h->client();
  const uint64_t before = durable.stores;
  for (int i = 0; i < 1'000; ++i) ASSERT_TRUE(h->call<BeginReply>(client, Begin{1, false}).ok());
  EXPECT_GE(durable.stores, before + 9);
  EXPECT_LE(durable.stores, before + 11);
}

TEST_F(RestartTest, RefusesDamagedStates) {
  fill();
  const Buffer good = durable.state;
  ASSERT_TRUE(Core::check_state(good).ok());
  EXPECT_TRUE(Core::check_state({}).ok()) << "a new cluster";
  for (size_t size = 1; size < good.size(); ++size) {
    const Buffer cut(good.begin(), good.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_EQ(Core::check_state(cut).code(), StatusCode::kMalformed) << size;
  }
  for (size_t at = 0; at < good.size(); ++at) {
    Buffer flipped = good;
    flipped[at] ^= std::byte{4};
    ASSERT_FALSE(Core::check_state(flipped).ok()) << at;
  }
  Buffer newer = good;
  newer[8] = std::byte(255);
  EXPECT_EQ(Core::check_state(newer).code(), StatusCode::kUnsupportedVersion);
  Buffer longer = good;
  longer.push_back(std::byte{0});
  EXPECT_EQ(Core::check_state(longer).code(), StatusCode::kMalformed);
}

TEST_F(RestartTest, SendsOnlyStoredState) {
  fill();
  const PeerId client = h->client();
  const uint64_t next = h->core.statistics().last_transaction;
  for (auto& [peer, queue] : h->outbox.sent) queue.clear();
  durable.failure = Status(StatusCode::kNoSpace, "the disk is full");
  for (uint64_t i = 0; i < 300; ++i) {
    h->post(client, Begin{1, false});
    const auto begun = h->receive<BeginReply>(client);
    ASSERT_TRUE(begun.ok() || !h->core.durable_status().ok());
    if (begun.ok()) {
      ASSERT_EQ(begun->first_id.value, next + i + 1);
      ASSERT_LE(begun->first_id, decode_state(durable.state)->transactions) << "the bound that the disk has";
    }
  }
  EXPECT_EQ(h->core.durable_status().code(), StatusCode::kNoSpace);
  EXPECT_TRUE(h->outbox.sent[client].empty());
  EXPECT_EQ(h->core.next_deadline_ns(), UINT64_MAX);
  h->run_for(kLeaseExpiryNs);
  std::optional<StatusCode> created;
  h->core.create_table({"t", TableKind::kTransactional, test_schema()},
                       [&](const Result<wire::CreateTableReply>& result) { created = result.code(); });
  EXPECT_EQ(created, StatusCode::kNoSpace);
  EXPECT_EQ(h->core.open_recoverer_session(h->now_ns), SessionId(0));
  EXPECT_TRUE(h->core.recovery_tasks(10).empty());
  for (const auto& [peer, queue] : h->outbox.sent) EXPECT_TRUE(queue.empty());
}

/// All numbers that the commit manager gives out, over many starts, each of which ends at a random store.
TEST(Restart, NoNumberIsGivenOutTwice) {
  Random random(testing::test_seed(31));
  RecordingStateStore durable;
  std::set<uint64_t> transactions, sessions, incarnations, epochs;
  std::map<uint64_t, std::string> tables;
  uint64_t catalog_version = 0, crashes_before = 0, crashes_after = 0;
  for (int life = 0; life < 50; ++life) {
    CoreOptions options = RestartTest::options();
    options.initial_nodes = 1;
    options.ids_ahead = random.between(1, 50);
    const bool after = random.one_in(2);  // the crash: before the bytes are on the disk, or after that
    const uint64_t crash_at = random.between(1, 12);
    uint64_t stores = 0;
    const Buffer state = durable.state;
    Buffer written;
    durable.failure = Status();
    durable.before_store = [&] {
      if (++stores >= crash_at) durable.failure = Status(StatusCode::kUnavailable, "crashed");
    };
    ASSERT_TRUE(Core::check_state(state).ok());
    struct Crashing final : StateStore {
      std::optional<Status> store(Bytes bytes) override {
        const std::optional<Status> status = under.store(bytes);
        if (!status->ok() && after) under.state.assign(bytes.begin(), bytes.end());
        return status;
      }
      Crashing(RecordingStateStore& durable, bool late) : under(durable), after(late) {}
      RecordingStateStore& under;
      const bool after;
    } crashing(durable, after);
    CoreHarness h(options, &crashing, state);
    h.core.on_timer(h.now_ns);
    const PeerId node = h.connect();
    const auto registered = h.call<RegisterNodeReply>(node, RegisterNode{"tcp://a:1", "", 1});
    if (registered.ok()) {
      ASSERT_TRUE(incarnations.insert(registered->incarnation.value).second);
      ASSERT_TRUE(epochs.insert(registered->manager_epoch).second);
      ASSERT_GE(registered->catalog.version, catalog_version);
    }
    if (h.core.statistics().restarting) {
      h.core.accept_loss(NodeId(1), [](const Status&) {});
      for (int i = 0; i < 8; ++i) {
        h.post(node, wire::RenewNode{});
        h.run_for(kLease / 4);
      }
      h.outbox.sent[node].clear();
    }
    for (int step = 0; step < 60 && h.core.durable_status().ok(); ++step) {
      const PeerId client = h.connect();
      const auto opened = h.call<OpenSessionReply>(client, OpenSession{"test"});
      if (!opened.ok()) break;
      ASSERT_TRUE(sessions.insert(opened->session.value).second) << opened->session.value;
      catalog_version = opened->catalog.version;
      const auto count = static_cast<uint32_t>(random.between(1, 9));
      const auto begun = h.call<BeginReply>(client, Begin{count, false});
      if (begun.ok()) {
        ASSERT_TRUE(transactions.empty() || begun->first_id.value > *transactions.rbegin());
        transactions.insert(begun->first_id.value + count - 1);
      }
      const std::string name = "t" + std::to_string(life) + "_" + std::to_string(step);
      if (random.one_in(4)) h.post(client, wire::CreateTable{name, TableKind::kTransactional, test_schema()});
      while (!h.outbox.sent[node].empty()) {
        const auto install = h.receive<wire::InstallTable>(node);
        if (!install.ok() || install->table.id == wire::kCounterTableId) continue;
        const auto [at, fresh] = tables.emplace(install->table.id.value, install->table.name);
        ASSERT_TRUE(fresh) << at->first << " was " << at->second;
        if (random.one_in(2)) h.deliver(node, CoreHarness::encoded(wire::InstallTableReply{}, install.sequence));
      }
    }
    ++(after ? crashes_after : crashes_before);
  }
  EXPECT_GT(transactions.size(), 100u);
  EXPECT_GT(tables.size(), 20u);
  EXPECT_GT(incarnations.size(), 20u);
  EXPECT_GT(crashes_before, 5u);
  EXPECT_GT(crashes_after, 5u);
}

}  // namespace
}  // namespace loam::commit
