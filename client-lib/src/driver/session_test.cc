// Sessions that outlive their connections, and clients that outlive their sessions.
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "client-lib/testing/driver_test_fixture.h"
#ifdef LOAM_ASSERTIONS
#include "common/base/pause_point.h"
#endif

namespace loam::client {
namespace {

/// A step of a transaction, and its request.
struct Step {
  Opcode opcode;
  WriteKind kind;
  const char* name;
};
constexpr Step kSteps[] = {
    {Opcode::kBegin, {}, "begin"},
    {Opcode::kRead, {}, "read"},
    {Opcode::kWrite, {}, "write"},
    {Opcode::kComplete, {}, "completion"},
};

class SessionTest : public DriverTest {
 protected:
  /// Increments the value of key 1.
  Status increment(uint32_t attempts = 1) {
    return client_->run_transaction(
        [&](Transaction& tx) -> Status {
          LOAM_ASSIGN_OR_RETURN(const Record record, tx.get(*table_, Key(1)));
          return tx.update(*table_, Key(1), {Value::int64(record.int64(0) + 1)});
        },
        {.read_only = false, .retry = {.max_attempts = attempts}});
  }
  int64_t value() {
    auto tx = client_->begin().value();
    return tx.get(*table_, Key(1))->int64(0);
  }
  /// True if every id is completed and the node has dropped its intents.
  bool all_completed() {
    return eventually([&] {
      const auto seen = cluster_.observations();
      return seen.completed.size() == seen.begun && seen.intents.empty();
    });
  }
};

TEST_F(SessionTest, LostConnectionsFailNoCall) {
  cluster_.set_lease(100'000'000);
  connect({});
  const auto before = cluster_.observations();
  prepare();
  int64_t expected = 5;
  for (const Step& step : kSteps) {
    for (MutantResult action : {MutantResult::kClose, MutantResult::kApplyAndClose, MutantResult::kLoseManager}) {
      SCOPED_TRACE(std::string(step.name) + ", action " + std::to_string(static_cast<int>(action)));
      at(step.opcode, step.kind, action);
      const Status status = increment();
      EXPECT_TRUE(status.ok()) << status.to_string();
      ++expected;
      EXPECT_TRUE(all_completed());
    }
  }
  cluster_.set_script({});
  EXPECT_EQ(value(), expected);
  const auto seen = cluster_.observations();
  EXPECT_EQ(seen.executed_twice, 0u);
  EXPECT_EQ(seen.out_of_sequence, 0u);
  EXPECT_EQ(seen.opened, before.opened);
  EXPECT_GE(seen.resumed, 6u);
  const ClientStatistics statistics = client_->statistics();
  EXPECT_EQ(statistics.sessions_opened, 1u);
  EXPECT_EQ(statistics.fenced, 0u);
  EXPECT_EQ(statistics.unknown_outcomes, 0u);
  EXPECT_GE(statistics.resent, 6u);
  EXPECT_EQ(statistics.resumed, seen.resumed);
}

// A begin whose reply names a newer catalog fetches it, and the channel does not repeat that request.
TEST_F(SessionTest, BeginsFetchTheCatalogAgainAfterALostConnection) {
  prepare();
  for (const MutantResult action : {MutantResult::kClose, MutantResult::kApplyAndClose}) {
    SCOPED_TRACE("action " + std::to_string(static_cast<int>(action)));
    const size_t fetches = cluster_.count(Opcode::kGetCatalog);
    at(Opcode::kGetCatalog, action);
    cluster_.set_node(wire::NodeState::kLive, Incarnation(1));  // a new version of the catalog
    const Status status = increment();
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_GT(cluster_.count(Opcode::kGetCatalog), fetches) << "the loss must happen";
  }
  EXPECT_EQ(value(), 5 + 2);
  EXPECT_EQ(client_->statistics().sessions_opened, 1u);
}

TEST_F(SessionTest, CommitManagerOfAnotherClusterIsRefusedUntilTheRightOneReturns) {
  prepare();
  const auto read = [&] {
    return client_->run_transaction([&](Transaction& tx) { return tx.get(*table_, Key(1)).status(); },
                                    {.read_only = true, .retry = {.max_attempts = 1}});
  };
  for (const bool compares : {true, false}) {
    SCOPED_TRACE(compares ? "it refuses the client" : "the client refuses it");
    const size_t opened = cluster_.observations().opened;
    cluster_.set_cluster({3, 4}, compares);
    cluster_.drop_connections(true);
    Status status;
    ASSERT_TRUE(eventually([&] { return (status = read()) == StatusCode::kWrongCluster; })) << status.to_string();
    EXPECT_NE(status.message().find(compares ? "another cluster" : wire::to_string({1, 2})), std::string_view::npos)
        << status.to_string();
    cluster_.set_cluster({1, 2}, true);
    ASSERT_TRUE(eventually([&] { return read().ok(); }));
    if (compares) {
      EXPECT_EQ(cluster_.observations().opened, opened + 1) << "no session at the wrong commit manager";
    }
  }
  EXPECT_EQ(value(), 5);
}

TEST_F(SessionTest, NodeOfAnotherClusterIsRefusedUntilTheRightOneReturns) {
  prepare();
  const auto read = [&] {
    return client_->run_transaction([&](Transaction& tx) { return tx.get(*table_, Key(1)).status(); },
                                    {.read_only = true, .retry = {.max_attempts = 1}});
  };
  const size_t opened = cluster_.observations().opened;
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(increment(32).code(), StatusCode::kOk);
    cluster_.set_node_cluster({3, 4});
    cluster_.drop_connections(false);
    Status status;
    ASSERT_TRUE(eventually([&] { return (status = read()) == StatusCode::kWrongCluster; })) << status.to_string();
    cluster_.set_node_cluster({1, 2});
    ASSERT_TRUE(eventually([&] { return (status = read()).ok(); })) << status.to_string();
  }
  EXPECT_EQ(cluster_.observations().opened, opened) << "it is the same session";
  // The node still has the replies to the writes that came before. None of them may answer a later write.
  ASSERT_EQ(increment(32).code(), StatusCode::kOk);
  EXPECT_EQ(value(), 5 + 2 + 1);
  EXPECT_EQ(cluster_.observations().repeated, 0u);
}

#ifdef LOAM_ASSERTIONS
/// Records the names of the pause points that a client passes, in their order.
class PausePointRecorder {
 public:
  PausePointRecorder() {
    for (const char* name :
         {"client.commit.begun", "client.commit.writes_sent", "client.commit.writes_applied", "client.commit.completed",
          "client.commit.answered", "client.abort.failed", "client.abort.undo_decided", "client.abort.reverts_sent",
          "client.abort.reverted", "client.abort.completed"}) {
      hooks_.push_back(PausePoints::on(name, [this, name] {
        const std::lock_guard lock(mutex_);
        names_.emplace_back(name);
      }));
    }
  }
  /// Waits for `last` and the application's reply, and returns the names since the previous call, without the
  /// reply, whose position is not determined.
  std::vector<std::string> until(const std::string& last) {
    std::vector<std::string> names;
    const auto seen = [&](const std::string& name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    };
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex_);
      names = names_;
      return seen(last) && seen("client.commit.answered");
    }));
    std::erase(names, "client.commit.answered");
    const std::lock_guard lock(mutex_);
    names_.clear();
    return names;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> names_;
  std::vector<PausePoints::Hook> hooks_;
};

