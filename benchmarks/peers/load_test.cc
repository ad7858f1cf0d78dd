#include "benchmarks/peers/load.h"

#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <stdexcept>

#include <gtest/gtest.h>

namespace loam::bench {
namespace {

/// A server of one process: keeps stamps, and answers each batch in two parts.
class FakePeer final : public Peer {
 public:
  explicit FakePeer(size_t connections) : batches_(connections) {}

  size_t connections() const override { return batches_.size(); }
  void send(size_t connection, std::span<const Operation> batch) override {
    EXPECT_TRUE(batches_[connection].empty()) << "a batch before the answers of the one before";
    for (const Operation& operation : batch) {
      auto [at, first] = stamps_.try_emplace(operation.record, operation.stamp);
      if (operation.put) {
        EXPECT_TRUE(under_way_.insert(operation.record).second) << "two puts of a record under way";
        EXPECT_EQ(operation.stamp, first ? 0 : at->second + 1);
        at->second = operation.stamp;
        ++puts;
      } else {
        EXPECT_FALSE(under_way_.contains(operation.record)) << "a get of a record whose put is in flight";
        EXPECT_EQ(operation.stamp, at->second);
        ++gets;
      }
    }
    batches_[connection].assign(batch.begin(), batch.end());
  }
  void poll(uint64_t, const std::function<void(size_t, size_t)>& answered) override {
    if (silent) throw std::runtime_error("silent");
    for (size_t i = 0; i < batches_.size(); ++i) {
      std::deque<Operation>& batch = batches_[i];
      if (batch.empty()) continue;
      const size_t count = (batch.size() + 1) / 2;
      for (size_t n = 0; n < count; ++n, batch.pop_front()) under_way_.erase(batch.front().record);
      used.insert(i);
      answered(i, count);
    }
  }

  size_t gets = 0, puts = 0;
  bool silent = false;
  std::set<size_t> used;

 private:
  std::vector<std::deque<Operation>> batches_;
  std::map<uint32_t, uint32_t> stamps_;
  std::set<uint32_t> under_way_;
};

TEST(LoadGenerator, FillsEveryRecordOnce) {
  FakePeer peer(2);
  LoadGenerator generator(peer, 1'000, 1);
  generator.fill(64);
  EXPECT_EQ(peer.puts, 1'000u);
  EXPECT_EQ(peer.gets, 0u);
}

TEST(LoadGenerator, EveryReplyIsDetermined) {
  FakePeer peer(4);
  LoadGenerator generator(peer, 600, 1);
  generator.fill(64);
  const LoadResult result = generator.run({3, 64, 0.5, 20'000'000});
  EXPECT_EQ(result.operations, peer.gets + peer.puts - 600);
  EXPECT_GT(peer.gets, result.operations / 4);
  EXPECT_GT(peer.puts, result.operations / 4);
  EXPECT_EQ(peer.used.size(), 3u);
  uint64_t timed = 0;
  for (const auto& [ns, count] : result.latencies) timed += count;
  EXPECT_EQ(timed, result.operations) << "every answer has its latency";
  EXPECT_GE(result.elapsed_ns, 20'000'000u);
}

TEST(LoadGenerator, RejectsLoadWithTooFewRecords) {
  FakePeer peer(4);
  LoadGenerator generator(peer, 100, 1);
  EXPECT_THROW(generator.run({4, 64, 0, 1}), std::invalid_argument);
  EXPECT_THROW(generator.run({5, 1, 0, 1}), std::invalid_argument);
}

TEST(LoadResult, QuantilesAreWeightedByResponses) {
  LoadResult result;
  result.latencies = {{500, 1}, {100, 98}, {900, 1}};
  EXPECT_EQ(result.latency_ns(0.5), 100);
  EXPECT_EQ(result.latency_ns(0.98), 100);
  EXPECT_EQ(result.latency_ns(0.99), 500);
  EXPECT_EQ(result.latency_ns(1), 900);
  EXPECT_EQ(LoadResult().latency_ns(0.5), 0);
}

}  // namespace
}  // namespace loam::bench
