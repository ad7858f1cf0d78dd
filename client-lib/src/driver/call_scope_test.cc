// Calls that a deadline or a cancellation ends: their results, and the state of the servers.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <loam/client/client.h>

#include "client-lib/testing/driver_test_fixture.h"

namespace loam::client {
namespace {

/// Long enough for a loaded machine to bring a request to the server.
constexpr uint64_t kShort = 1'000'000'000;
/// Longer than any of these tests, so that the cancellation ends the call.
constexpr uint64_t kLong = 60'000'000'000;

/// A counter of several threads.
class Count {
 public:
  // relaxed: the number is only polled, and no other data depends on it.
  size_t add() { return value_.fetch_add(1, std::memory_order_relaxed); }
  size_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<size_t> value_{0};
};

enum class End : uint8_t { kDeadline, kCancel };

class CallScopeTest : public DriverTest {
 protected:
  static ClientOptions patient() {
    ClientOptions options;
    options.request_timeout_ns = kLong;
    options.commit_timeout_ns = kLong;
    return options;
  }
  void SetUp() override { connect(patient()); }

  /// Holds the reply to the next such request; `held_` counts these requests.
  void hold(Opcode opcode, WriteKind kind = {}) {
    held_ = std::make_shared<Count>();
    cluster_.set_script([opcode, kind, held = held_](Opcode seen, WriteKind seen_kind) {
      const bool met = seen == opcode && seen_kind == kind && held->add() == 0;
      return met ? MutantResult::kHold : MutantResult::kAnswer;
    });
  }
  /// Runs `call` in a scope that ends when the server holds the reply.
  template <class Call>
  auto cut_short(End end, Call call) {
    if (end == End::kDeadline) {
      const CallScope scope({.timeout_ns = kShort});
      return call();
    }
    const CancelToken token;
    std::thread canceller([this, token] {
      EXPECT_TRUE(eventually([this] { return held_->get() > 0; }));
      token.cancel();
    });
    const CallScope scope({.timeout_ns = kLong, .cancel = token});
    auto result = call();
    canceller.join();
    return result;
  }
  static StatusCode code_of(End end) { return end == End::kDeadline ? StatusCode::kTimeout : StatusCode::kCancelled; }
  /// Every id that was given out is completed.
  bool all_completed() {
    const auto seen = cluster_.observations();
    return seen.completed.size() == seen.begun;
  }