TEST_F(SessionTest, PausePointsComeInTheOrderOfTheProtocol) {
  prepare();
  PausePointRecorder passed;
  ASSERT_TRUE(update().ok());
  std::vector<std::string> names = passed.until("client.commit.completed");
  EXPECT_EQ(names, (std::vector<std::string>{"client.commit.begun", "client.commit.writes_sent",
                                             "client.commit.writes_applied", "client.commit.completed"}));

  // Key 2 is written, and key 1 conflicts: the transaction began before the last update, which another client made.
  const std::unique_ptr<Client> other = Client::connect(cluster_.address()).value();
  auto old = client_->begin().value();
  const Status changed = other->run_transaction(
      [&](Transaction& tx) { return tx.update(other->open_table("t").value(), Key(1), {Value::int64(6)}); });
  ASSERT_TRUE(changed.ok()) << changed.to_string();
  static_cast<void>(passed.until("client.commit.completed"));
  ASSERT_TRUE(old.update(*table_, Key(1), {Value::int64(9)}).ok());
  ASSERT_TRUE(old.insert(*table_, Key(2), {Value::int64(9)}).ok());
  EXPECT_EQ(old.commit().code(), StatusCode::kConflict);
  names = passed.until("client.abort.completed");
  const std::vector<std::string> aborted = {
      "client.commit.begun",       "client.commit.writes_sent", "client.abort.failed",   "client.abort.undo_decided",
      "client.abort.reverts_sent", "client.abort.reverted",     "client.abort.completed"};
  EXPECT_EQ(names, aborted);

  // The commit manager refuses the commit.
  auto refused = client_->begin().value();
  ASSERT_TRUE(refused.insert(*table_, Key(3), {Value::int64(9)}).ok());
  cluster_.accept_loss();
  EXPECT_EQ(refused.commit().code(), StatusCode::kUnavailable);
  std::vector<std::string> undone = aborted;
  undone.insert(undone.begin() + 2, "client.commit.writes_applied");
  EXPECT_EQ(passed.until("client.abort.completed"), undone);
}
#endif

