// Calls while the client has no free fiber.
#include <atomic>
#include <memory>

#include <gtest/gtest.h>

#include <loam/client/client.h>

#include "client-lib/src/api/client_impl.h"
#include "client-lib/testing/cluster_test_fixture.h"

namespace loam::client {
namespace {

using NoFiberTest = ClusterTest;
using testing::eventually;

/// Limit of open transactions. The client reserves as many fibers for commits under a CallScope.
constexpr size_t kTransactions = 8;

/// Takes all fibers of a client and holds them until the object is destroyed.
class AllFibers {
 public:
  explicit AllFibers(Client& client) : worker_(client.impl().worker()) {
    // Fibers of the library may end meanwhile. A function that gets no fiber is destroyed uncalled.
    const auto all_taken = [&] {
      if (held_.load(std::memory_order_relaxed) == kReservedFibers + 1 + kTransactions)
        return true;  // relaxed: a count
      worker_.spawn(hold());
      return false;
    };
    EXPECT_TRUE(eventually(all_taken));
  }
  ~AllFibers() {
    stop_.store(true, std::memory_order_relaxed);  // relaxed: no other data depends on it
    EXPECT_TRUE(eventually([&] { return held_.load(std::memory_order_acquire) == 0; }));
  }

 private:
  fiber::Task hold() {
    return [this] {
      held_.fetch_add(1, std::memory_order_relaxed);  // relaxed: a count
      while (!stop_.load(std::memory_order_relaxed)) worker_.scheduler().sleep_for(1'000'000);
      held_.fetch_sub(1, std::memory_order_release);  // pairs with the destructor
    };
  }

  rpc::Worker& worker_;
  std::atomic<bool> stop_{false};
  std::atomic<size_t> held_{0};
};

ClientOptions one_fiber() {
  ClientOptions options;
  options.max_fibers = 1;
  options.max_transactions = kTransactions;
  return options;
}

TEST_F(NoFiberTest, UnfinishedTransactionAbortsWithoutAFreeFiber) {
  const auto client = cluster_->client(one_fiber());
  const Table table = accounts();
  auto destroyed = std::make_unique<Transaction>(client->begin().value());
  auto reading = std::make_unique<Transaction>(client->begin({.read_only = true}).value());
  auto aborted = client->begin().value();
  ASSERT_TRUE(destroyed->insert(table, Key(1), {Value::int64(1), Value::null()}).ok());
  {
    const AllFibers taken(*client);
    ASSERT_EQ(client->begin().code(), StatusCode::kOverloaded);
    destroyed.reset();
    reading.reset();
    EXPECT_TRUE(aborted.abort().ok());
    EXPECT_TRUE(all_transactions_ended());
    EXPECT_TRUE(eventually([] { return read_only_snapshots() == 0; }));
    EXPECT_EQ(client->begin().code(), StatusCode::kOverloaded) << "still no fiber";
  }
  EXPECT_TRUE(client->begin().ok());
  EXPECT_EQ(client->statistics().fenced, 0u) << "they ended with the session, at their maximum age";
}

TEST_F(NoFiberTest, ScanEndsWithoutAFreeFiber) {
  const auto client = cluster_->client(one_fiber());
  const Table table = accounts();
  fill(table, 10, 1);
  auto stream = std::make_unique<ScanStream>(client->scan(table, sum_query()).value());
  {
    const AllFibers taken(*client);
    ASSERT_EQ(client->begin().code(), StatusCode::kOverloaded);
    EXPECT_GT(stream->statistics().elapsed_ns, 0u);
    stream.reset();
    EXPECT_TRUE(eventually([] { return read_only_snapshots() == 0; }));
    EXPECT_FALSE(client->begin().ok()) << "still no fiber";
  }
}

}  // namespace
}  // namespace loam::client
