// What functions of an application throw arrives at the caller.
#include <atomic>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <loam/client/client.h>

#include "client-lib/src/api/client_impl.h"
#include "client-lib/src/api/cluster_test_fixture.h"
#include "common/base/pause_point.h"
#include "common/fiber/scheduler.h"

namespace loam::client {
namespace {

using testing::eventually;

class ExceptionTest : public ClusterTest {
 protected:
  [[noreturn]] static void fail() { throw std::runtime_error("the application's"); }
  /// What `function` throws; empty if nothing.
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

TEST_F(ExceptionTest, RunThrowsWhatItsFunctionThrowsAndRunsItOnce) {
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

TEST_F(ExceptionTest, JoinThrowsWhatTheFiberThrew) {
  on_thread_and_fiber([&] {
    Task task = client_->spawn([] { fail(); });
    EXPECT_EQ(thrown_by([&] { task.join(); }), kThrown);
    EXPECT_TRUE(task.done());
    EXPECT_EQ(thrown_by([&] { task.join(); }), kThrown) << "each caller learns it";
  });
}

TEST_F(ExceptionTest, RunTransactionAbortsAndThrowsWhatItsBodyThrew) {
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

TEST_F(ExceptionTest, ATransactionLostToAnExceptionIsAborted) {
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

TEST_F(ExceptionTest, ACatchBlockMayCallTheLibrary) {
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

TEST_F(ExceptionTest, AScansProgressThrowsToItsReader) {
  const Table table = accounts();
  fill(table, 5'000, 1);
  std::atomic<int> told{0};
  ScanOptions options;
  options.credits = 1;
  options.progress_interval_ns = 1;
  options.on_progress = [&](const ScanStatistics&) {
    ++told;
    fail();
  };
  Query query;
  query.select.assign(200, 0);  // more than one chunk: the nodes cannot end before they have told
  auto stream = client_->scan(table, query, options).value();
  EXPECT_TRUE(eventually([&] { return told > 0; }));
  EXPECT_EQ(thrown_by([&] { static_cast<void>(stream.collect()); }), kThrown);
  EXPECT_EQ(stream.next().code(), StatusCode::kCancelled);
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(eventually([] { return read_only_snapshots() == 0; }));
  EXPECT_EQ(balance(table, 0), 1) << "the client goes on";
}

TEST_F(ExceptionTest, AnIndexsProgressThrowsToItsMaker) {
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

/// Throws where the client has made a node of an index's tree: in the fiber `caller`, or in all others, after `skipped`
/// nodes. The exception is not of std::exception's kind. It throws more than once, because some of the other fibers
/// split inner nodes and belong to no call, and not always, because leaves are hard to find if no parent knows them.
class ThrowingNodes {
 public:
  ThrowingNodes(uint64_t caller, bool in_caller, int skipped = 0)
      : skipped_(skipped), hook_(PausePoints::on("client.tree.node_made", [this, caller, in_caller] {
          const fiber::FiberScheduler* const scheduler = fiber::FiberScheduler::current();
          if (scheduler == nullptr || (scheduler->current_fiber() == caller) != in_caller) return;
          if (thrown_ == kMostThrown || skipped_-- > 0) return;
          throw ++thrown_;
        })) {}

  int thrown() const { return thrown_; }

 private:
  static constexpr int kMostThrown = 100;

  // The worker's thread only.
  int skipped_;
  int thrown_ = 0;
  PausePoints::Hook hook_;  // last: its callback uses the rest
};

/// A client whose index nodes are small, so that every fiber that enters records splits some.
ClientOptions with_small_nodes() {
  ClientOptions options;
  options.index_node_bytes = 256;
  return options;
}

constexpr uint64_t kManyRows = 4'000;

/// kManyRows records with a balance of their own each.
Status insert_many(Transaction& tx, const Table& table) {
  for (uint64_t key = 0; key < kManyRows; ++key) {
    const auto balance = static_cast<int64_t>(key * 7'919 % kManyRows);
    LOAM_RETURN_IF_ERROR(tx.insert(table, Key(key), {Value::int64(balance), Value::null()}));
  }
  return ok_status();
}

// The build waited for ever for a fiber that threw, and a calling fiber that threw left its frame to the others.
TEST_F(ExceptionTest, AnIndexBuildEndsWhicheverFiberThrows) {
  const Table table = accounts();
  const auto client = cluster_->client(with_small_nodes());
  ASSERT_TRUE(client->run_transaction([&](Transaction& tx) { return insert_many(tx, table); }).ok());
  const auto create = [&] { return client->create_index("exception.build", table, {{"balance"}}); };
  for (const bool in_caller : {true, false}) {
    client->run([&] {
      const uint64_t caller = client->impl().worker().scheduler().current_fiber();
      ThrowingNodes nodes(caller, in_caller, in_caller ? 1 : 0);  // the caller makes the root before it enters
      const auto failed = create();
      EXPECT_EQ(failed.code(), StatusCode::kUnknownOutcome) << failed.status().to_string();
      EXPECT_GE(nodes.thrown(), 1);
    });
  }
  const auto index = create();
  ASSERT_TRUE(index.ok() && index->ready()) << index.status().to_string();
  auto tx = client->begin({.read_only = true, .retry = {}});
  EXPECT_EQ(tx->range(*index, {})->size(), kManyRows);
}

TEST_F(ExceptionTest, ACommitEndsWhicheverFiberOfItsIndexChangesThrows) {
  const auto client = cluster_->client(with_small_nodes());
  for (const bool in_caller : {true, false}) {
    const Table table = accounts();
    const std::string name = "exception.commit." + std::to_string(in_caller);
    const Index index = client->create_index(name, table, {{"balance"}}).value();
    client->run([&] {
      ThrowingNodes nodes(client->impl().worker().scheduler().current_fiber(), in_caller);
      auto tx = client->begin().value();
      ASSERT_TRUE(insert_many(tx, table).ok());
      const Status committed = tx.commit();
      EXPECT_EQ(committed.code(), StatusCode::kFenced) << committed.to_string();
      EXPECT_GE(nodes.thrown(), 1);
    });
    // In a new session, when the old one's changes are undone.
    EXPECT_TRUE(eventually(
        [&] { return client->run_transaction([&](Transaction& tx) { return insert_many(tx, table); }).ok(); }));
    auto tx = client->begin({.read_only = true, .retry = {}});
    EXPECT_EQ(tx->range(index, {})->size(), kManyRows);
  }
}

TEST_F(ExceptionTest, AWarningMayThrow) {
  std::atomic<int> warnings{0};
  ClientOptions options;
  options.on_warning = [&](std::string_view) {
    ++warnings;
    fail();
  };
  const auto client = cluster_->client(options);
  const auto hold = [&] {  // the thread for over 10 ms
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