  std::shared_ptr<Count> held_;  // requests that met hold()
};

class InterruptedCallTest : public CallScopeTest, public ::testing::WithParamInterface<End> {};

INSTANTIATE_TEST_SUITE_P(Ends, InterruptedCallTest, ::testing::Values(End::kDeadline, End::kCancel),
                         [](const auto& test) {
                           return std::string(test.param == End::kDeadline ? "Deadline" : "Cancel");
                         });

TEST_P(InterruptedCallTest, ReadLeavesTheTransactionUsable) {
  prepare();
  auto tx = client_->begin().value();
  hold(Opcode::kRead);
  const auto cut = cut_short(GetParam(), [&] { return tx.get(*table_, Key(1)); });
  EXPECT_EQ(cut.code(), code_of(GetParam())) << cut.status().to_string();
  cluster_.release_held();
  EXPECT_EQ(tx.get(*table_, Key(1))->int64(0), 5);
  EXPECT_TRUE(tx.update(*table_, Key(1), {Value::int64(6)}).ok());
  EXPECT_TRUE(tx.commit().ok());
  EXPECT_GT(newest(), first_version_);
}

TEST_P(InterruptedCallTest, ManyReadsNameEachRecord) {
  prepare();
  auto tx = client_->begin().value();
  hold(Opcode::kRead);
  const std::vector<Key> keys = {Key(1), Key(2)};
  const auto cut =
      cut_short(GetParam(), [&]() -> Result<std::vector<Result<Record>>> { return tx.get_many(*table_, keys); });
  ASSERT_EQ(cut->size(), 2u);
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ((*cut)[i].code(), code_of(GetParam()));
    EXPECT_NE((*cut)[i].status().message().find("record " + std::to_string(keys[i].value)), std::string::npos)
        << (*cut)[i].status().to_string();
  }
  cluster_.release_held();
}

TEST_P(InterruptedCallTest, BeginReleasesItsId) {
  hold(Opcode::kBegin);
  const auto cut = cut_short(GetParam(), [&] { return client_->begin(); });
  EXPECT_EQ(cut.code(), code_of(GetParam())) << cut.status().to_string();
  EXPECT_EQ(cluster_.observations().begun, 1u);
  EXPECT_TRUE(cluster_.observations().completed.empty());
  cluster_.release_held();
  EXPECT_TRUE(eventually([&] { return all_completed(); })) << "the id of the abandoned begin is completed";
  EXPECT_FALSE(cluster_.observations().completed.begin()->second) << "it is aborted";
  EXPECT_TRUE(client_->begin().ok());
}

TEST_P(InterruptedCallTest, FirstWriteOfUpgradableTransactionReleasesItsId) {
  auto tx = client_->begin({.read_only = false, .upgradable = true, .retry = {}}).value();
  hold(Opcode::kBegin);
  const Status cut = cut_short(GetParam(), [&] { return tx.insert(*table_, Key(1), {Value::int64(1)}); });
  EXPECT_EQ(cut.code(), code_of(GetParam())) << cut.to_string();
  EXPECT_EQ(tx.id(), TransactionId());
  cluster_.release_held();
  EXPECT_TRUE(eventually([&] { return cluster_.observations().begun == 1 && all_completed(); }));
  EXPECT_FALSE(cluster_.observations().completed.begin()->second) << "the late id is aborted";
  EXPECT_TRUE(tx.insert(*table_, Key(1), {Value::int64(1)}).ok()) << "the write may be repeated";
  EXPECT_TRUE(tx.commit().ok());
  EXPECT_TRUE(eventually([&] { return cluster_.observations().begun == 2 && all_completed(); }));
  EXPECT_TRUE(cluster_.observations().completed.at(tx.id().value));
  EXPECT_TRUE(eventually([&] { return cluster_.observations().released.size() == 1; })) << "the snapshot is released";
}

/// Begins of one message share a snapshot. An abandoned begin must not release it for the others.
TEST_F(CallScopeTest, AbandonedBeginDoesNotReleaseSnapshotsOfOthers) {
  for (const bool upgradable : {false, true}) {
    const TransactionOptions options{.read_only = !upgradable, .upgradable = upgradable, .retry = {}};
    const size_t released = cluster_.observations().released.size();
    hold(Opcode::kBegin);
    client_->run([&] {
      // Both run in the next round, so that their begins are in one message.
      Task left = client_->spawn([&] {
        const CallScope scope({.timeout_ns = kShort});
        EXPECT_EQ(client_->begin(options).code(), StatusCode::kTimeout);
        cluster_.release_held();
      });
      Task reader = client_->spawn([&] {
        const auto kept = client_->begin(options);
        ASSERT_TRUE(kept.ok()) << kept.status().to_string();
        EXPECT_TRUE(client_->list_tables().ok()) << "a round trip after possible releases";
        EXPECT_EQ(cluster_.observations().released.size(), released) << "the snapshot is still read";
      });
      left.join();
      reader.join();
    });
    EXPECT_TRUE(eventually([&] { return cluster_.observations().released.size() == released + 1; }));
  }
}

/// The commit manager refuses a Begin as a whole. So an abandoned upgrade must not name a released snapshot.
TEST_F(CallScopeTest, AbandonedUpgradeDoesNotDisturbOtherBegins) {
  const CancelToken token;
  token.cancel();
  for (int round = 0; round < 20; ++round) {
    client_->run([&] {
      auto tx = std::make_optional(client_->begin({.read_only = false, .upgradable = true, .retry = {}}).value());
      Task other = client_->spawn([&] {
        const auto begun = client_->begin();
        EXPECT_TRUE(begun.ok()) << begun.status().to_string();
      });
      {
        const CallScope scope({.cancel = token});
        EXPECT_EQ(tx->insert(*table_, Key(1), {Value::int64(1)}).code(), StatusCode::kCancelled);
      }
      tx.reset();  // its snapshot is released in the round in which the upgrade is sent
      other.join();
    });
  }
  EXPECT_TRUE(eventually([&] { return all_completed() && cluster_.observations().released.size() == 20; }));
}

TEST_P(InterruptedCallTest, PlainWriteHasUnknownOutcome) {
  PlainTable plain = client_->plain(client_->open_table("plain").value()).value();
  hold(Opcode::kPlainWrite, WriteKind::kInsert);
  const auto cut = cut_short(GetParam(), [&] { return plain.insert(Key(1), {Value::int64(1)}); });
  EXPECT_EQ(cut.code(), StatusCode::kUnknownOutcome) << cut.status().to_string();
  cluster_.release_held();
  EXPECT_EQ(plain.get(Key(1))->int64(0), 1) << "the server has executed it";
}

TEST_P(InterruptedCallTest, CatalogCallDoesNotDisturbTheNextOne) {
  hold(Opcode::kGetCatalog);
  const auto cut = cut_short(GetParam(), [&] { return client_->list_tables(); });
  EXPECT_EQ(cut.code(), code_of(GetParam())) << cut.status().to_string();
  cluster_.release_held();
  EXPECT_EQ(client_->list_tables()->size(), 2u);
}

/// The call of a commit ends at each of its steps. The commit goes on and is decided as usual.
TEST_P(InterruptedCallTest, CommitHasUnknownOutcomeAndGoesOn) {
  for (const Opcode step : {Opcode::kWrite, Opcode::kComplete}) {
    SCOPED_TRACE(std::string(wire::to_string(step)));
    connect(patient());
    prepare();
    auto tx = client_->begin().value();
    ASSERT_TRUE(tx.update(*table_, Key(1), {Value::int64(7)}).ok());
    hold(step);
    const Status cut = cut_short(GetParam(), [&] { return tx.commit(); });
    EXPECT_EQ(cut.code(), StatusCode::kUnknownOutcome) << cut.to_string();
    EXPECT_TRUE(tx.finished());
    EXPECT_EQ(tx.commit().code(), StatusCode::kInvalidArgument) << "it is committed once";
    EXPECT_TRUE(tx.abort().ok()) << "and cannot be aborted any more";
    cluster_.release_held();
    EXPECT_TRUE(eventually([&] { return all_completed(); }));
    EXPECT_TRUE(cluster_.observations().completed.at(tx.id().value)) << "committed";
    EXPECT_GT(newest(), first_version_);
    client_.reset();
    cluster_.set_script({});
    const auto reader = Client::connect(cluster_.address(), patient()).value();
    EXPECT_EQ(reader->begin().value().get(*table_, Key(1))->int64(0), 7);
    auto clear = reader->run_transaction([&](Transaction& next) { return next.remove(*table_, Key(1)); });
    ASSERT_TRUE(clear.ok()) << clear.to_string();
  }
}

TEST_P(InterruptedCallTest, ClientDestructorWaitsForInterruptedCommit) {
  prepare();
  auto tx = std::make_optional(client_->begin().value());
  const TransactionId id = tx->id();
  ASSERT_TRUE(tx->update(*table_, Key(1), {Value::int64(7)}).ok());
  hold(Opcode::kWrite);
  EXPECT_EQ(cut_short(GetParam(), [&] { return tx->commit(); }).code(), StatusCode::kUnknownOutcome);
  tx.reset();  // the commit alone holds the transaction
  std::thread releaser([&] { cluster_.release_held(); });
  client_.reset();
  releaser.join();
  EXPECT_TRUE(cluster_.observations().completed.at(id.value));
}

TEST_P(InterruptedCallTest, CallEndsBeforeCommitAndAbortsIt) {
  prepare();
  auto tx = client_->begin().value();
  ASSERT_TRUE(tx.update(*table_, Key(1), {Value::int64(7)}).ok());
  const CancelToken token;
  if (GetParam() == End::kCancel) token.cancel();
  const Status cut = client_->run([&] {
    const CallScope scope({.timeout_ns = GetParam() == End::kDeadline ? 1 : kLong, .cancel = token});
    client_->sleep_for(1'000'000);
    return tx.commit();
  });
  EXPECT_EQ(cut.code(), code_of(GetParam())) << cut.to_string();
  EXPECT_TRUE(eventually([&] { return all_completed(); }));
  EXPECT_FALSE(cluster_.observations().completed.at(tx.id().value));
  EXPECT_EQ(newest(), first_version_) << "nothing was written";
}

TEST_P(InterruptedCallTest, ScanIsCancelledAtTheNodes) {
  cluster_.set_script(
      [](Opcode opcode, WriteKind) { return opcode == Opcode::kScan ? MutantResult::kDrop : MutantResult::kAnswer; });
  held_ = std::make_shared<Count>();
  held_->add();
  Query all;
  all.select = {0};
  ScanStream stream = client_->scan(*table_, all).value();
  const auto cut = cut_short(GetParam(), [&] { return stream.next(); });
  EXPECT_EQ(cut.code(), code_of(GetParam())) << cut.status().to_string();
  if (GetParam() == End::kDeadline) {
    EXPECT_EQ(cluster_.count(Opcode::kScanCancel), 0u) << "the stream lives on";
    stream.cancel();
  }
  EXPECT_TRUE(eventually([&] { return cluster_.count(Opcode::kScanCancel) == 1; }));
  EXPECT_EQ(stream.next().code(), StatusCode::kCancelled);
}

// ---- scopes --------------------------------------------------------------------------------------------------------

TEST_F(CallScopeTest, CancelledTokenEndsLaterCallsAtOnce) {
  prepare();
  const CancelToken token;
  auto tx = client_->begin().value();
  token.cancel();
  const CallScope scope({.cancel = token});
  EXPECT_TRUE(token.cancelled());
  EXPECT_EQ(tx.get(*table_, Key(1)).code(), StatusCode::kCancelled);
  EXPECT_EQ(client_->begin().code(), StatusCode::kCancelled);
  EXPECT_TRUE(tx.abort().ok()) << "the abort does not wait";
}

TEST_F(CallScopeTest, ScopesNestAndEnd) {
  prepare();
  auto tx = client_->begin().value();
  const CancelToken outer, inner;
  {
    const CallScope outside({.timeout_ns = kLong, .cancel = outer});
    {
      const CallScope inside({.cancel = inner});
      inner.cancel();
      EXPECT_EQ(tx.get(*table_, Key(1)).code(), StatusCode::kCancelled);
    }
    EXPECT_TRUE(tx.get(*table_, Key(1)).ok()) << "the inner scope has ended";
    outer.cancel();
    const CallScope inside({.timeout_ns = kLong});
    EXPECT_EQ(tx.get(*table_, Key(1)).code(), StatusCode::kCancelled) << "the outer scope bounds the inner one";
  }
  EXPECT_TRUE(tx.get(*table_, Key(1)).ok());
}

TEST_F(CallScopeTest, BoundsOnlyItsOwnFiber) {
  prepare();
  const CancelToken token;
  token.cancel();
  client_->run([&] {
    auto tx = client_->begin().value();
    const CallScope scope({.cancel = token});
    Task other = client_->spawn([&] { EXPECT_TRUE(client_->begin().ok()); });
    EXPECT_EQ(tx.get(*table_, Key(1)).code(), StatusCode::kCancelled);
    EXPECT_FALSE(other.wait_for(kLong)) << "the scope bounds this wait, too";
    client_->spawn([other]() mutable { other.join(); });
  });
  EXPECT_TRUE(client_->begin().ok()) << "the scope does not bound later calls";
}

TEST_F(CallScopeTest, RunTransactionMakesNoFurtherAttempt) {
  prepare();
  const CancelToken token;
  size_t attempts = 0;
  const CallScope scope({.cancel = token});
  const Status cut = client_->run_transaction(
      [&](Transaction&) -> Status {
        if (++attempts == 3) token.cancel();
        return {StatusCode::kConflict, "as if another had written"};
      },
      {.read_only = false, .retry = {.max_attempts = 1'000'000}});
  EXPECT_FALSE(cut.ok());
  EXPECT_LE(attempts, 4u);
}

TEST_F(CallScopeTest, OneTokenEndsManyCalls) {
  prepare();
  cluster_.set_script(
      [](Opcode opcode, WriteKind) { return opcode == Opcode::kRead ? MutantResult::kDrop : MutantResult::kAnswer; });
  constexpr size_t kCalls = 500;
  const CancelToken token;
  std::vector<Future<Record>> futures;
  Count begun;
  for (size_t i = 0; i < kCalls; ++i) {
    futures.push_back(client_->async(
        [&]() -> Result<Record> {
          auto tx = client_->begin();
          if (!tx.ok()) return tx.status();
          begun.add();
          return tx->get(*table_, Key(1));
        },
        {.cancel = token}));
  }
  EXPECT_TRUE(eventually([&] { return begun.get() == kCalls; }));
  token.cancel();
  for (auto& future : futures) EXPECT_EQ(future.get().code(), StatusCode::kCancelled);
}

// ---- futures -------------------------------------------------------------------------------------------------------

TEST_F(CallScopeTest, FutureCanBeWaitedForWatchedAndCancelled) {
  prepare();
  auto tx = client_->begin().value();
  const auto read = [&] { return tx.get(*table_, Key(1)); };
  using Make = std::function<Future<Record>()>;
  for (const Make& make :
       {Make([&] { return client_->async(read); }), Make([&] { return tx.get_async(*table_, Key(1)); })}) {
    hold(Opcode::kRead);
    Future<Record> answered = make();
    Count callbacks;
    answered.on_ready([&] { callbacks.add(); });
    EXPECT_FALSE(answered.ready());
    EXPECT_FALSE(answered.wait_for(1'000'000));
    {
      const CallScope scope({.timeout_ns = 1'000'000});
      EXPECT_EQ(answered.get().code(), StatusCode::kTimeout) << "the reply may still be waited for";
    }
    EXPECT_EQ(callbacks.get(), 0u);
    cluster_.release_held();
    EXPECT_TRUE(eventually([&] { return callbacks.get() == 1; }));
    EXPECT_TRUE(answered.ready());
    EXPECT_EQ(answered.get()->int64(0), 5);

    hold(Opcode::kRead);
    Future<Record> cancelled = make();
    EXPECT_TRUE(eventually([&] { return held_->get() > 0; }));
    cancelled.cancel();
    EXPECT_EQ(cancelled.get().code(), StatusCode::kCancelled) << "while the reply is held";
    EXPECT_EQ(held_->get(), 1u);
    cluster_.release_held();

    hold(Opcode::kRead);
    {
      const Future<Record> dropped = make();
    }
    EXPECT_TRUE(eventually([&] { return held_->get() > 0; }));
    cluster_.release_held();
    cluster_.set_script({});
    EXPECT_TRUE(tx.get(*table_, Key(1)).ok());

    Future<Record> known = make();
    EXPECT_TRUE(known.wait_for(kLong));
    int at_once = 0;
    known.on_ready([&] { ++at_once; });
    EXPECT_EQ(at_once, 1) << "the reply had arrived";
  }
}

TEST_F(CallScopeTest, AsynchronousCallReturnsStatusesAndExceptions) {
  Future<void> status = client_->async([]() -> Status { return {StatusCode::kNotFound, "as said"}; });
  EXPECT_EQ(status.get().code(), StatusCode::kNotFound);
  Future<void> thrown = client_->async([]() -> Status { throw std::runtime_error("by the function"); });
  EXPECT_THROW(static_cast<void>(thrown.get()), std::runtime_error);
  Future<int> value = client_->async([]() -> Result<int> { return 7; }, {.timeout_ns = kLong});
  value.on_ready([] { throw std::runtime_error("by the callback: logged"); });
  EXPECT_EQ(*value.get(), 7);
  EXPECT_TRUE(client_->begin().ok()) << "the worker goes on";
}

TEST_F(CallScopeTest, AsynchronousCallHasTheTimeoutOfItsOptions) {
  prepare();
  auto tx = client_->begin().value();
  hold(Opcode::kRead);
  Future<Record> late = client_->async([&] { return tx.get(*table_, Key(1)); }, {.timeout_ns = kShort});
  EXPECT_EQ(late.get().code(), StatusCode::kTimeout);
  cluster_.release_held();
}

TEST_F(CallScopeTest, SleepsAndJoinsEndEarly) {
  const CancelToken token;
  token.cancel();
  const CallScope scope({.timeout_ns = kLong, .cancel = token});
  client_->sleep_for(kLong);
  Count go;
  Task task = client_->spawn([&] {
    while (go.get() == 0) client_->sleep_for(1'000'000);
  });
  task.join();
  EXPECT_FALSE(task.done());
  go.add();
  EXPECT_TRUE(eventually([&] { return task.done(); }));
}

}  // namespace
}  // namespace loam::client
