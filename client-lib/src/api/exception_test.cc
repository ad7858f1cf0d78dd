// Exceptions of an application's functions arrive at the caller.
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <loam/client/client.h>

#include "client-lib/src/api/client_impl.h"
#include "client-lib/testing/cluster_test_fixture.h"
#include "common/base/pause_point.h"
#include "common/fiber/scheduler.h"

namespace loam::client {
namespace {

using testing::eventually;

class ExceptionTest : public ClusterTest {
 protected:
  [[noreturn]] static void fail() { throw std::runtime_error("the application's"); }
  /// Returns the text of the exception that `function` throws, or an empty text.
  template <class Function>
  static std::string thrown_by(const Function& function) {
    try {
      function();
    } catch (const std::exception& error) {
      return error.what();
    }
    return {};
  }
  /// Runs `check` on this thread and in a fiber.
  template <class Check>
  void on_thread_and_fiber(const Check& check) {
    check();
    client_->run([&] { check(); });
  }
};

constexpr const char* kThrown = "the application's";

TEST_F(ExceptionTest, RunThrowsItsFunctionsExceptionAndRunsItOnce) {
  on_thread_and_fiber([&] {
    int calls = 0;
    EXPECT_EQ(thrown_by([&] {
                client_->run([&] {
                  ++calls;
                  fail();
                });
              }),
              kThrown);
    EXPECT_EQ(calls, 1);
    const auto text = [&]() -> std::string {
      ++calls;
      fail();
    };
    EXPECT_EQ(thrown_by([&] { static_cast<void>(client_->run(text)); }), kThrown);
    EXPECT_EQ(calls, 2);
  });
  EXPECT_EQ(client_->run([] { return std::string("still there"); }), "still there");
}

TEST_F(ExceptionTest, JoinThrowsTheFibersException) {
  on_thread_and_fiber([&] {
    Task task = client_->spawn([] { fail(); });
    EXPECT_EQ(thrown_by([&] { task.join(); }), kThrown);
    EXPECT_TRUE(task.done());
    EXPECT_EQ(thrown_by([&] { task.join(); }), kThrown) << "each caller gets the exception";
  });
}

TEST_F(ExceptionTest, RunTransactionAbortsAndThrowsItsBodysException) {
  const Table table = accounts();
  fill(table, 1, 10);
  on_thread_and_fiber([&] {
    const uint64_t aborted = client_->statistics().aborted;
    int bodies = 0;
    const auto body = [&](Transaction& tx) -> Status {
      ++bodies;
      LOAM_RETURN_IF_ERROR(tx.update(table, Key(0), {{"balance", Value::int64(99)}}));
      fail();
    };
    EXPECT_EQ(thrown_by([&] { static_cast<void>(client_->run_transaction(body)); }), kThrown);
    EXPECT_EQ(bodies, 1);
    EXPECT_EQ(client_->statistics().aborted, aborted + 1) << "before the exception arrives";
    EXPECT_EQ(balance(table, 0), 10);
  });
  EXPECT_TRUE(all_transactions_ended());
}

TEST_F(ExceptionTest, TransactionIsAbortedByAnException) {
  const Table table = accounts();
  fill(table, 1, 10);
  const auto body = [&] {
    auto tx = client_->begin().value();
    EXPECT_TRUE(tx.update(table, Key(0), {{"balance", Value::int64(99)}}).ok());
    fail();
  };
  on_thread_and_fiber([&] { EXPECT_EQ(thrown_by(body), kThrown); });
  EXPECT_TRUE(all_transactions_ended());
  EXPECT_EQ(balance(table, 0), 10);
}

TEST_F(ExceptionTest, CatchBlockMayCallTheLibrary) {
  const Table table = accounts();
  fill(table, 1, 10);
  std::vector<Task> tasks;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i) {
    tasks.push_back(client_->spawn([&, i] {
      try {
        throw std::runtime_error(std::to_string(i));
      } catch (const std::runtime_error& error) {
        const bool read = balance(table, 0) == 10;  // waits for the network
        right += read && error.what() == std::to_string(i) ? 1 : 0;
      }
    }));
  }
  for (Task& task : tasks) task.join();
  EXPECT_EQ(right, 8);
}

TEST_F(ExceptionTest, ScanProgressExceptionReachesTheReader) {
  const Table table = accounts();
  fill(table, 5'000, 1);
  std::atomic<int> progress_calls{0};
  ScanOptions options;
  options.credits = 1;
  options.progress_interval_ns = 1;
  options.on_progress = [&](const ScanStatistics&) {
    ++progress_calls;
    fail();
  };
  Query query;
  query.select.assign(200, 0);  // more than one chunk: so the nodes report their progress before they end
  auto stream = client_->scan(table, query, options).value();
  EXPECT_TRUE(eventually([&] { return progress_calls > 0; }));
  EXPECT_EQ(thrown_by([&] { static_cast<void>(stream.collect()); }), kThrown);
  EXPECT_EQ(stream.next().code(), StatusCode::kCancelled);
  EXPECT_EQ(progress_calls, 1);
  EXPECT_TRUE(eventually([] { return read_only_snapshots() == 0; }));
  EXPECT_EQ(balance(table, 0), 1) << "the client goes on";
}

TEST_F(ExceptionTest, IndexProgressExceptionReachesTheCaller) {
  const Table table = accounts();
  fill(table, 10, 1);
  bool throws = true;
  IndexOptions options;
  options.on_progress = [&](uint64_t, uint64_t) {
    if (throws) fail();
  };
  on_thread_and_fiber([&] {
    EXPECT_EQ(
        thrown_by([&] { EXPECT_TRUE(client_->create_index("exception.index", table, {{"balance"}}, options).ok()); }),
        kThrown);
  });
  throws = false;
  const auto index = client_->create_index("exception.index", table, {{"balance"}}, options);
  EXPECT_TRUE(index.ok() && index->ready()) << index.status().to_string();
}

/// Throws once at a pause point that several fibers of a call pass, in the fiber `caller` or in another one. The
/// exception is not derived from std::exception.
class ThrowingFiber {
 public:
  ThrowingFiber(const char* point, uint64_t caller, bool in_caller)
      : hook_(PausePoints::on(point, [this, caller, in_caller] {
          const fiber::FiberScheduler* const scheduler = fiber::FiberScheduler::current();
          if (scheduler == nullptr || (scheduler->current_fiber() == caller) != in_caller) return;
          if (!std::exchange(thrown_, true)) throw 1;
        })) {}

  bool thrown() const { return thrown_; }

 private:
  bool thrown_ = false;     // used by the worker thread only
  PausePoints::Hook hook_;  // last member, because its callback uses the others
};

/// Inserts records with different balances, so that several fibers change the index.
Status insert_some(Transaction& tx, const Table& table) {
  for (uint64_t key = 0; key < 8; ++key) {
    LOAM_RETURN_IF_ERROR(tx.insert(table, Key(key), {Value::int64(static_cast<int64_t>(key)), Value::null()}));
  }
  return ok_status();
}

// The build must not wait for ever for a fiber that threw. The calling fiber enters no records itself.
TEST_F(ExceptionTest, IndexBuildEndsWhenAnyFiberThrows) {
  const Table table = accounts();
  ASSERT_TRUE(client_->run_transaction([&](Transaction& tx) { return insert_some(tx, table); }).ok());
  const auto create = [&] { return client_->create_index("exception.build", table, {{"balance"}}); };
  client_->run([&] {
    const uint64_t caller = client_->impl().worker().scheduler().current_fiber();
    const ThrowingFiber fiber("client.index.build_enters", caller, false);
    const auto failed = create();
    EXPECT_EQ(failed.code(), StatusCode::kUnknownOutcome) << failed.status().to_string();
    EXPECT_TRUE(fiber.thrown());
  });
  const auto index = create();
  ASSERT_TRUE(index.ok() && index->ready()) << index.status().to_string();
  auto tx = client_->begin({.read_only = true, .retry = {}});
  EXPECT_EQ(tx->range(*index, {})->size(), 8);
}

TEST_F(ExceptionTest, CommitEndsWhenAnyIndexFiberThrows) {
  const auto client = cluster_->client();
  for (const bool in_caller : {true, false}) {
    const Table table = accounts();
    const std::string name = "exception.commit." + std::to_string(in_caller);
    const Index index = client->create_index(name, table, {{"balance"}}).value();
    client->run([&] {
      auto tx = client->begin().value();
      ASSERT_TRUE(insert_some(tx, table).ok());
      const uint64_t caller = client->impl().worker().scheduler().current_fiber();
      const ThrowingFiber fiber("client.index.change", caller, in_caller);
      const Status committed = tx.commit();
      EXPECT_EQ(committed.code(), StatusCode::kFenced) << committed.to_string();
      EXPECT_TRUE(fiber.thrown());
    });
    // A new session can write when recovery has undone the changes of the old one.
    EXPECT_TRUE(eventually(
        [&] { return client->run_transaction([&](Transaction& tx) { return insert_some(tx, table); }).ok(); }));
    auto tx = client->begin({.read_only = true, .retry = {}});
    EXPECT_EQ(tx->range(index, {})->size(), 8);
  }
}

TEST_F(ExceptionTest, WarningHandlerMayThrow) {
  std::atomic<int> warnings{0};
  ClientOptions options;
  options.on_warning = [&](std::string_view) {
    ++warnings;
    fail();
  };
  const auto client = cluster_->client(options);
  const auto hold = [&] {  // holds the worker thread for over 10 ms
    const uint64_t until_ns = client->impl().worker().now_ns() + 20'000'000;
    while (client->impl().worker().now_ns() < until_ns) {
    }
  };
  EXPECT_TRUE(eventually([&] {
    client->run(hold);
    return warnings > 0;
  }));
}

}  // namespace
}  // namespace loam::client