TEST_F(SessionTest, LocalConflictIsFoundBeforeWritesAreSent) {
  prepare();
  auto old = client_->begin().value();
  ASSERT_TRUE(update().ok());
  ASSERT_TRUE(old.update(*table_, Key(1), {Value::int64(9)}).ok());
  ASSERT_TRUE(old.insert(*table_, Key(2), {Value::int64(9)}).ok());
  at(Opcode::kWrite, MutantResult::kFence);
  EXPECT_EQ(old.commit().code(), StatusCode::kConflict);
  EXPECT_EQ(client_->statistics().conflicts, 1u);
  EXPECT_EQ(client_->statistics().local_conflicts, 1u);
  EXPECT_EQ(client_->statistics().fenced, 0u);
  cluster_.set_script({});
  EXPECT_TRUE(update().ok()) << "a transaction that sees the last write commits";
}

TEST_F(SessionTest, FenceAtAnyStepRollsTheTransactionBack) {
  prepare();
  for (const Step& step : kSteps) {
    if (step.opcode == Opcode::kComplete) continue;  // below
    SCOPED_TRACE(step.name);
    const uint64_t opened = client_->statistics().sessions_opened;
    at(step.opcode, step.kind, MutantResult::kFence);
    const Status status = increment();
    if (step.opcode == Opcode::kBegin) {
      EXPECT_TRUE(status.ok()) << "the begin is repeated under the next session; " << status.to_string();
    } else {
      EXPECT_EQ(status.code(), StatusCode::kFenced) << status.to_string();
    }
    EXPECT_TRUE(eventually([&] { return client_->session_open(); }));
    EXPECT_EQ(client_->statistics().sessions_opened, opened + 1);
    EXPECT_GT(client_->statistics().fenced, 0u);
    if (step.opcode == Opcode::kWrite) break;  // the scripted cluster has no recovery that reverts the record
  }
  EXPECT_EQ(client_->statistics().unknown_outcomes, 0u);
}

