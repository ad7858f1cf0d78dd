// Recovery of dead clients in a whole cluster in one process, over TCP: their transactions end as the rules demand,
// and in time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <loam/client/client.h>
#include <loam/commit/manager.h>
#include <loam/storage/node.h>

#include "client-lib/testing/cluster_test_fixture.h"
#include "common/base/env.h"
#include "common/testing/eventually.h"
#include "tests/integration/dead_test_client.h"

namespace loam::client {
namespace {

using Clock = std::chrono::steady_clock;
using wire::RecordId;

constexpr uint64_t kLeaseNs = 500'000'000;
constexpr int64_t kOld = 100;
constexpr int64_t kNew = 7;
/// Time beyond the lease for the fence, recovery and the poll of the test. It takes 10 ms on an idle machine; the
/// limit leaves room for other load.
constexpr double kRecoveryMs = 500;

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

template <class T>
T take(Result<T> result) {
  if (!result.ok()) std::fprintf(stderr, "%s\n", result.status().to_string().c_str());
  return std::move(result).value();
}

class ClusterRecoveryTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kKeys = 8;

  void SetUp() override {
    data_ = std::filesystem::temp_directory_path() / ("loam-recovery-test-" + std::to_string(::getpid()));
    std::filesystem::remove_all(data_);
    start_manager("tcp://127.0.0.1:0");
    for (int i = 0; i < 2; ++i) {
      nodes_.push_back(take(storage::StorageNode::start(small_node(manager_->address()))));
    }
    client_ = take(Client::connect(manager_->address()));
    const Schema schema = Schema::make({{"balance", FieldType::kInt64, false}}).value();
    table_.emplace(take(client_->create_table("accounts", TableKind::kTransactional, schema)));
    fill(0, kKeys);
    const Record made = Record::make(*table_, {Value::int64(kNew)}).value();
    row_.assign(made.bytes().begin(), made.bytes().end());
  }
  void TearDown() override {
    client_.reset();
    for (auto& node : nodes_) node->stop();
    manager_->stop();
    std::filesystem::remove_all(data_);
  }

  void start_manager(const std::string& listen) {
    commit::ManagerOptions manager;
    manager.listen = listen;
    manager.admin_listen = "";
    manager.data = data_;
    manager.core.initial_nodes = 2;
    manager.core.client_lease_ns = kLeaseNs;
    manager_ = take(commit::CommitManager::start(manager));
  }

