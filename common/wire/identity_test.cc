#include "common/wire/identity.h"

#include <gtest/gtest.h>

namespace loam::wire {
namespace {

constexpr ClusterId kCluster{0x0123456789abcdef, 0xfedcba9876543210};

/// Epoch 3 stored the states 11 to 19, epoch 4 the states 20 to 29, epoch 5 so far 30 to 33.
ClusterHistory history() { return {kCluster, {{3, 103, 11}, {4, 104, 20}, {5, 105, 30}}, 33, 700}; }

Status judge(const HistoryPoint& known) { return history().contains(known); }

TEST(ClusterIdTest, IsWrittenAsHexadecimalDigits) {
  EXPECT_EQ(to_string(kCluster), "0123456789abcdeffedcba9876543210");
  EXPECT_TRUE(kCluster);
  EXPECT_TRUE((ClusterId{0, 1}));
  EXPECT_FALSE(ClusterId());
}

TEST(ClusterHistoryTest, ContainsPointsOfItsOwnEpochs) {
  EXPECT_TRUE(judge({}).ok()) << "a storage node that has never registered";
  EXPECT_TRUE(judge({kCluster, 3, 103, 19}).ok());
  EXPECT_TRUE(judge({kCluster, 4, 104, 20}).ok());
  EXPECT_TRUE(judge({kCluster, 5, 105, 33}).ok());
  EXPECT_TRUE(judge(history().latest()).ok());
}

TEST(ClusterHistoryTest, RefusesAnotherCluster) {
  const Status status = judge({{1, 2}, 5, 105, 33});
  EXPECT_TRUE(status == StatusCode::kWrongCluster) << status.to_string();
  EXPECT_NE(status.message().find(to_string(ClusterId{1, 2})), std::string_view::npos) << status.to_string();
}

TEST(ClusterHistoryTest, RefusesEpochsThatItDoesNotContain) {
  EXPECT_TRUE(judge({kCluster, 6, 106, 40}) == StatusCode::kWrongCluster) << "the epoch of the commit manager is lower";
  EXPECT_TRUE(judge({kCluster, 5, 999, 30}) == StatusCode::kWrongCluster)
      << "epoch 5 of another start of the commit manager";
  EXPECT_TRUE(judge({kCluster, 4, 999, 20}) == StatusCode::kWrongCluster)
      << "epoch 4 of another start of the commit manager";
  EXPECT_TRUE(judge({kCluster, 2, 102, 5}) == StatusCode::kWrongCluster)
      << "the commit manager no longer keeps this epoch";
}

TEST(ClusterHistoryTest, RefusesStatesThatItDoesNotContain) {
  EXPECT_TRUE(judge({kCluster, 4, 104, 30}) == StatusCode::kWrongCluster)
      << "epoch 5 began after state 29, so the node knows another state 30 of epoch 4";
  EXPECT_TRUE(judge({kCluster, 5, 105, 34}) == StatusCode::kWrongCluster);
}

TEST(ClusterHistoryTest, RefusesACommitLogThatEndsTooEarly) {
  EXPECT_TRUE(judge({kCluster, 5, 105, 33, 700}).ok());
  EXPECT_TRUE(judge({kCluster, 4, 104, 20, 699}).ok());
  EXPECT_TRUE(judge({kCluster, 5, 105, 33, 701}) == StatusCode::kWrongCluster);
}

TEST(ClusterHistoryTest, IsValidOnlyIfItAscends) {
  EXPECT_TRUE(history().validate().ok());
  EXPECT_TRUE((ClusterHistory{kCluster, {{1, 7, 1}}, 0}.validate().ok())) << "a commit manager that stores no state";
  const auto bad = [](auto change) {
    ClusterHistory changed = history();
    change(changed);
    return changed.validate() == StatusCode::kMalformed;
  };
  EXPECT_TRUE(bad([](ClusterHistory& h) { h.cluster = {}; }));
  EXPECT_TRUE(bad([](ClusterHistory& h) { h.epochs.clear(); }));
  EXPECT_TRUE(bad([](ClusterHistory& h) { h.epochs[0].number = 0; }));
  EXPECT_TRUE(bad([](ClusterHistory& h) { h.epochs[0].first_state = 0; }));
  EXPECT_TRUE(bad([](ClusterHistory& h) { h.epochs[1].number = 3; }));
  EXPECT_TRUE(bad([](ClusterHistory& h) { h.epochs[1].first_state = 30; }));
  EXPECT_TRUE(bad([](ClusterHistory& h) { h.state = 28; }));
  ClusterHistory longest{kCluster, {}, kMaxEpochs + 1};
  for (uint64_t i = 1; i <= kMaxEpochs; ++i) longest.epochs.push_back({i, i, i});
  EXPECT_TRUE(longest.validate().ok());
  longest.epochs.push_back({kMaxEpochs + 1, 1, kMaxEpochs + 1});
  EXPECT_TRUE(longest.validate() == StatusCode::kMalformed);
}

}  // namespace
}  // namespace loam::wire