// The session is fenced before or after the commit manager has accepted the commit, and the reply is lost (R4).
TEST_F(SessionTest, OutcomesOfFencedCommitsAreRequested) {
  prepare();
  const struct {
    Opcode opcode;
    MutantResult action;
    wire::Outcome outcome;  // of commits that the commit manager has not accepted
    StatusCode expected;
    bool asked;  // true if the transaction may be committed
  } cases[] = {
      {Opcode::kComplete, MutantResult::kFence, wire::Outcome::kForgotten, StatusCode::kFenced, false},
      {Opcode::kComplete, MutantResult::kCloseAndFence, wire::Outcome::kAborted, StatusCode::kFenced, true},
      {Opcode::kComplete, MutantResult::kCloseAndFence, wire::Outcome::kForgotten, StatusCode::kUnknownOutcome, true},
      {Opcode::kComplete, MutantResult::kApplyAndFence, wire::Outcome::kAborted, StatusCode::kOk, true},
      {Opcode::kWrite, MutantResult::kFence, wire::Outcome::kForgotten, StatusCode::kFenced, false},
      {Opcode::kWrite, MutantResult::kApplyAndFence, wire::Outcome::kForgotten, StatusCode::kFenced, false},
  };
  uint64_t key = 10;
  for (const auto& c : cases) {
    SCOPED_TRACE(key);
    cluster_.set_outcome(c.outcome);
    at(c.opcode, c.action);
    const size_t asked = cluster_.count(Opcode::kGetOutcomes);
    const Status status =
        client_->run_transaction([&](Transaction& tx) { return tx.insert(*table_, Key(key), {Value::int64(1)}); },
                                 {.read_only = false, .retry = {.max_attempts = 1}});
    EXPECT_EQ(status.code(), c.expected) << status.to_string();
    EXPECT_EQ(cluster_.count(Opcode::kGetOutcomes) > asked, c.asked);
    ++key;
  }
  EXPECT_EQ(client_->statistics().unknown_outcomes, 1u);
  EXPECT_EQ(client_->statistics().resolved, 2u);
  EXPECT_EQ(cluster_.count(Opcode::kRevert), 0u) << "recovery does the rest";
}

TEST_F(SessionTest, ForgottenOutcomeIsUnknown) {
  connect(short_timeouts());
  prepare();
  cluster_.set_outcome(wire::Outcome::kForgotten);
  at(Opcode::kComplete, MutantResult::kDrop);
  EXPECT_EQ(update().code(), StatusCode::kUnknownOutcome);
  EXPECT_EQ(client_->statistics().unknown_outcomes, 1u);
  EXPECT_EQ(client_->statistics().resolved, 0u);
}