  void fill(uint64_t first, uint64_t count) {
    constexpr uint64_t kAtOnce = 5'000;
    for (uint64_t begin = first; begin < first + count; begin += kAtOnce) {
      const Status status = client_->run_transaction([&](Transaction& tx) -> Status {
        for (uint64_t key = begin; key < std::min(first + count, begin + kAtOnce); ++key) {
          LOAM_RETURN_IF_ERROR(tx.insert(*table_, Key(key), {Value::int64(kOld)}));
        }
        return ok_status();
      });
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  }

  std::vector<RecordId> records() const {
    std::vector<RecordId> all;
    for (uint64_t key = 0; key < kKeys; ++key) all.push_back({table_->id(), Key(key)});
    return all;
  }

  /// Adds one to every balance. kConflict while an open transaction of a dead client holds a record.
  Status add_one() {
    LOAM_ASSIGN_OR_RETURN(Transaction tx, client_->begin());
    for (uint64_t key = 0; key < kKeys; ++key) {
      LOAM_ASSIGN_OR_RETURN(Record record, tx.get(*table_, Key(key)));
      LOAM_RETURN_IF_ERROR(record.set("balance", Value::int64(record.int64("balance") + 1)));
      LOAM_RETURN_IF_ERROR(tx.update(*table_, Key(key), record));
    }
    return tx.commit();
  }
  /// Milliseconds until every record can be written again.
  double ms_until_writable(Clock::time_point begin) {
    for (;;) {
      const Status status = add_one();
      if (status.ok()) return ms_since(begin);
      // These codes occur while the commit manager restarts: the session has ended, and begins are not answered
      // before the end of recovery.
      const bool passing =
          status == StatusCode::kConflict || status == StatusCode::kUnavailable || status == StatusCode::kFenced;
      if (!passing || ms_since(begin) > 20'000) {
        ADD_FAILURE() << status.to_string();
        return ms_since(begin);
      }
      client_->sleep_for(1'000'000);  // poll interval
    }
  }
  std::vector<int64_t> balances() {
    std::vector<int64_t> found;
    auto tx = client_->begin({.read_only = true, .retry = {}});
    for (uint64_t key = 0; key < kKeys; ++key) found.push_back(tx->get(*table_, Key(key))->int64("balance"));
    return found;
  }
  bool wait_until_nothing_is_left() {
    return testing::eventually([this] {
      const auto core = manager_->statistics().core;
      return core.open == 0 && core.sessions_fencing + core.sessions_recovering == 0;
    });
  }

  /// Storage nodes drop intents when a publication covers their transactions.
  bool wait_until_intents_are_gone(const std::vector<TransactionId>& ids) {
    DeadTestClient witness(manager_->address());
    return testing::eventually([&] { return witness.intents(ids) == 0; });
  }
  wire::Outcome outcome(TransactionId id) {
    std::promise<wire::Outcome> outcome_promise;
    EXPECT_TRUE(manager_->post([&](commit::Core& core) { outcome_promise.set_value(core.outcome(id)); }));
    return outcome_promise.get_future().get();
  }

  std::filesystem::path data_;
  std::unique_ptr<commit::CommitManager> manager_;
  std::vector<std::unique_ptr<storage::StorageNode>> nodes_;
  std::unique_ptr<Client> client_;
  std::optional<Table> table_;
  Buffer row_;
};

/// The steps of a commit (R1, commit order) and of an abort (R2, abort order). Each step includes all earlier steps
/// of the same procedure.
enum class Step {
  kBegun,
  kSomeWritten,
  kAllWritten,
  kCompleteSent,
  kCompletedCommitted,
  kSomeReverted,
  kReverted,
  kCompletedAborted,
};

class ClientKilledAtStep : public ClusterRecoveryTest,
                           public ::testing::WithParamInterface<std::pair<Step, const char*>> {
 protected:
  /// Executes the steps up to `last`.
  void play(DeadTestClient& client, TransactionId id, Step last) const {
    const std::vector<RecordId> all = records();
    const std::vector<RecordId> some(all.begin(), all.begin() + 3);
    if (last >= Step::kSomeWritten) {
      client.update(id, last == Step::kSomeWritten ? some : all, row_);
    }
    if (last == Step::kCompleteSent) client.send_complete(id, true);
    if (last == Step::kCompletedCommitted) client.complete(id, true);
    if (last >= Step::kSomeReverted) client.revert(id, last == Step::kSomeReverted ? some : all);
    if (last == Step::kCompletedAborted) client.complete(id, false);
  }
};

TEST_P(ClientKilledAtStep, LeavesAllOrNothing) {
  const Step step = GetParam().first;
  TransactionId id;
  Clock::time_point died;
  {
    DeadTestClient dead(manager_->address());
    id = dead.begin();
    play(dead, id, step);
    died = Clock::now();
  }
  const double ms = ms_until_writable(died);
  ASSERT_TRUE(wait_until_nothing_is_left());
  const double all_ms = ms_since(died);
  std::printf("dead at %s: writable after %.1f ms, nothing left after %.1f ms, lease %.0f ms\n", GetParam().second, ms,
              all_ms, kLeaseNs / 1e6);
  EXPECT_LT(std::max(ms, all_ms), kLeaseNs / 1e6 * 9 / 8 + kRecoveryMs);
  const bool committed = outcome(id) == wire::Outcome::kCommitted;
  if (!committed) {
    EXPECT_EQ(outcome(id), wire::Outcome::kAborted);
  }
  if (step != Step::kCompleteSent) {
    EXPECT_EQ(committed, step == Step::kCompletedCommitted);
  }
  EXPECT_EQ(balances(), std::vector<int64_t>(kKeys, (committed ? kNew : kOld) + 1));
  EXPECT_TRUE(wait_until_intents_are_gone({id}));
}

INSTANTIATE_TEST_SUITE_P(
    Steps, ClientKilledAtStep,
    ::testing::Values(std::pair{Step::kBegun, "Begun"}, std::pair{Step::kSomeWritten, "SomeWritten"},
                      std::pair{Step::kAllWritten, "AllWritten"}, std::pair{Step::kCompleteSent, "CompleteSent"},
                      std::pair{Step::kCompletedCommitted, "CompletedCommitted"},
                      std::pair{Step::kSomeReverted, "SomeReverted"}, std::pair{Step::kReverted, "Reverted"},
                      std::pair{Step::kCompletedAborted, "CompletedAborted"}),
    [](const auto& instance) { return instance.param.second; });

#ifdef LOAM_ASSERTIONS

/// The commit manager stops when its recoverer reaches a step, and is started again.
class ManagerRestartedAtStep : public ClusterRecoveryTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(ManagerRestartedAtStep, CompletesAfterManagerRestart) {
  std::vector<TransactionId> ids;
  std::atomic<int> reached{0}, stopping{0};  // relaxed: the flags publish no other data
  {
    DeadTestClient dead(manager_->address());
    ids = {dead.begin(), dead.begin()};
    const std::vector<RecordId> all = records();
    const std::vector<RecordId> first(all.begin(), all.begin() + 4), second(all.begin() + 4, all.end());
    dead.update(ids[0], first, row_);
    dead.update(ids[1], second, row_);
    dead.complete(ids[1], true);
  }
  {
    const auto hook = PausePoints::on(GetParam(), [&] {
      reached.store(1, std::memory_order_relaxed);
      while (stopping.load(std::memory_order_relaxed) == 0) std::this_thread::yield();
    });
    EXPECT_TRUE(testing::eventually([&] { return reached.load(std::memory_order_relaxed) == 1; }))
        << "the recoverer does not reach " << GetParam();
    const std::string address = manager_->address();
    std::thread release([&] {
      const auto stopped = Clock::now();  // stop() tells the recoverer at about this moment
      while (ms_since(stopped) < 20) std::this_thread::yield();
      stopping.store(1, std::memory_order_relaxed);
    });
    manager_->stop();
    release.join();
    manager_.reset();
    start_manager(address);
  }
  double ms = ms_until_writable(Clock::now());
  ASSERT_TRUE(wait_until_nothing_is_left());
  std::printf("stopped at %s: writable %.0f ms after the restart\n", GetParam(), ms);
  std::vector<int64_t> expected(kKeys, kOld + 1);
  std::fill(expected.begin() + 4, expected.end(), kNew + 1);
  EXPECT_EQ(balances(), expected);
  EXPECT_EQ(outcome(ids[0]), wire::Outcome::kAborted);
  EXPECT_EQ(outcome(ids[1]), wire::Outcome::kCommitted);
  EXPECT_TRUE(wait_until_intents_are_gone(ids));
}

INSTANTIATE_TEST_SUITE_P(Steps, ManagerRestartedAtStep,
                         ::testing::Values("recoverer.intents_read", "recoverer.indexes_undone", "recoverer.reverted"),
                         [](const auto& instance) { return std::string(instance.param).substr(10); });

#endif

TEST_F(ClusterRecoveryTest, EndsManyTransactionsOfOneClient) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  constexpr uint32_t kTransactions = 2'000;  // fewer, because sanitizers make the run slow
#else
  constexpr uint32_t kTransactions = 8'000;  // below kMaxOpenPerSession
#endif
  constexpr uint32_t kBatch = 1'000;
  constexpr uint64_t kEach = 2;
  constexpr uint64_t kFirstKey = 1'000'000;
  fill(kFirstKey, kTransactions * kEach);
  Clock::time_point died;
  {
    DeadTestClient dead(manager_->address());
    uint64_t key = kFirstKey;
    for (uint32_t done = 0; done < kTransactions; done += kBatch) {
      const TransactionId first = dead.begin(kBatch);
      std::vector<std::vector<RecordId>> all(kBatch);
      for (auto& each : all) {
        for (uint64_t i = 0; i < kEach; ++i) each.push_back({table_->id(), Key(key++)});
      }
      dead.leave_open(first, all, row_);
    }
    died = Clock::now();
  }
  Clock::time_point begun{};
  ASSERT_TRUE(testing::eventually([&] {
    begun = Clock::now();
    const auto core = manager_->statistics().core;
    return core.orphaned_transactions + core.recovered_aborted >= kTransactions;
  }));
  ASSERT_TRUE(wait_until_nothing_is_left());
  const double seconds = ms_since(begun) / 1'000;
  std::printf(
      "%u open transactions of 2 records of one dead client, 2 nodes: %.3f s, %.0f transactions/s; %.0f ms after"
      " its death\n",
      kTransactions, seconds, kTransactions / seconds, ms_since(died));
  EXPECT_EQ(manager_->statistics().core.recovered_aborted, kTransactions);
}

}  // namespace
}  // namespace loam::client
