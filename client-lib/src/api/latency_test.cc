// Latencies of requests: client and servers record the same request under the same id.
#include <algorithm>
#include <atomic>

#include <gtest/gtest.h>

#include <loam/client/client.h>

#include "client-lib/testing/cluster_test_fixture.h"
#include "common/base/env.h"
#include "common/base/pause_point.h"

namespace loam::client {
namespace {

using latency::Latencies;
using latency::OperationKind;
using latency::SlowOperation;
using latency::Stage;

/// Time for which a server is held at a pause point.
constexpr uint64_t kHeldNs = 20 * latency::kSlowNs;

/// Holds the first thread that passes a pause point for kHeldNs.
class OneDelay {
 public:
  explicit OneDelay(std::string_view place)
      : hook_(PausePoints::on(place, [this] {
          if (passed_.exchange(true, std::memory_order_relaxed)) return;  // relaxed: it guards no other data
          const uint64_t from_ns = Env::now_ns();
          while (Env::now_ns() - from_ns < kHeldNs) Env::spin_pause();
        })) {}

 private:
  std::atomic<bool> passed_{false};
  PausePoints::Hook hook_;
};

class LatencyTest : public ClusterTest {
 protected:
  /// The longest operation of this kind and session.
  SlowOperation longest(const Latencies& latencies, OperationKind kind) const {
    SlowOperation found;
    for (const SlowOperation& one : latencies.slow) {
      const bool own = one.kind == kind && one.session == client_->session().value;
      if (own && one.stages.sum() > found.stages.sum()) found = one;
    }
    return found;
  }
  static uint64_t count(const Latencies& latencies, OperationKind kind) {
    return latencies.kinds[static_cast<size_t>(kind)].count();
  }
  static Latencies of_nodes() {
    Latencies all = cluster_->node(0).latencies();
    const Latencies other = cluster_->node(1).latencies();
    all.slow.insert(all.slow.end(), other.slow.begin(), other.slow.end());
    for (size_t i = 0; i < latency::kOperationKinds; ++i) all.kinds[i].merge(other.kinds[i]);
    return all;
  }
};

TEST_F(LatencyTest, ClientAndStorageNodeRecordASlowReadUnderOneId) {
  const Table table = accounts();
  fill(table, 1, 7);
  {
    const OneDelay delay("node.batch.admitted");
    EXPECT_EQ(balance(table, 0), 7);
  }
  const SlowOperation asked = longest(client_->latencies(), OperationKind::kRead);
  const SlowOperation served = longest(of_nodes(), OperationKind::kRead);
  EXPECT_GE(asked.stages.sum(), kHeldNs);
  EXPECT_GE(served.stages.sum(), kHeldNs);
  EXPECT_GE(asked.first_sequence, served.first_sequence);
  EXPECT_LE(asked.first_sequence, served.last_sequence);
  EXPECT_NE(asked.node, 0u);
  EXPECT_EQ(served.session, client_->session().value);
}

TEST_F(LatencyTest, ClientAndCommitManagerRecordASlowBeginUnderOneId) {
  const Table table = accounts();
  {
    const OneDelay delay("manager.begin.executed");
    fill(table, 1, 7);
  }
  const SlowOperation asked = longest(client_->latencies(), OperationKind::kBegin);
  const SlowOperation served = longest(cluster_->manager().latencies(), OperationKind::kBegin);
  EXPECT_GE(asked.stages.sum(), kHeldNs);
  EXPECT_GE(served.stages.sum(), kHeldNs);
  EXPECT_GE(asked.first_sequence, served.first_sequence);
  EXPECT_LE(asked.first_sequence, served.last_sequence);
  EXPECT_EQ(asked.node, 0u);
}

TEST_F(LatencyTest, FibersThatHoldTheThreadAreTheCause) {
  const Table table = accounts();
  fill(table, 1, 7);
  std::atomic<bool> held{false};
  // Relaxed: it guards no other data.
  const PausePoints::Hook wait = PausePoints::on("node.batch.admitted", [&] {
    while (!held.load(std::memory_order_relaxed)) Env::spin_pause();
  });
  client_->run([&] {
    auto tx = client_->begin({.read_only = true, .retry = {}});
    ASSERT_TRUE(tx.ok());
    // The storage node replies after this fiber has begun, so that the reply waits for the client's thread.
    Task hold = client_->spawn([&held] {
      held.store(true, std::memory_order_relaxed);
      const uint64_t from_ns = Env::now_ns();
      while (Env::now_ns() - from_ns < kHeldNs) Env::spin_pause();
    });
    EXPECT_TRUE(tx->get(table, Key(0)).ok());
    hold.join();
  });
  const SlowOperation slow = longest(client_->latencies(), OperationKind::kRead);
  // The thread may have waited for a core meanwhile.
  EXPECT_GE(slow.stages[Stage::kClient] + slow.stages[Stage::kScheduling], kHeldNs * 9 / 10);
}

TEST_F(LatencyTest, EveryRequestIsCountedOnce) {
  const Table table = accounts();
  fill(table, 10, 7);
  const Latencies client_before = client_->latencies();
  const Latencies nodes_before = of_nodes();
  const Latencies manager_before = cluster_->manager().latencies();
  constexpr uint64_t kTransactions = 50;
  for (uint64_t i = 0; i < kTransactions; ++i) {
    const Status status = client_->run_transaction([&](Transaction& tx) -> Status {
      auto record = tx.get(table, Key(i % 10));
      LOAM_RETURN_IF_ERROR(record.status());
      return tx.update(table, Key(i % 10), {Value::int64(8), Value::null()});
    });
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  ASSERT_TRUE(all_transactions_ended());
  const auto more = [](const Latencies& after, const Latencies& before, OperationKind kind) {
    return count(after, kind) - count(before, kind);
  };
  const Latencies client_after = client_->latencies();
  const Latencies nodes_after = of_nodes();
  const Latencies manager_after = cluster_->manager().latencies();
  for (const OperationKind kind : {OperationKind::kRead, OperationKind::kWrite}) {
    EXPECT_EQ(more(client_after, client_before, kind), kTransactions) << to_string(kind);
    EXPECT_EQ(more(nodes_after, nodes_before, kind), kTransactions) << to_string(kind);
  }
  for (const OperationKind kind : {OperationKind::kBegin, OperationKind::kComplete}) {
    EXPECT_EQ(more(client_after, client_before, kind), kTransactions) << to_string(kind);
    EXPECT_EQ(more(manager_after, manager_before, kind), kTransactions) << to_string(kind);
  }
}

}  // namespace
}  // namespace loam::client