TEST_F(SessionTest, PendingOutcomesAreRequestedAgain) {
  prepare();
  cluster_.set_outcome(wire::Outcome::kPending);
  at(Opcode::kComplete, MutantResult::kCloseAndFence);
  std::atomic<bool> ended{false};
  Status status;
  Task task = client_->spawn([&] {
    status = increment();
    ended.store(true, std::memory_order_release);  // polled only; join() orders the rest
  });
  ASSERT_TRUE(eventually([&] { return cluster_.count(Opcode::kGetOutcomes) >= 3; }));
  EXPECT_FALSE(ended.load(std::memory_order_acquire));
  cluster_.set_outcome(wire::Outcome::kCommitted);
  task.join();
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_F(SessionTest, PendingOutcomeIsUnknownAfterTheCommitDeadline) {
  connect(short_timeouts());
  prepare();
  cluster_.set_outcome(wire::Outcome::kPending);
  at(Opcode::kComplete, MutantResult::kCloseAndFence);
  EXPECT_EQ(increment().code(), StatusCode::kUnknownOutcome);
  EXPECT_EQ(client_->statistics().unknown_outcomes, 1u);
}

TEST_F(SessionTest, CallsOfAnEndedSessionFailWithFenced) {
  prepare();
  auto reading = client_->begin().value();
  auto writing = client_->begin().value();
  auto idle = client_->begin({.read_only = true, .retry = {}}).value();
  ASSERT_TRUE(writing.update(*table_, Key(1), {Value::int64(7)}).ok());
  const SessionId before = client_->session();
  cluster_.fence();
  const auto record = reading.get(*table_, Key(1));
  EXPECT_EQ(record.code(), StatusCode::kFenced) << record.status().to_string();
  EXPECT_NE(record.status().message().find("run the transaction again"), std::string::npos);
  EXPECT_EQ(writing.commit().code(), StatusCode::kFenced);
  EXPECT_EQ(idle.get(*table_, Key(1)).code(), StatusCode::kFenced);
  Query keys;
  keys.with_key = true;
  const auto scan = idle.scan(*table_, keys);
  EXPECT_EQ(scan.code(), StatusCode::kFenced) << scan.status().to_string();
  EXPECT_TRUE(eventually([&] { return client_->session_open() && client_->session() > before; }));
  EXPECT_EQ(value(), 5);
  EXPECT_EQ(cluster_.count(Opcode::kWrite), 1u) << "no write was sent for a transaction that cannot commit";
}

TEST_F(SessionTest, RunTransactionContinuesUnderTheNextSession) {
  prepare();
  at(Opcode::kRead, MutantResult::kFence);
  cluster_.refuse_opens(3);  // the commit manager recovers
  const Status status = increment(32);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(value(), 6);
  EXPECT_EQ(cluster_.observations().opened, 2u);
  EXPECT_EQ(client_->statistics().fenced, 1u);
}

TEST_F(SessionTest, PlainAccessContinuesUnderTheNextSession) {
  PlainTable plain = client_->plain(client_->open_table("plain").value()).value();
  ASSERT_TRUE(plain.insert(Key(1), {Value::int64(1)}).ok());
  cluster_.fence();
  EXPECT_EQ(plain.get(Key(1))->int64(0), 1);
  cluster_.fence();
  EXPECT_TRUE(plain.insert(Key(2), {Value::int64(2)}).ok()) << "the refused write had no effect, so it was repeated";
  EXPECT_EQ(cluster_.observations().opened, 3u);
}

TEST_F(SessionTest, LeaseRenewalNamesHeldSnapshots) {
  cluster_.set_lease(40'000'000);
  connect({});
  auto held = client_->begin({.read_only = true, .retry = {}}).value();
  {
    auto released = client_->begin({.read_only = true, .retry = {}}).value();
  }
  const size_t before = cluster_.count(Opcode::kRenewSession);
  EXPECT_TRUE(eventually([&] { return cluster_.count(Opcode::kRenewSession) >= before + 3; }));
  const auto renewal = cluster_.observations().renewal;
  ASSERT_EQ(renewal.held.size(), 1u);
  EXPECT_EQ(renewal.newest, renewal.held[0] + 1);
}

TEST_F(SessionTest, RequestsBeyondTheServersWindowWait) {
  at(Opcode::kBegin, MutantResult::kHold);
  Task first = client_->spawn([&] { static_cast<void>(client_->begin()); });
  ASSERT_TRUE(eventually([&] { return cluster_.count(Opcode::kBegin) == 1; }));
  std::atomic<int> begun{0};
  Task others = client_->spawn([&] {
    for (int i = 0; i < 200; ++i)
      begun += client_->begin().ok() ? 1 : 0;  // one message for each begin, and one to give its id back
  });
  const size_t window = wire::kManagerReplyWindow.requests;
  const auto requests = [&] { return cluster_.count(Opcode::kBegin) + cluster_.count(Opcode::kComplete); };
  ASSERT_TRUE(eventually([&] { return requests() == window; }));
  EXPECT_LT(begun, 200);
  cluster_.release_held();
  others.join();
  first.join();
  EXPECT_EQ(begun, 200);
  EXPECT_EQ(cluster_.observations().out_of_sequence, 0u);
}

TEST_F(SessionTest, NodeThatLostItsRecordsIsNamedAtOnce) {
  prepare();
  auto tx = client_->begin().value();
  cluster_.set_node(wire::NodeState::kLost, Incarnation(2));
  cluster_.drop_connections(false);
  ASSERT_TRUE(eventually([&] { return tx.get(*table_, Key(1)).code() == StatusCode::kUnavailable; }));
  const auto record = tx.get(*table_, Key(1));
  EXPECT_NE(record.status().message().find("loam node accept-loss 1"), std::string::npos)
      << record.status().to_string();
  const auto started = std::chrono::steady_clock::now();
  EXPECT_EQ(increment(32).code(), StatusCode::kUnavailable) << "waiting does not help";
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(2));
}

// A node that has come back without its records keeps its incarnation when the loss is accepted. If the client's
// catalog shows the loss late, the node has executed requests of the session before (R3, idempotent requests).
TEST_F(SessionTest, SequencesRiseAcrossALossWithinAnIncarnation) {
  prepare();
  const auto read = [&] { return client_->begin().value().get(*table_, Key(1)).code(); };
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 3; ++i) ASSERT_EQ(increment(32).code(), StatusCode::kOk);
    cluster_.set_node(wire::NodeState::kLost, Incarnation(1));
    cluster_.drop_connections(false);
    ASSERT_TRUE(eventually([&] { return read() == StatusCode::kUnavailable; }));
    cluster_.set_node(wire::NodeState::kLive, Incarnation(1));
    cluster_.drop_connections(true);
    ASSERT_TRUE(eventually([&] { return read() == StatusCode::kOk; }));
  }
  ASSERT_EQ(increment(32).code(), StatusCode::kOk);
  EXPECT_EQ(value(), 5 + 2 * 3 + 1);
  EXPECT_EQ(cluster_.observations().repeated, 0u);
}

TEST_F(SessionTest, ReadsFollowARestartedNode) {
  prepare();
  auto tx = client_->begin().value();
  cluster_.set_node(wire::NodeState::kLive, Incarnation(2));
  cluster_.drop_connections(false);
  EXPECT_EQ(tx.get(*table_, Key(1))->int64(0), 5);
}

TEST_F(SessionTest, BeginsBeyondTheLimitWaitAndAreThenRefused) {
  ClientOptions options = short_timeouts();
  options.max_transactions = 2;
  options.max_waiting_begins = 1;
  connect(options);
  auto first = client_->begin().value();
  auto second = client_->begin().value();
  const auto late = client_->begin();
  EXPECT_EQ(late.code(), StatusCode::kOverloaded) << "it waited until its time-out";
  std::atomic<bool> begun{false};
  Task waiting = client_->spawn([&] { begun = client_->begin().ok(); });
  client_->yield();
  EXPECT_EQ(client_->begin().code(), StatusCode::kOverloaded) << "another begin waits already";
  EXPECT_TRUE(first.abort().ok());
  waiting.join();
  EXPECT_TRUE(begun);
  EXPECT_EQ(client_->statistics().overloaded, 2u);
  EXPECT_TRUE(client_->begin({.read_only = true, .retry = {}}).ok()) << "read-only ones are not counted";
}

TEST_F(SessionTest, RefusedScanWaitsForTheAdvisedTime) {
  Query all;
  all.with_key = true;
  const auto started = std::chrono::steady_clock::now();
  const Status status = client_->run_transaction(
      [&](Transaction& tx) -> Status {
        LOAM_ASSIGN_OR_RETURN(ScanStream stream, tx.scan(*table_, all));
        return stream.collect().status();
      },
      {.read_only = true, .retry = {.max_attempts = 2}});
  EXPECT_EQ(status.code(), StatusCode::kOverloaded) << status.to_string();
  EXPECT_EQ(cluster_.count(Opcode::kScan), 2u);
  EXPECT_GE(std::chrono::steady_clock::now() - started, std::chrono::nanoseconds(ScriptedCluster::kScanRetryNs));
  EXPECT_EQ(client_->statistics().overloaded, 2u);
}

TEST_F(SessionTest, ChunkOutsideOfTheOfferedMemoryEndsTheConnection) {
  Query all;
  all.with_key = true;
  cluster_.set_scan_slot(ScanOptions().credits);
  auto stream = client_->scan(*table_, all);
  ASSERT_TRUE(stream.ok()) << stream.status().to_string();
  const Status status = stream->collect().status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("slot 8, which the client has not offered"), std::string_view::npos)
      << status.to_string();
}

TEST_F(SessionTest, UnreachableCommitManagerIsReported) {
  connect(short_timeouts());
  cluster_.fence();
  cluster_.refuse_opens(SIZE_MAX);
  EXPECT_EQ(client_->begin().code(), StatusCode::kUnavailable);
  const auto later = client_->begin();
  EXPECT_EQ(later.code(), StatusCode::kUnavailable);
  EXPECT_NE(later.status().message().find("recovering"), std::string::npos) << later.status().to_string();
  EXPECT_FALSE(client_->session_open());
  cluster_.refuse_opens(0);
  EXPECT_TRUE(eventually([&] { return client_->begin().ok(); }));
}

}  // namespace
}  // namespace loam::client
